//! The high-water mark: the number of commits that this process has acknowledged, in a file next to the store.
//!
//! The file has two slots with a checksum each, written alternately and in place, so a torn write leaves the other slot
//! intact. An older mark is still true, because its number only grows.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use gpuaas_model::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One sector, which a disk writes as a whole.
const SLOT_BYTES: usize = 512;
/// Offsets of the slots, in different pages of the file.
const SLOTS: [u64; 2] = [0, 4_096];
/// Length of the file.
const FILE_BYTES: u64 = SLOTS[1] + SLOT_BYTES as u64;
/// Version of the slot format.
const FORMAT: u32 = 1;

/// The newest acknowledged point of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    format: u32,
    /// Identifies the number in the store that belongs to this mark.
    pub id: Uuid,
    /// The control plane's id.
    pub control_plane: String,
    /// The generation of the history. Restoring a backup or accepting a history that went back begins the next one.
    pub generation: u64,
    /// The number of commits that this process has acknowledged.
    pub number: u64,
    /// The number of the last audit record at that commit.
    pub audit: u64,
    /// The time of the last acknowledged commit.
    pub at: Timestamp,
}

/// The result of opening a mark's file.
#[derive(Debug)]
pub enum FoundMark {
    /// The file does not exist.
    Absent,
    /// The file holds no valid mark; the text is the reason.
    Damaged(String),
    /// The file holds a mark.
    Valid(MarkFile),
}

/// An open file with its newest mark.
#[derive(Debug)]
pub struct MarkFile {
    file: Arc<File>,
    mark: Mark,
    /// The slot that holds the newest mark.
    slot: usize,
}

impl Mark {
    /// Returns a new mark with no acknowledged commit.
    pub fn fresh(control_plane: String, generation: u64, audit: u64, at: Timestamp) -> Self {
        Self { format: FORMAT, id: Uuid::new_v4(), control_plane, generation, number: 0, audit, at }
    }
}

impl MarkFile {
    /// Creates the file (mode 0600) with this mark and replaces an existing one. The file is durable when this returns.
    pub fn create(path: &Path, mark: Mark) -> io::Result<Self> {
        let draft = path.with_extension("draft");
        match std::fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&draft)?;
        // Allocates all blocks now, so that no later write needs disk space.
        file.write_all(&vec![b' '; FILE_BYTES as usize])?;
        let made = Self { file: Arc::new(file), mark, slot: 0 };
        for slot in SLOTS {
            made.file.write_all_at(&encoded(&made.mark)?, slot)?;
        }
        made.file.sync_all()?;
        std::fs::rename(&draft, path)?;
        let folder = path.parent().ok_or_else(|| io::Error::other("the path of the mark has no parent folder"))?;
        File::open(folder)?.sync_all()?;
        Ok(made)
    }

    /// Opens the file and reads its newest valid mark.
    pub fn open(path: &Path) -> io::Result<FoundMark> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(FoundMark::Absent),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        io::Read::by_ref(&mut file).take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != FILE_BYTES {
            let why = format!("it has {} bytes instead of {FILE_BYTES}", file.metadata()?.len());
            return Ok(FoundMark::Damaged(why));
        }
        let read = SLOTS.map(|at| decoded(&bytes[at as usize..at as usize + SLOT_BYTES]));
        let newest = read.into_iter().enumerate().filter_map(|(slot, mark)| Some((slot, mark?)));
        Ok(match newest.max_by_key(|(_, mark)| mark.number) {
            Some((slot, mark)) => FoundMark::Valid(Self { file: Arc::new(file), mark, slot }),
            None => FoundMark::Damaged("the checksums of both its entries are wrong".to_owned()),
        })
    }

    /// Returns the newest mark.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Raises the mark. It is durable only after a [`File::sync_data`] of its file.
    pub(crate) fn raise(&mut self, number: u64, audit: u64, at: Timestamp) -> io::Result<()> {
        let raised = Mark { number, audit, at, ..self.mark.clone() };
        let slot = 1 - self.slot;
        self.file.write_all_at(&encoded(&raised)?, SLOTS[slot])?;
        (self.mark, self.slot) = (raised, slot);
        Ok(())
    }

    pub(crate) fn file(&self) -> Arc<File> {
        self.file.clone()
    }
}

