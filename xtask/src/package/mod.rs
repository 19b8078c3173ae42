//! Builds what machines install: Debian packages and archives of agent and control plane, their checksums, and a signature over these.
//!
//! Guarantees: `target/packages` holds one complete version, or its previous content; `SHA256SUMS` lists every file in it; programs of
//! profile `dist` require no newer glibc than [`programs::GLIBC_MAX`], measured in the files themselves; only programs of profile `dev`
//! contain test features; archives of the same programs are byte-identical.
//!
//! Deliberately absent: other architectures than this machine's, keys (the operator supplies one), and publishing.

mod archive;
mod check;
mod debian;
pub(crate) mod programs;
mod stage;
mod sums;

use std::{fs, process::Command};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};

use crate::{shell, ui};
use stage::Stage;

/// Options of `cargo xtask package`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cargo profile; `dev` is fast, contains test features and needs a glibc as new as this machine's
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Build number that distinguishes builds of one version; packages have the version `VERSION-BUILD`
    #[arg(long, value_name = "BUILD", default_value = "1")]
    build: String,
    /// Secret minisign key to sign the checksums with; without one they are not signed
    #[arg(long, env = "GPUAAS_SIGN_KEY_FILE", value_name = "FILE")]
    sign_key: Option<Utf8PathBuf>,
    /// File with that key's password; by default the terminal prompts for it, if the key has one
    #[arg(long, env = "GPUAAS_SIGN_PASSWORD_FILE", value_name = "FILE")]
    sign_password: Option<Utf8PathBuf>,
    /// Output folder; `target/packages` by default
    #[arg(long, value_name = "DIR")]
    out: Option<Utf8PathBuf>,
    /// Skip lintian and systemd-analyze, for builds whose content was already checked
    #[arg(long)]
    unchecked: bool,
}

/// Runs `cargo xtask package`: prints the folder of packages on standard output.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let target = target_dir()?;
    let out = options.out.clone().unwrap_or_else(|| target.join("packages"));
    let version = Version { plain: version()?, build: options.build.clone() };
    ui::build_if_possible()?;
    let programs = programs::build(&options.profile)?;
    let parent = out.parent().context("the output folder has no parent")?;
    fs::create_dir_all(parent)?;
    let made = tempfile::Builder::new().prefix(".packages-").tempdir_in(parent)?;
    let made_dir = Utf8Path::from_path(made.path()).context("the path is not UTF-8")?;
    let stage = Stage::lay_out(&target, &programs, &version)?;
    let is_quick = options.profile == "dev";

    archive::write(&made_dir.join(version.archive("gpuaas-agent")), &stage.agent_archive()?)?;
    debian::build(&stage, "gpuaas-agent", &version, is_quick, made_dir)?;
    // The control plane's package contains the agent's, so that it hands out agents of its own version.
    stage.add_packages(made_dir)?;
    archive::write(&made_dir.join(version.archive("gpuaas")), &stage.server_archive()?)?;
    debian::build(&stage, "gpuaas-cli", &version, is_quick, made_dir)?;

    sums::write(made_dir)?;
    sums::sign(made_dir, options.sign_key.as_deref(), options.sign_password.as_deref())?;
    for entry in made_dir.read_dir_utf8()? {
        let entry = entry?;
        eprintln!("    {:<48} {:>9} KiB", entry.file_name(), entry.metadata()?.len() / 1_024);
    }
    if !options.unchecked {
        check::run(made_dir)?;
    }
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::rename(made.keep(), &out)?;
    readable(&out)?;
    println!("{out}");
    Ok(())
}

/// Version and build number.
pub(crate) struct Version {
    pub(crate) plain: String,
    pub(crate) build: String,
}

impl Version {
    /// Version in Debian's format.
    fn debian(&self) -> String {
        format!("{}-{}", self.plain, self.build)
    }

    /// File name of an archive.
    fn archive(&self, of: &str) -> String {
        let machine = debian::architecture();
        format!("{of}-{}-linux-{machine}.tar.gz", self.debian())
    }
}

/// Version of the workspace.
fn version() -> anyhow::Result<String> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(shell::root()).no_deps().exec()?;
    let agent = metadata.packages.iter().find(|package| package.name.as_str() == "gpuaas-agent");
    Ok(agent.context("the workspace has no package gpuaas-agent")?.version.to_string())
}

fn target_dir() -> anyhow::Result<Utf8PathBuf> {
    let root = Utf8Path::from_path(shell::root()).context("the checkout's path is not UTF-8")?;
    Ok(std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), |dir| root.join(dir)))
}

/// Time of the newest commit: the only timestamp in packages.
fn commit_time() -> i64 {
    let shown = shell::capture(Command::new("git").current_dir(shell::root()).args(["log", "-1", "--format=%ct"]));
    // Checkouts without history can be packaged too.
    shown.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Makes the folder readable for a control plane that runs as another user.
fn readable(folder: &Utf8Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?)
}
