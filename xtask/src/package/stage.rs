//! Arranges the content of packages in one folder, which takes the place of cargo's folder of built programs.

use std::{fs, io::Write, process::Command};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};

use super::{Version, archive::Entry, commit_time, programs, programs::Programs, sums};
use crate::shell;

/// Folder name below cargo's target folder; `cargo deb` treats it as a profile.
pub(crate) const FOLDER: &str = "packaged";

/// The enrollment script. Packages contain it too, so that it is available for a removal.
const SCRIPT: &str = "crates/api/src/routes/install/install.sh";
/// The maintainer, as in `Cargo.toml`.
const MAINTAINER: &str = "GPUaaS maintainers <maintainers@gpuaas.dev>";

/// The staging folder.
pub(crate) struct Stage {
    pub(crate) folder: Utf8PathBuf,
    /// Name of the top folder in an archive, without the part that distinguishes agent and control plane.
    suffix: String,
}

impl Stage {
    /// Replaces the folder by one with stripped programs, manual pages and changelogs.
    pub(crate) fn lay_out(target: &Utf8Path, programs: &Programs, version: &Version) -> anyhow::Result<Self> {
        let folder = target.join(FOLDER);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        for below in ["man", "packages", "completion"] {
            fs::create_dir_all(folder.join(below))?;
        }
        programs::strip(&programs.agent, folder.join("gpuaas-agent").as_std_path())?;
        programs::strip(&programs.gpuaas, folder.join("gpuaas").as_std_path())?;
        let gpuaas = folder.join("gpuaas");
        shell::capture(Command::new(&gpuaas).arg("man").arg(folder.join("man")))?;
        for page in folder.join("man").read_dir_utf8()? {
            let page = page?.into_path();
            fs::write(format!("{page}.gz"), gzipped(&fs::read(&page)?)?)?;
        }
        fs::write(
            folder.join("completion/gpuaas"),
            shell::capture(Command::new(&gpuaas).args(["completion", "bash"]))?,
        )?;
        for package in ["gpuaas-agent", "gpuaas-server"] {
            fs::write(folder.join(format!("changelog-{package}.gz")), changelog(package, version)?)?;
        }
        let suffix = version.archive("").trim_end_matches(".tar.gz").to_owned();
        Ok(Self { folder, suffix })
    }

    /// Adds the packages in `made` to the control plane's package, with their checksum list.
    pub(crate) fn add_packages(&self, made: &Utf8Path) -> anyhow::Result<()> {
        let into = self.folder.join("packages");
        for entry in made.read_dir_utf8()? {
            let entry = entry?;
            fs::copy(entry.path(), into.join(entry.file_name()))?;
        }
        sums::write(&into)
    }

    /// Content of the agent's archive, which installs programs below `/usr/local`.
    pub(crate) fn agent_archive(&self) -> anyhow::Result<Vec<Entry>> {
        let unit = fs::read_to_string(shell::root().join("packaging/agent/gpuaas-agent.service"))?;
        self.entries(
            "gpuaas-agent",
            &[
                ("bin/gpuaas-agent", 0o755, fs::read(self.folder.join("gpuaas-agent"))?),
                ("lib/systemd/system/gpuaas-agent.service", 0o644, in_usr_local(&unit, "gpuaas-agent")?.into_bytes()),
                ("share/gpuaas-agent/install.sh", 0o755, fs::read(shell::root().join(SCRIPT))?),
            ],
        )
    }

    /// Content of the control plane's archive; its single program is also the command line.
    pub(crate) fn server_archive(&self) -> anyhow::Result<Vec<Entry>> {
        let root = shell::root();
        let unit = fs::read_to_string(root.join("packaging/server/gpuaas-server.service"))?;
        let mut entries = self.entries(
            "gpuaas",
            &[
                ("bin/gpuaas", 0o755, fs::read(self.folder.join("gpuaas"))?),
                ("etc/gpuaas/server.toml", 0o644, fs::read(root.join("packaging/server/server.toml"))?),
                ("lib/systemd/system/gpuaas-server.service", 0o644, in_usr_local(&unit, "gpuaas")?.into_bytes()),
            ],
        )?;
        let mut packages: Vec<_> = self.folder.join("packages").read_dir_utf8()?.collect::<Result<_, _>>()?;
        packages.sort_by(|one, other| one.file_name().cmp(other.file_name()));
        for package in packages {
            let name = format!("share/gpuaas/packages/{}", package.file_name());
            entries.extend(self.entries("gpuaas", &[(name.as_str(), 0o644, fs::read(package.path())?)])?);
        }
        Ok(entries)
    }

    fn entries(&self, of: &str, files: &[(&str, u32, Vec<u8>)]) -> anyhow::Result<Vec<Entry>> {
        let entry = |(path, mode, content): &(&str, u32, Vec<u8>)| {
            Ok(Entry { path: format!("{of}{}/{path}", self.suffix), mode: *mode, content: content.clone() })
        };
        files.iter().map(entry).collect()
    }
}

/// Adapts a unit to a program below `/usr/local`.
fn in_usr_local(unit: &str, program: &str) -> anyhow::Result<String> {
    let (from, to) = (format!("ExecStart=/usr/bin/{program}"), format!("ExecStart=/usr/local/bin/{program}"));
    unit.contains(&from).then(|| unit.replace(&from, &to)).with_context(|| format!("the unit does not start {program}"))
}

/// Debian changelog with the version only; changes are in CHANGELOG.md.
fn changelog(package: &str, version: &Version) -> anyhow::Result<Vec<u8>> {
    let at = jiff::Timestamp::from_second(commit_time())?.strftime("%a, %d %b %Y %H:%M:%S +0000");
    let text = format!(
        "{package} ({}) stable; urgency=medium\n\n  * See CHANGELOG.md of this version.\n\n -- {}  {at}\n",
        version.debian(),
        MAINTAINER,
    );
    gzipped(text.as_bytes())
}

/// Compresses reproducibly as Debian requires: no timestamp.
fn gzipped(content: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut gzip = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::best());
    gzip.write_all(content)?;
    Ok(gzip.finish()?)
}

#[cfg(test)]
mod tests {
    use gpuaas_model::FixKind;

    use super::*;

    #[test]
    fn a_unit_of_an_archive_starts_the_program_where_the_archive_puts_it() {
        for (unit, program) in [
            (include_str!("../../../packaging/agent/gpuaas-agent.service"), "gpuaas-agent"),
            (include_str!("../../../packaging/server/gpuaas-server.service"), "gpuaas"),
        ] {
            let moved = in_usr_local(unit, program).unwrap();
            assert!(moved.contains(&format!("ExecStart=/usr/local/bin/{program}")) && !moved.contains("=/usr/bin/"));
        }
        assert!(in_usr_local("ExecStart=/opt/x", "gpuaas").is_err());
    }

    /// Paths between the marks.
    fn fixes(text: &str) -> Vec<&str> {
        let block = text
            .split("# FIXES BEGIN")
            .nth(1)
            .and_then(|rest| rest.split("# FIXES END").next())
            .expect("a block of fixes");
        block.lines().map(|line| line.trim().trim_end_matches(" \\")).filter(|line| line.starts_with('/')).collect()
    }

    #[test]
    fn removing_the_agent_removes_every_fix() {
        let (package, script) =
            (include_str!("../../../packaging/agent/postrm"), fs::read_to_string(shell::root().join(SCRIPT)).unwrap());
        let all: Vec<&str> = FixKind::ALL.iter().map(|fix| fix.path()).collect();
        assert_eq!((fixes(package), fixes(&script)), (all.clone(), all));
    }
}
