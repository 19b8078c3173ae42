//! Reproducible archives: the same files give the same bytes.

use std::{fs, io::Write};

use anyhow::Context;
use camino::Utf8Path;

/// A file in an archive.
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
}

/// Writes the archive with its files sorted by path.
pub(crate) fn write(file: &Utf8Path, entries: &[Entry]) -> anyhow::Result<()> {
    fs::write(file, packed(entries)?).with_context(|| format!("writing {file}"))
}

fn packed(entries: &[Entry]) -> anyhow::Result<Vec<u8>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    let gzip = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::default());
    let mut tar = tar::Builder::new(gzip);
    for entry in sorted {
        append(&mut tar, entry)?;
    }
    Ok(tar.into_inner()?.finish()?)
}

fn append<W: Write>(tar: &mut tar::Builder<W>, entry: &Entry) -> anyhow::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(entry.content.len() as u64);
    header.set_mode(entry.mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_entry_type(tar::EntryType::Regular);
    Ok(tar.append_data(&mut header, &entry.path, entry.content.as_slice())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_does_not_depend_on_the_order_of_files() {
        let entry = |path: &str| Entry { path: path.to_owned(), mode: 0o755, content: path.as_bytes().to_vec() };
        assert_eq!(packed(&[entry("a"), entry("b/c")]).unwrap(), packed(&[entry("b/c"), entry("a")]).unwrap());
        let archive = packed(&[entry("b/c")]).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive.as_slice()));
        let first = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!((first.path().unwrap().to_str(), first.header().mode().unwrap()), (Some("b/c"), 0o755));
    }
}
