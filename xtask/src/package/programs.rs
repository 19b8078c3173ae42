//! Builds the packaged programs and determines the oldest glibc that they run with.

use std::{fs, io::ErrorKind::NotFound, path::Path, process::Command};

use anyhow::{Context, bail, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use regex::Regex;

use crate::{shell, tools};

/// Newest glibc that a packaged program may require: that of RHEL 8. Debian 11 has 2.31, Ubuntu 22.04 has 2.35.
pub(crate) const GLIBC_MAX: (u32, u32) = (2, 28);
/// Tools that link against older versions of glibc: zig contains them all, and cargo-zigbuild makes cargo use it.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// Environment variables that only test programs support: a simulated agent version, and the crash points.
const TEST_VARIABLES: [&str; 2] = ["GPUAAS_AGENT_VERSION", "GPUAAS_CRASH_POINTS"];

/// Paths of the built programs.
pub(crate) struct Programs {
    pub(crate) agent: Utf8PathBuf,
    pub(crate) gpuaas: Utf8PathBuf,
}

/// Builds the programs. Those of `dev` contain test features and need a glibc as new as this machine's; all others run on older machines
/// too.
pub(crate) fn build(profile: &str) -> anyhow::Result<Programs> {
    let folder = folder(profile)?;
    let programs = Programs { agent: folder.join("gpuaas-agent"), gpuaas: folder.join("gpuaas") };
    for program in [&programs.agent, &programs.gpuaas] {
        let needed = glibc_needed(program)?;
        eprintln!("    {}: glibc {}.{} or newer", program.file_name().unwrap_or_default(), needed.0, needed.1);
        ensure!(
            profile == "dev" || needed <= GLIBC_MAX,
            "{program} requires a newer glibc than {}.{}",
            GLIBC_MAX.0,
            GLIBC_MAX.1
        );
        let of_tests = named_in(&fs::read(program).with_context(|| program.to_string())?);
        ensure!(
            profile == "dev" || of_tests.is_empty(),
            "{program} is built for tests: it reads {}",
            of_tests.join(", ")
        );
    }
    Ok(programs)
}

/// Builds the programs and returns the folder that contains them.
pub(crate) fn folder(profile: &str) -> anyhow::Result<Utf8PathBuf> {
    let folder = if profile == "dev" { shell::build_programs()? } else { build_for_old_machines(profile)? };
    Utf8PathBuf::from_path_buf(folder).ok().context("the path is not UTF-8")
}

/// Builds each program with its own profile and links them into one folder.
fn build_for_old_machines(profile: &str) -> anyhow::Result<std::path::PathBuf> {
    let shipped = super::target_dir()?.join("shipped").join(profile);
    fs::create_dir_all(&shipped).with_context(|| shipped.to_string())?;
    for (package, program, profile) in
        [("gpuaas-cli", "gpuaas", profile), ("gpuaas-agent", "gpuaas-agent", agent_profile(profile))]
    {
        let (built, there) = (zigbuild(package, profile)?.join(program), shipped.join(program));
        // A hard link keeps the modification time, so that unchanged programs are not packaged again.
        fs::remove_file(&there).or_else(|error| if error.kind() == NotFound { Ok(()) } else { Err(error) })?;
        fs::hard_link(&built, &there).with_context(|| format!("{built} as {there}"))?;
    }
    Ok(shipped.into())
}

/// Profile of the agent that goes with this profile of the control plane.
fn agent_profile(profile: &str) -> &str {
    if profile == "dist" { "dist-agent" } else { profile }
}

/// Builds the programs of a package; returns their folder.
fn zigbuild(package: &str, profile: &str) -> anyhow::Result<Utf8PathBuf> {
    let zig = tools::python_environment("zigbuild", REQUIREMENTS)?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let with_glibc = format!("{target}.{}.{}", GLIBC_MAX.0, GLIBC_MAX.1);
    let mut build = shell::cargo(&["zigbuild", "--quiet", "--locked", "--bins", "--profile", profile]);
    build.args(["--package", package, "--target", &with_glibc]);
    // Cargo finds `cargo-zigbuild` on the path.
    let path = std::env::var("PATH").context("PATH is not set")?;
    build.env("PATH", format!("{}:{path}", zig.join("bin")));
    build.env("CARGO_ZIGBUILD_PYTHON_PATH", zig.join("bin/python3"));
    shell::run(
        &format!("building {package} with profile {profile} for glibc {}.{}", GLIBC_MAX.0, GLIBC_MAX.1),
        &mut build,
    )?;
    Ok(super::target_dir()?.join(target).join(profile))
}

/// Newest glibc version that a program's symbols require.
pub(crate) fn glibc_needed(program: &Utf8Path) -> anyhow::Result<(u32, u32)> {
    let symbols = shell::capture(Command::new("objdump").arg("-T").arg(program))?;
    newest(&symbols).with_context(|| format!("the symbols of {program} name no version of glibc"))
}

/// Lists which of [`TEST_VARIABLES`] a program contains.
fn named_in(program: &[u8]) -> Vec<&'static str> {
    TEST_VARIABLES.into_iter().filter(|name| memchr::memmem::find(program, name.as_bytes()).is_some()).collect()
}

fn newest(symbols: &str) -> Option<(u32, u32)> {
    let version = Regex::new(r"GLIBC_(\d+)\.(\d+)").expect("a valid pattern");
    version.captures_iter(symbols).filter_map(|found| Some((found[1].parse().ok()?, found[2].parse().ok()?))).max()
}

/// Copies a program without its symbols.
pub(crate) fn strip(program: &Utf8Path, into: &Path) -> anyhow::Result<()> {
    let stripped = Command::new("strip").arg("--strip-all").arg("-o").arg(into).arg(program).status();
    if !stripped.with_context(|| "strip (binutils) cannot be run")?.success() {
        bail!("strip {program} failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{named_in, newest};

    #[test]
    fn glibc_versions_are_compared_numerically() {
        let symbols = "0000 DF *UND* 0000 (GLIBC_2.2.5) free\n0000 DF *UND* 0000 (GLIBC_2.17) clock_gettime\n0000 (GLIBC_2.9) pipe2\n";
        assert_eq!(newest(symbols), Some((2, 17)));
        assert_eq!(newest("no symbols"), None);
    }

    #[test]
    fn test_programs_are_recognised() {
        assert_eq!(named_in(b"\0GPUAAS_LOG\0GPUAAS_AGENT_VERSION\0"), ["GPUAAS_AGENT_VERSION"]);
        assert!(named_in(b"\0GPUAAS_LOG\0").is_empty());
    }
}
