//! Checks an archive before it is unpacked: it must be complete, and every path must stay inside it.
//!
//! Long names and extended headers are separate entries, whose lengths the archive determines. This file reads them itself, with limits,
//! because the functions of the `tar` crate have none.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufReader, Read, Seek as _},
};

use tar::{Archive, Entry, EntryType};

use crate::error::ArtifactError;

/// Most entries of one archive. An images archive has some hundred, a node's root file system some ten thousand entries.
pub const ENTRIES_MAX: u64 = 200_000;
/// Most bytes that an archive may unpack to (64 GiB); RKE2's largest archives unpack to about 7 GB.
pub const UNPACKED_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// Longest path or link target, in bytes: Linux's `PATH_MAX`.
const PATH_BYTES_MAX: u64 = 4_096;
/// Longest block of extended headers, in bytes: several times the two names of `PATH_BYTES_MAX` that count in it.
const EXTENDED_BYTES_MAX: u64 = 64 * 1024;

/// Archive format of a file, derived from its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArchiveFormat {
    Tar,
    TarGzip,
    TarZstd,
    /// Not an archive: not checked.
    Plain,
}

impl ArchiveFormat {
    pub(crate) fn of(name: &str) -> Self {
        match name {
            _ if name.ends_with(".tar.gz") || name.ends_with(".tgz") => Self::TarGzip,
            _ if name.ends_with(".tar.zst") => Self::TarZstd,
            _ if name.ends_with(".tar") => Self::Tar,
            _ => Self::Plain,
        }
    }
}

/// Checks the whole file from its beginning. Blocks for as long as unpacking takes.
pub(crate) fn check_archive(name: &str, mut file: &File) -> Result<(), ArtifactError> {
    file.rewind().map_err(|error| ArtifactError::disk(name.as_ref(), error))?;
    let file = BufReader::new(file);
    let scan = Scan { name };
    match ArchiveFormat::of(name) {
        ArchiveFormat::Plain => Ok(()),
        ArchiveFormat::Tar => scan.run(file),
        ArchiveFormat::TarGzip => scan.run(flate2::bufread::MultiGzDecoder::new(file)),
        ArchiveFormat::TarZstd => {
            scan.run(zstd::stream::read::Decoder::with_buffer(file).map_err(|error| scan.unreadable(&error))?)
        }
    }
}

/// The check of one archive.
struct Scan<'a> {
    /// Name of the archive, for errors.
    name: &'a str,
}

impl Scan<'_> {
    /// Reads the unpacked archive to its end, and checks every entry.
    fn run(&self, unpacked: impl Read) -> Result<(), ArtifactError> {
        // Allows one byte more than the limit, so that exceeding it is detected.
        let mut unpacked = unpacked.take(UNPACKED_BYTES_MAX + 1);
        let mut archive = Archive::new(&mut unpacked);
        let (mut links, mut long_names, mut count) = (HashSet::new(), LongNames::default(), 0_u64);
        let entries = archive.entries().map_err(|error| self.unreadable(&error))?;
        for entry in entries.raw(true) {
            let mut entry = entry.map_err(|error| self.unreadable(&error))?;
            count += 1;
            if count > ENTRIES_MAX {
                return Err(self.too_large(ENTRIES_MAX, "entries"));
            }
            if !long_names.read_from(self, &mut entry)? {
                let (path, target) = std::mem::take(&mut long_names).names(&entry);
                self.check(entry.header().entry_type(), &path, target.as_deref(), &mut links)?;
            }
        }
        // The bytes after the last entry still belong to the compressed frame; only its end proves that the file is complete.
        io::copy(&mut unpacked, &mut io::sink()).map_err(|error| self.unreadable(&error))?;
        if unpacked.limit() == 0 {
            return Err(self.too_large(UNPACKED_BYTES_MAX, "bytes when unpacked"));
        }
        Ok(())
    }

    /// Accepts an entry whose path only descends and passes through no link of this archive, and whose link target stays inside.
    fn check(
        &self,
        kind: EntryType,
        path: &[u8],
        target: Option<&[u8]>,
        links: &mut HashSet<Vec<u8>>,
    ) -> Result<(), ArtifactError> {
        let refuse = |why| Err(self.unsafe_path(path, why));
        let Some(parts) = components(path) else { return refuse("which leads out of the archive") };
        let leads_through_link = (1..parts.len()).any(|end| links.contains(&parts[..end].join(&b'/')));
        if leads_through_link {
            return refuse("which leads through a link");
        }
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::Directory => Ok(()),
            EntryType::Link => match target.and_then(components) {
                Some(target) if !(1..=target.len()).any(|end| links.contains(&target[..end].join(&b'/'))) => Ok(()),
                _ => refuse("a hard link that leads out of the archive or through a link"),
            },
            EntryType::Symlink => {
                if !target.is_some_and(|target| stays_inside(target, parts.len().saturating_sub(1))) {
                    return refuse("a link that leads out of the archive");
                }
                links.insert(parts.join(&b'/'));
                Ok(())
            }
            _ => refuse("which is neither file, directory nor link"),
        }
    }

    fn unsafe_path(&self, path: &[u8], why: &'static str) -> ArtifactError {
        let shown = &path[..path.len().min(200)];
        ArtifactError::UnsafePath {
            name: self.name.to_owned(),
            entry: String::from_utf8_lossy(shown).into_owned(),
            why,
        }
    }

    fn too_large(&self, limit: u64, unit: &'static str) -> ArtifactError {
        ArtifactError::TooLarge { name: self.name.to_owned(), limit, unit }
    }

    /// Converts a read error. Decompressors report an early end as `UnexpectedEof`; the tar reader only in the error's text.
    fn unreadable(&self, error: &io::Error) -> ArtifactError {
        let (name, why) = (self.name.to_owned(), error.to_string());
        let early = error.kind() == io::ErrorKind::UnexpectedEof
            || ["unexpected EOF", "failed to read entire block", "incomplete frame"]
                .iter()
                .any(|text| why.contains(text));
        if early { ArtifactError::Truncated { name, why } } else { ArtifactError::Malformed { name, why } }
    }
}

