//! Mounts of this machine, as the kernel lists them.

use std::fs;

use anyhow::{Context, bail};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) point: Utf8PathBuf,
    pub(super) kind: String,
    /// Options of the file system (super block); for cgroups they include the controllers.
    pub(super) options: String,
}

/// Lists all mounts in the order in which they were made.
pub(super) fn all() -> anyhow::Result<Vec<Mount>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    text.lines().map(|line| parse(line).with_context(|| format!("/proc/self/mountinfo: {line}"))).collect()
}

/// Lists the mounts on `folder` and below it.
pub(super) fn below(folder: &Utf8Path) -> anyhow::Result<Vec<Mount>> {
    Ok(all()?.into_iter().filter(|mount| mount.point.starts_with(folder)).collect())
}

/// Unmounts everything on `folder` and below it, latest mount first.
pub(super) fn unmount_below(folder: &Utf8Path) -> anyhow::Result<()> {
    for mount in below(folder)?.iter().rev() {
        match unmount(mount.point.as_str(), UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(Errno::BUSY) => bail!("{} is in use{}", mount.point, users(&mount.point)),
            Err(error) => return Err(error).with_context(|| format!("unmounting {}", mount.point)),
        }
    }
    Ok(())
}

/// Lists the processes that use `folder`, as text for people.
fn users(folder: &Utf8Path) -> String {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let users: Vec<String> = processes
        .filter(|process| process.file_name().to_str().is_some_and(|pid| pid.parse::<u32>().is_ok()))
        .filter(|process| {
            let leads_there =
                |link: &str| fs::read_link(process.path().join(link)).is_ok_and(|to| to.starts_with(folder));
            leads_there("cwd") || leads_there("root") || leads_there("exe")
        })
        .map(|process| {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            format!("{} ({})", name.trim(), process.file_name().display())
        })
        .collect();
    if users.is_empty() { String::new() } else { format!(" by {}", users.join(", ")) }
}

/// Parses `id parent device root point options [fields] - kind source options`.
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let point = before.split(' ').nth(4)?;
    let mut after = after.split(' ');
    let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
    Some(Mount { point: Utf8PathBuf::from(unescape(point)), kind: kind.to_owned(), options: options.to_owned() })
}

/// Decodes the octal escapes with which the kernel writes space, tab, newline and backslash.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_and_without_optional_fields() {
        let cgroup = parse("35 31 0:32 / /sys/fs/cgroup/memory ro,nosuid shared:9 master:1 - cgroup cgroup rw,memory");
        let expected =
            Mount { point: "/sys/fs/cgroup/memory".into(), kind: "cgroup".to_owned(), options: "rw,memory".to_owned() };
        assert_eq!(cgroup, Some(expected));
        let spaced = parse(r"40 31 0:33 / /a\040b rw - tmpfs none rw").expect("a valid line");
        assert_eq!((spaced.point.as_str(), spaced.options.as_str()), ("/a b", "rw"));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn this_machine_has_a_root_and_a_proc() {
        let mounts = all().expect("the mounts are listed");
        assert!(mounts.iter().any(|mount| mount.point == "/proc" && mount.kind == "proc"));
        assert!(!below(Utf8Path::new("/proc")).expect("the mounts are listed").is_empty());
    }
}
