//! Enrollment of machines: the command that an operator runs, and the folder of packages that it installs from.
//!
//! Guarantees: only files that the folder's checksum file lists are served, besides that file and its signature. Nothing here is secret, so no
//! token is required. The script checks every package against the checksum file, and fetches the checksum file only from a server that the authority
//! pinned in the enrollment string has certified.
//!
//! Deliberately absent: building packages (`cargo xtask package`), and the work on the machine (`routes/install/install.sh`).

use std::{io, path::PathBuf};

use gpuaas_model::Code;
use gpuaas_trust::SecretText;
use tokio::{fs::File, io::AsyncReadExt};

use crate::problem::ApiProblem;

/// The checksum file of a package folder, with lines of `SHA-256  NAME`.
pub const SUMS_FILE: &str = "SHA256SUMS";
/// The detached signature of the checksum file. Absent if the packages were not signed.
const SIGNATURE_FILE: &str = "SHA256SUMS.minisig";
/// Longest checksum file, in bytes. A usual one has half a kilobyte.
const SUMS_BYTES_MAX: u64 = 64 * 1_024;

/// Settings for enrolling machines.
#[derive(Clone, Debug)]
pub struct Install {
    /// Pin of the API's key in curl's format, `sha256//…`.
    pub api_pin: String,
    /// Folder of the packages. Without it, no packages are served.
    pub packages: Option<PathBuf>,
}

impl Install {
    /// Returns the command that enrolls a machine, for a root shell. It runs only a script from the pinned server, and passes the secret in
    /// the environment, not in an argument.
    pub(crate) fn command(&self, url: &str, string: &SecretText) -> String {
        let (pin, url) = (quoted(&self.api_pin), quoted(&format!("{}/install.sh", url.trim_end_matches('/'))));
        format!("curl -fsSk --pinnedpubkey {pin} {url} | GPUAAS_ENROLL={} sh", string.expose())
    }

    /// Opens a file of the folder and returns it with its size in bytes.
    pub(crate) async fn open(&self, name: &str) -> Result<(File, u64), ApiProblem> {
        let folder = self.packages.as_deref().ok_or_else(|| missing("no package folder is configured"))?;
        let sums = self.sums().await?;
        let is_listed = name == SUMS_FILE || name == SIGNATURE_FILE || lists(&sums, name);
        if !is_listed {
            return Err(absent(name));
        }
        let opened = async {
            let file = File::open(folder.join(name)).await?;
            let length = file.metadata().await?.len();
            Ok::<_, io::Error>((file, length))
        };
        opened.await.map_err(|error| {
            tracing::warn!(%error, name, "a package cannot be read");
            absent(name)
        })
    }

    async fn sums(&self) -> Result<String, ApiProblem> {
        let folder = self.packages.as_deref().ok_or_else(|| missing("no package folder is configured"))?;
        let read = async {
            let mut text = String::new();
            File::open(folder.join(SUMS_FILE)).await?.take(SUMS_BYTES_MAX).read_to_string(&mut text).await?;
            Ok::<_, io::Error>(text)
        };
        read.await.map_err(|error| {
            tracing::warn!(%error, folder = %folder.display(), "the checksum file of the packages cannot be read");
            missing("their checksum file cannot be read")
        })
    }
}

/// Returns whether a checksum file lists the file. Names with a path separator or a leading dot never count.
fn lists(sums: &str, name: &str) -> bool {
    let is_plain = !name.contains('/') && !name.starts_with('.');
    is_plain && sums.lines().filter_map(|line| line.split_once("  ")).any(|(_, listed)| listed == name)
}

fn missing(why: &str) -> ApiProblem {
    ApiProblem::new(Code::PackagesMissing, format!("this control plane has no packages: {why}"))
        .then("build them with cargo xtask package, and set their folder with gpuaas server --packages-dir DIR")
}

fn absent(name: &str) -> ApiProblem {
    ApiProblem::new(Code::NotFound, format!("there is no package {name}")).then("see /install/packages/SHA256SUMS")
}

/// Quotes a word for a shell. Plain `https` URLs stay unquoted.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/._-".contains(&byte);
    if word.starts_with("https://") && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Coded as _;

    use super::*;

    fn install(packages: Option<PathBuf>) -> Install {
        Install { api_pin: "sha256//q83v+/8=".to_owned(), packages }
    }

    #[test]
    fn command_pins_the_key_and_passes_its_secret_in_the_environment() {
        let string = SecretText::new("gpuaas1.eyJ1.12ab34cd".to_owned());
        let command = install(None).command("https://cp.example:7443", &string);
        assert_eq!(
            command,
            "curl -fsSk --pinnedpubkey 'sha256//q83v+/8=' https://cp.example:7443/install.sh | GPUAAS_ENROLL=gpuaas1.eyJ1.12ab34cd sh"
        );
        let odd = install(None).command("https://[::1]:7443/", &string);
        assert!(odd.contains(" 'https://[::1]:7443/install.sh' |"), "{odd}");
        assert_eq!(quoted("https://a'b"), r"'https://a'\''b'");
    }

    async fn opened(install: &Install, name: &str) -> Result<u64, Code> {
        install.open(name).await.map(|(_, length)| length).map_err(|problem| problem.cause().code())
    }

    #[tokio::test]
    async fn only_listed_files_are_served() {
        let folder = tempfile::tempdir().unwrap();
        let digest = "ab".repeat(32);
        let sums = format!("{digest}  agent.deb\n{digest}  gone.deb\n{digest}  ../secret\n{digest}  .hidden\n");
        for (name, content) in [(SUMS_FILE, sums.as_str()), ("agent.deb", "four"), ("other.deb", ""), (".hidden", "")] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        std::fs::write(folder.path().parent().unwrap().join("secret"), "").unwrap_or_default();
        let install = install(Some(folder.path().to_owned()));
        assert_eq!(opened(&install, "agent.deb").await, Ok(4));
        assert_eq!(opened(&install, SUMS_FILE).await, Ok(sums.len() as u64));
        for name in ["other.deb", "gone.deb", "agent", "agent.deb ", "../secret", ".hidden", "", SIGNATURE_FILE] {
            assert_eq!(opened(&install, name).await, Err(Code::NotFound), "{name:?}");
        }
    }

    #[tokio::test]
    async fn missing_folder_or_sum_file_is_reported_as_missing_packages() {
        let folder = tempfile::tempdir().unwrap();
        for packages in [None, Some(folder.path().to_owned())] {
            assert_eq!(opened(&install(packages), "agent.deb").await, Err(Code::PackagesMissing));
        }
    }
}