/// Returns the components of a path that only descends, without `.`; `None` for any other path.
fn components(path: &[u8]) -> Option<Vec<&[u8]>> {
    let is_valid = !path.starts_with(b"/") && !path.contains(&0) && path.len() as u64 <= PATH_BYTES_MAX;
    let parts: Vec<_> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    (is_valid && !parts.contains(&b"..".as_slice())).then_some(parts)
}

/// Returns whether a symbolic link in a directory at `depth` stays inside: its target may first ascend, not above the top, and then
/// descend. Ascending after a descent is refused, because the descent may pass through another link.
fn stays_inside(target: &[u8], depth: usize) -> bool {
    let mut rest = target;
    let mut up = 0;
    loop {
        match rest {
            [b'.', b'.'] => return up < depth,
            [b'.', b'.', b'/', tail @ ..] => {
                up += 1;
                rest = tail;
            }
            [b'.', b'/', tail @ ..] => rest = tail,
            _ => return up <= depth && !rest.is_empty() && components(rest).is_some(),
        }
    }
}

/// Names that are too long for a header; they are stored in separate entries before the entry that they belong to.
#[derive(Default)]
struct LongNames {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
}

impl LongNames {
    /// Stores the names that an entry carries for the next one; returns false for an ordinary entry.
    fn read_from<R: Read>(&mut self, scan: &Scan<'_>, entry: &mut Entry<'_, R>) -> Result<bool, ArtifactError> {
        match entry.header().entry_type() {
            EntryType::GNULongName => self.path = Some(text(scan, entry, PATH_BYTES_MAX)?),
            EntryType::GNULongLink => self.target = Some(text(scan, entry, PATH_BYTES_MAX)?),
            EntryType::XHeader => self.read_extended(scan, &text(scan, entry, EXTENDED_BYTES_MAX)?)?,
            // A global header applies to all entries that follow. Git writes comments into it; paths in it are refused.
            EntryType::XGlobalHeader => {
                let mut global = Self::default();
                global.read_extended(scan, &text(scan, entry, EXTENDED_BYTES_MAX)?)?;
                if global.path.is_some() || global.target.is_some() {
                    return Err(scan.unsafe_path(b"(global header)", "which names paths for all entries"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Stores the names in a block of extended headers.
    fn read_extended(&mut self, scan: &Scan<'_>, block: &[u8]) -> Result<(), ArtifactError> {
        for extension in tar::PaxExtensions::new(block) {
            let extension = extension.map_err(|error| scan.unreadable(&error))?;
            match extension.key_bytes() {
                b"path" => self.path = Some(extension.value_bytes().to_vec()),
                b"linkpath" => self.target = Some(extension.value_bytes().to_vec()),
                // Tar readers disagree on which size counts, so an archive could show them different entries.
                b"size" => return Err(scan.unsafe_path(b"(extended header)", "which states a second size")),
                key if key.starts_with(b"GNU.sparse") => {
                    return Err(scan.unsafe_path(b"(extended header)", "which defines a sparse file"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns path and link target of `entry`: the stored names, or those of its header.
    fn names<R: Read>(self, entry: &Entry<'_, R>) -> (Vec<u8>, Option<Vec<u8>>) {
        let header = entry.header();
        let path = self.path.unwrap_or_else(|| header.path_bytes().into_owned());
        (path, self.target.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned)))
    }
}

/// Reads an entry's content, without the zero byte that terminates a name.
fn text<R: Read>(scan: &Scan<'_>, entry: &mut Entry<'_, R>, limit: u64) -> Result<Vec<u8>, ArtifactError> {
    if entry.size() > limit + 1 {
        return Err(scan.too_large(limit, "bytes in one name or extended header"));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(|error| scan.unreadable(&error))?;
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests;
