//! A genuine release of RKE2: downloaded once into the user's cache and verified by its published checksums.
//!
//! Guarantees: a folder under its final name is complete and verified; its name is the version.
//!
//! Not tested against the release site, only against files served by a test. Verification and refusals are tested.

use std::fs;

use anyhow::{Context as _, bail, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use regex::Regex;

use super::{IMAGES, IMAGES_LIST, SUMS, TARBALL};
use crate::{
    components::{digest_of, fetch},
    tools,
};

const SITE: &str = "https://github.com/rancher/rke2/releases/download";

/// Returns the release's folder; downloads the release if it is not cached.
pub(crate) fn ensure(version: &str) -> anyhow::Result<Utf8PathBuf> {
    check_version(version)?;
    let releases = Utf8PathBuf::from_path_buf(tools::cache()?.join("releases"));
    let releases = releases.ok().context("the cache folder's path is not UTF-8")?;
    let folder = releases.join(version);
    if folder.exists() {
        return Ok(folder);
    }
    fs::create_dir_all(&releases).with_context(|| releases.to_string())?;
    let staging = tempfile::Builder::new().prefix(".downloading-").tempdir_in(&releases)?;
    let target = Utf8Path::from_path(staging.path()).context("the cache folder's path is not UTF-8")?;
    for name in [SUMS, IMAGES_LIST, TARBALL, IMAGES] {
        // Some servers decode a plus sign in a path as a space.
        fetch(&format!("{SITE}/{}/{name}", version.replace('+', "%2B")), &target.join(name))?;
    }
    check(target)?;
    fs::rename(staging.keep(), &folder).with_context(|| folder.to_string())?;
    Ok(folder)
}

fn check_version(text: &str) -> anyhow::Result<()> {
    let form = Regex::new(r"^v\d+\.\d+\.\d+(-rc\d+)?\+rke2r\d+$").context("compiling the pattern of a version")?;
    ensure!(form.is_match(text), "`{text}` is not a version of RKE2, such as v1.36.3+rke2r1");
    Ok(())
}

/// Verifies every file by the release's checksums; also refuses a file that they do not list.
fn check(folder: &Utf8Path) -> anyhow::Result<()> {
    let sums = fs::read_to_string(folder.join(SUMS)).with_context(|| folder.join(SUMS).to_string())?;
    for name in [IMAGES_LIST, TARBALL, IMAGES] {
        let mut lines = sums.lines().filter_map(|line| line.split_once(char::is_whitespace));
        // `sha256sum` marks files read in binary mode with an asterisk.
        let listed = lines.find(|(_, file)| file.trim_start().trim_start_matches('*') == name);
        let Some((expected, _)) = listed else { bail!("{SUMS} does not name {name}") };
        let (actual, _) = digest_of(&folder.join(name))?;
        ensure!(actual == expected, "{name} has the digest {actual}, but {SUMS} lists {expected}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a release of empty files with these checksum lines; returns the error, if any.
    fn refused(line: impl Fn(&str) -> String) -> Option<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = Utf8Path::from_path(folder.path()).expect("the path is UTF-8");
        let files = [IMAGES_LIST, TARBALL, IMAGES];
        for name in files {
            fs::write(path.join(name), "").expect("written");
        }
        fs::write(path.join(SUMS), files.map(line).concat()).expect("written");
        check(path).err().map(|error| error.to_string())
    }

    #[test]
    fn every_file_is_checked_against_the_sums() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(refused(|name| format!("{empty}  {name}\n")), None);
        assert_eq!(refused(|name| format!("{empty} *{name}\n")), None);
        let changed =
            refused(|name| format!("{}  {name}\n", if name == IMAGES { "0".repeat(64) } else { empty.into() }));
        assert!(changed.is_some_and(|why| why.contains(IMAGES) && why.contains("lists 000")));
        let unnamed = refused(|name| if name == TARBALL { String::new() } else { format!("{empty}  {name}\n") });
        assert!(unnamed.is_some_and(|why| why.contains("does not name") && why.contains(TARBALL)));
    }

    #[test]
    fn invalid_version_is_refused() {
        for version in ["v1.36.3+rke2r1", "v1.36.3-rc2+rke2r1"] {
            check_version(version).expect("a valid version");
        }
        for text in ["", "latest", "1.36.3+rke2r1", "v1.36.3", "v1.36.3+rke2r1/../..", "v1.36.3+k3s1"] {
            assert!(check_version(text).is_err(), "{text}");
        }
    }
}
