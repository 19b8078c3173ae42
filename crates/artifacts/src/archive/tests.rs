use std::io::Write as _;

use super::*;

/// Writes a tar with exactly these entries, bypassing the writer's own checks as an attacker would.
pub(crate) fn tar_of(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (kind, path, target) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        let content: &[u8] = if *kind == EntryType::Regular { b"content" } else { b"" };
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn check(name: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    check_archive(name, &File::open(&path).unwrap())
}

fn entries(entries: &[(EntryType, &str, &str)]) -> Result<(), ArtifactError> {
    check("a.tar", &tar_of(entries))
}

const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;

#[test]
fn entries_of_usual_releases_are_accepted() {
    entries(&[
        (EntryType::Directory, "./", ""),
        (EntryType::Directory, "bin/", ""),
        (FILE, "bin/rke2", ""),
        (FILE, "./lib/systemd/system/rke2-server.service", ""),
        (LINK, "bin/kubectl", "rke2"),
        (LINK, "share/rke2/bin", "../../bin"),
        (EntryType::Link, "bin/ctr", "bin/rke2"),
        (FILE, "..data", ""),
    ])
    .unwrap();
}

#[test]
fn entry_that_leads_out_of_the_archive_is_refused() {
    let bad: &[&[(EntryType, &str, &str)]] = &[
        &[(FILE, "../evil", "")],
        &[(FILE, "a/../../evil", "")],
        &[(FILE, "a/../b", "")],
        &[(FILE, "/etc/passwd", "")],
        &[(FILE, "..", "")],
        &[(LINK, "out", "/etc")],
        &[(LINK, "out", "..")],
        &[(LINK, "a/out", "../../x")],
        &[(LINK, "out", "")],
        &[(EntryType::Link, "hard", "/etc/shadow")],
        &[(EntryType::Link, "hard", "../x")],
        // Each link alone stays inside the archive; together they lead out of it.
        &[(LINK, "a/b/c/top", "../../.."), (LINK, "t", "a/b/c/top/..")],
        &[(LINK, "a/b/c/top", "../../.."), (LINK, "a/b/c/top/t", "../x")],
        &[(LINK, "a", "b"), (FILE, "a/file", "")],
        &[(LINK, "a", "b"), (EntryType::Link, "h", "a/file")],
        &[(EntryType::Char, "null", "")],
        &[(EntryType::Block, "sda", "")],
        &[(EntryType::Fifo, "pipe", "")],
    ];
    for case in bad {
        let found = entries(case);
        assert!(matches!(found, Err(ArtifactError::UnsafePath { .. })), "{case:?}: {found:?}");
    }
}

#[test]
fn long_names_are_checked_like_short_ones() {
    for evil in [format!("{}/../../../x", "d/".repeat(80)), format!("/{}", "d".repeat(150))] {
        let mut gnu = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(evil.len() as u64 + 1);
        header.set_cksum();
        gnu.append(&header, format!("{evil}\0").as_bytes()).unwrap();
        let mut bytes = gnu.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes.extend(tar_of(&[(FILE, "innocent", "")]));
        assert!(matches!(check("a.tar", &bytes), Err(ArtifactError::UnsafePath { .. })), "{evil}");

        let mut pax = tar::Builder::new(Vec::new());
        pax.append_pax_extensions([("path", evil.as_bytes())]).unwrap();
        let mut bytes = pax.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes.extend(tar_of(&[(FILE, "innocent", "")]));
        assert!(matches!(check("a.tar", &bytes), Err(ArtifactError::UnsafePath { .. })), "{evil}");
    }
}

#[test]
fn name_over_the_limit_is_not_read_into_memory() {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 33);
    header.set_cksum();
    let found = check("a.tar", header.as_bytes());
    assert!(matches!(found, Err(ArtifactError::TooLarge { .. })), "{found:?}");
}

#[test]
fn truncated_archive_is_refused_as_truncated() {
    // Incompressible, so that every cut removes content.
    let noise: Vec<u8> = (0_u32..20_000).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(noise.len() as u64);
    header.set_cksum();
    builder.append_data(&mut header, "noise", noise.as_slice()).unwrap();
    let tar = builder.into_inner().unwrap();
    let zstd = zstd::encode_all(tar.as_slice(), 1).unwrap();
    for (name, bytes) in [("a.tar.gz", gzip(&tar)), ("a.tar.zst", zstd)] {
        check(name, &bytes).unwrap();
        for cut in [1, 2, 3, 7, bytes.len() / 2, bytes.len() - 20] {
            let found = check(name, &bytes[..bytes.len() - cut]);
            assert!(matches!(found, Err(ArtifactError::Truncated { .. })), "{name} - {cut}: {found:?}");
        }
    }
    assert!(matches!(check("a.tar", &tar[..tar.len() / 2]), Err(ArtifactError::Truncated { .. })));
}

#[test]
fn file_that_is_no_archive_is_refused_as_malformed() {
    for name in ["a.tar.gz", "a.tar.zst", "a.tar"] {
        let found = check(name, &[b'x'; 4096]);
        assert!(matches!(found, Err(ArtifactError::Malformed { .. })), "{name}: {found:?}");
    }
    check("rke2.linux-amd64", b"any bytes").unwrap();
}
