//! One layer of an image: a tar without traces of this machine, named by its digest.

use std::fs::{self, File};
use std::io::{self, Write};

use anyhow::Context as _;
use aws_lc_rs::digest::{Context as Digest, SHA256};
use camino::{Utf8Path, Utf8PathBuf};

/// Content of an entry.
pub(super) enum Content {
    File(Utf8PathBuf),
    Text(&'static str),
    /// Hard link to another entry's path.
    HardLink(&'static str),
    Symlink(&'static str),
    Folder,
}

/// One entry. Its path has no leading slash.
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) content: Content,
}

impl Entry {
    /// Creates an entry for a program.
    pub(super) fn program(path: &str, source: Utf8PathBuf) -> Self {
        Self { path: path.to_owned(), mode: 0o755, content: Content::File(source) }
    }

    /// Creates another name for a program.
    pub(super) fn name(path: &str, of: &'static str) -> Self {
        Self { path: path.to_owned(), mode: 0o755, content: Content::HardLink(of) }
    }
}

/// A finished layer.
pub(super) struct Layer {
    /// SHA-256 of the tar, in hex.
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) path: Utf8PathBuf,
}

impl Layer {
    /// Writes `entries` in this order to a file in `folder`.
    pub(super) fn write(folder: &Utf8Path, name: &str, entries: &[Entry]) -> anyhow::Result<Self> {
        let path = folder.join(format!("{name}.layer"));
        let file = File::create(&path).with_context(|| path.to_string())?;
        let mut tar = tar::Builder::new(Counted { file, digest: Digest::new(&SHA256), size: 0 });
        for entry in entries {
            append(&mut tar, entry).with_context(|| format!("{} of layer {name}", entry.path))?;
        }
        let written = tar.into_inner()?;
        Ok(Self { digest: hex::encode(written.digest.finish()), size: written.size, path })
    }

    /// File name in an archive.
    pub(super) fn file_name(&self) -> String {
        format!("{}.tar", self.digest)
    }
}

fn append<W: Write>(tar: &mut tar::Builder<W>, entry: &Entry) -> anyhow::Result<()> {
    let mut header = header(entry.mode, 0);
    match &entry.content {
        Content::File(source) => {
            let file = File::open(source).with_context(|| source.to_string())?;
            header.set_size(file.metadata()?.len());
            tar.append_data(&mut header, &entry.path, file)?;
        }
        Content::Text(text) => {
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, &entry.path, text.as_bytes())?;
        }
        Content::HardLink(target) => {
            header.set_entry_type(tar::EntryType::Link);
            tar.append_link(&mut header, &entry.path, target)?;
        }
        Content::Symlink(target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            tar.append_link(&mut header, &entry.path, target)?;
        }
        Content::Folder => {
            header.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut header, &entry.path, io::empty())?;
        }
    }
    Ok(())
}

/// Creates a header without times and owners.
pub(super) fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_entry_type(tar::EntryType::Regular);
    header
}

struct Counted {
    file: File,
    digest: Digest,
    size: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Lists the regular files of `folder`, sorted, as entries under `prefix`.
pub(super) fn files_of(folder: &Utf8Path, prefix: &str) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in folder.read_dir_utf8().with_context(|| folder.to_string())? {
        let entry = entry?;
        if fs::metadata(entry.path())?.is_file() {
            let path = format!("{prefix}/{}", entry.file_name());
            entries.push(Entry { path, mode: 0o644, content: Content::File(entry.path().to_owned()) });
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}
