//! SHA-256 digests as 64 lower-case hex digits.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
};

use aws_lc_rs::digest::{Context, SHA256};

/// Size of one read, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;

/// An incremental SHA-256.
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> String {
        hex::encode(self.0.finish())
    }
}

/// Returns the digest of a text.
pub(crate) fn of_text(text: &str) -> String {
    of_bytes(text.as_bytes())
}

/// Returns the digest of bytes.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finish()
}

/// Returns digest and length of a whole file. Blocks.
pub(crate) fn of_file(mut file: &File) -> io::Result<(String, u64)> {
    file.rewind()?;
    let (mut hasher, mut length, mut chunk) = (Hasher::new(), 0_u64, vec![0; CHUNK_BYTES]);
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok((hasher.finish(), length));
        }
        hasher.update(&chunk[..read]);
        length += read as u64;
    }
}

/// Returns whether the text is a digest in this form, and so can be a key of the store.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