/// Encodes a slot: a checksum of the rest, and the mark as a line of JSON.
fn encoded(mark: &Mark) -> io::Result<[u8; SLOT_BYTES]> {
    let json = serde_json::to_string(mark)?;
    let mut body = format!(" {json:<width$}", width = SLOT_BYTES - 10);
    body.push('\n');
    let slot = format!("{:08x}{body}", crc32fast::hash(body.as_bytes()));
    slot.into_bytes().try_into().map_err(|_| io::Error::other("the mark is too long"))
}

fn decoded(slot: &[u8]) -> Option<Mark> {
    let (sum, body) = slot.split_at_checked(8)?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if sum != crc32fast::hash(body) {
        return None;
    }
    serde_json::from_slice::<Mark>(body).ok().filter(|mark| mark.format == FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Mark {
        Mark::fresh("0198c0de-7a3b-7c11-9b54-0242ac120002".to_owned(), 3, 7, Timestamp::from_millis(1_790_000_000_000))
    }

    fn found(path: &Path) -> Option<Mark> {
        match MarkFile::open(path).unwrap() {
            FoundMark::Valid(file) => Some(file.mark().clone()),
            FoundMark::Absent | FoundMark::Damaged(_) => None,
        }
    }

    #[test]
    fn mark_survives_reopening_after_every_raise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.mark");
        assert!(matches!(MarkFile::open(&path).unwrap(), FoundMark::Absent));
        let mut file = MarkFile::create(&path, fresh()).unwrap();
        let id = file.mark().id;
        for number in 1..=5 {
            file.raise(number, number * 2, Timestamp::from_millis(number as i64)).unwrap();
            assert_eq!(found(&path), Some(file.mark().clone()));
            let FoundMark::Valid(again) = MarkFile::open(&path).unwrap() else { panic!("no mark") };
            file = again;
        }
        assert_eq!((file.mark().id, file.mark().number, file.mark().audit), (id, 5, 10));
        assert_eq!(path.metadata().unwrap().len(), FILE_BYTES);
    }

    #[test]
    fn torn_write_leaves_the_previous_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.mark");
        let mut file = MarkFile::create(&path, fresh()).unwrap();
        file.raise(1, 8, Timestamp::from_millis(1)).unwrap();
        let before = std::fs::read(&path).unwrap();
        file.raise(2, 9, Timestamp::from_millis(2)).unwrap();
        let after = std::fs::read(&path).unwrap();
        let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        for last in &changed[..changed.len() - 1] {
            let torn: Vec<u8> = (0..before.len()).map(|at| if at <= *last { after[at] } else { before[at] }).collect();
            std::fs::write(&path, torn).unwrap();
            assert_eq!(found(&path).map(|mark| mark.number), Some(1), "torn after byte {last}");
        }
        std::fs::write(&path, &after).unwrap();
        assert_eq!(found(&path).map(|mark| mark.number), Some(2));
    }

    #[test]
    fn damaged_file_is_detected_and_a_flipped_bit_never_changes_the_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.mark");
        let mut file = MarkFile::create(&path, fresh()).unwrap();
        file.raise(1, 8, Timestamp::from_millis(1)).unwrap();
        let (intact, marks) = (std::fs::read(&path).unwrap(), [fresh().number, 1]);
        let damaged = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            matches!(MarkFile::open(&path).unwrap(), FoundMark::Damaged(_))
        };
        for length in [0, 1, 511, 512, 4_096, intact.len() - 1] {
            assert!(damaged(&intact[..length]), "cut to {length}");
        }
        assert!(damaged(&vec![0; intact.len()]) && damaged(&[&intact[..], b" "].concat()));
        for at in (0..SLOT_BYTES).chain(SLOTS[1] as usize..intact.len()) {
            for bit in 0..8 {
                let mut flipped = intact.clone();
                flipped[at] ^= 1 << bit;
                std::fs::write(&path, &flipped).unwrap();
                let mark = found(&path).expect("the other slot is intact");
                assert!(marks.contains(&mark.number) && mark.control_plane == fresh().control_plane, "{at} {bit}");
            }
        }
    }
}
