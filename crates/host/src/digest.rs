//! SHA-256 digests of file contents.

use std::{fmt, io, io::Read, str::FromStr};

use aws_lc_rs::digest::{Context, SHA256};
use camino::Utf8Path;

use crate::error::HostError;

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 * 1_024;

/// A SHA-256 digest; its text is 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sha256([u8; Self::BYTES]);

/// The required content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentId {
    /// The digest of the content.
    pub sha256: Sha256,
    /// The content's length; no more than this is read for the check.
    pub size_bytes: u64,
}

impl ContentId {
    /// Returns the id of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { sha256: Sha256::of(bytes), size_bytes: bytes.len() as u64 }
    }

    /// Refuses a file that has another length.
    pub(crate) fn check_size(self, path: &Utf8Path, size_bytes: u64) -> Result<(), HostError> {
        if size_bytes == self.size_bytes { Ok(()) } else { Err(self.mismatch(path, format!("{size_bytes} bytes"))) }
    }

    /// Refuses bytes that have another digest.
    pub(crate) fn check(self, path: &Utf8Path, found: Sha256) -> Result<(), HostError> {
        if found == self.sha256 { Ok(()) } else { Err(self.mismatch(path, format!("digest {found}"))) }
    }

    fn mismatch(self, path: &Utf8Path, found: String) -> HostError {
        let expected = format!("{} bytes with digest {}", self.size_bytes, self.sha256);
        HostError::ContentMismatch { path: path.to_owned(), found, expected }
    }
}

/// The text is not a SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid digest: expected 64 lower-case hex digits")]
pub struct ParseDigestError;

impl Sha256 {
    const BYTES: usize = 32;

    /// Returns the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(bytes);
        Self::from_context(context)
    }

    /// Returns the digest of everything that `from` still yields. Calls `check_cancelled` before each read, and stops with its error.
    pub(crate) fn of_reader<E: From<io::Error>>(
        mut from: impl Read,
        check_cancelled: impl Fn() -> Result<(), E>,
    ) -> Result<Self, E> {
        let (mut context, mut chunk) = (Context::new(&SHA256), vec![0; CHUNK_BYTES]);
        loop {
            check_cancelled()?;
            match from.read(&mut chunk)? {
                0 => return Ok(Self::from_context(context)),
                read => context.update(&chunk[..read]),
            }
        }
    }

    fn from_context(context: Context) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(context.finish().as_ref());
        Self(bytes)
    }
}

impl FromStr for Sha256 {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 2 * Self::BYTES || !text.bytes().all(lower) {
            return Err(ParseDigestError);
        }
        let mut bytes = [0; Self::BYTES];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| ParseDigestError)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn digest_is_parsed_and_printed_as_64_digits() {
        let digest: Sha256 = HELLO.parse().unwrap();
        assert_eq!(digest, Sha256::of(b"hello"));
        assert_eq!(Sha256::of_reader(&b"hello"[..], || Ok::<_, io::Error>(())).unwrap().to_string(), HELLO);
        for bad in ["", &HELLO[1..], &HELLO.to_uppercase(), &HELLO.replace('2', "ü")] {
            assert_eq!(bad.parse::<Sha256>(), Err(ParseDigestError), "{bad}");
        }
    }
}
