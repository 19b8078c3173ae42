//! Makes what machines install: Debian packages and archives of agent and control plane, their sums, and a signature over these.
//!
//! Guaranteed: `target/packages` holds one version, whole, or what it held before; everything in it is in `SHA256SUMS`; programs of the
//! profile `dist` ask for no newer glibc than [`programs::GLIBC_MAX`], measured in the files themselves; only those of `dev` hold what tests
//! need; archives of the same programs are the same bytes.
//!
//! Deliberately absent: other architectures than this machine's, keys (the operator names one), and publishing.

mod archive;
pub(crate) mod check;
mod debian;
pub(crate) mod programs;
mod stage;
mod sums;

use std::{fs, process::Command};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};

use crate::shell;
use stage::Stage;

/// What is packaged, and how.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The cargo profile; `dev` is quick, runs on machines as new as this one, and is for tests
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Tells builds of one version apart: the packages' version is `VERSION-BUILD`
    #[arg(long, value_name = "BUILD", default_value = "1")]
    build: String,
    /// A secret key of minisign's that signs the sums; without one they are not signed
    #[arg(long, env = "GPUAAS_SIGN_KEY_FILE", value_name = "FILE")]
    sign_key: Option<Utf8PathBuf>,
    /// A file with that key's password; asked for on the terminal when absent, where the key has one
    #[arg(long, env = "GPUAAS_SIGN_PASSWORD_FILE", value_name = "FILE")]
    sign_password: Option<Utf8PathBuf>,
    /// Where the packages go; `target/packages` when absent
    #[arg(long, value_name = "DIR")]
    out: Option<Utf8PathBuf>,
    /// Leaves out lintian and systemd-analyze: they have seen the same of another build
    #[arg(long)]
    unchecked: bool,
}

/// The chore: prints the folder of packages on standard output.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let target = target_dir()?;
    let out = options.out.clone().unwrap_or_else(|| target.join("packages"));
    let version = Version { plain: version()?, build: options.build.clone() };
    let programs = programs::build(&options.profile)?;
    let parent = out.parent().context("the packages need a folder to lie in")?;
    fs::create_dir_all(parent)?;
    let made = tempfile::Builder::new().prefix(".packages-").tempdir_in(parent)?;
    let made_dir = Utf8Path::from_path(made.path()).context("the path is not UTF-8")?;
    let stage = Stage::lay_out(&target, &programs, &version)?;
    let is_quick = options.profile == "dev";

    archive::write(&made_dir.join(version.archive("gpuaas-agent")), &stage.agent_archive()?)?;
    debian::build(&stage, "gpuaas-agent", &version, is_quick, made_dir)?;
    // The control plane's package brings the agent's: what it hands out is of its own version.
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

/// Which version, and which build of it.
pub(crate) struct Version {
    pub(crate) plain: String,
    pub(crate) build: String,
}

impl Version {
    /// As Debian writes it.
    fn debian(&self) -> String {
        format!("{}-{}", self.plain, self.build)
    }

    /// The file name of an archive, which is also that of the folder in it.
    fn archive(&self, of: &str) -> String {
        let machine = debian::architecture();
        format!("{of}-{}-linux-{machine}.tar.gz", self.debian())
    }
}

/// The workspace's version.
fn version() -> anyhow::Result<String> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(shell::root()).no_deps().exec()?;
    let agent = metadata.packages.iter().find(|package| package.name.as_str() == "gpuaas-agent");
    Ok(agent.context("the workspace has an agent")?.version.to_string())
}

fn target_dir() -> anyhow::Result<Utf8PathBuf> {
    let root = Utf8Path::from_path(shell::root()).context("the checkout's path is not UTF-8")?;
    Ok(std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), |dir| root.join(dir)))
}

/// When the newest commit was made: the one time that packages carry.
fn commit_time() -> i64 {
    let shown = shell::capture(Command::new("git").current_dir(shell::root()).args(["log", "-1", "--format=%ct"]));
    // A checkout without history is packaged too.
    shown.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// A control plane of another user reads it.
fn readable(folder: &Utf8Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?)
}
