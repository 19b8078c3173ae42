//! SHA-256 and constant-time comparison.

use std::io::{self, Write};

/// Returns the SHA-256 of `bytes` as 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes))
}

/// Returns true if `text` has the form of a digest from [`sha256_hex`].
pub fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Writer that forwards to another writer and computes the SHA-256.
pub struct Sha256Writer<W> {
    inner: W,
    digest: aws_lc_rs::digest::Context,
}

impl<W: Write> Sha256Writer<W> {
    /// Wraps `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, digest: aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256) }
    }

    /// Returns the inner writer and the SHA-256 of all bytes written, as 64 lower-case hex digits.
    pub fn finish(self) -> (W, String) {
        (self.inner, hex::encode(self.digest.finish()))
    }
}

impl<W: Write> Write for Sha256Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.inner.write(bytes)?;
        self.digest.update(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Compares byte strings in a time that does not reveal where they differ.
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(left, right).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_empty_input_is_correct() {
        assert_eq!(sha256_hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let mut writer = Sha256Writer::new(Vec::new());
        writer.write_all(b"he").unwrap();
        writer.write_all(b"llo").unwrap();
        assert_eq!(writer.finish(), (b"hello".to_vec(), sha256_hex(b"hello")));
    }
}
