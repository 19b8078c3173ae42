//! The journal's export format: entries of fields, whose values can have any bytes and any length.
//!
//! A text field is `NAME=value` and a newline. A field whose value contains a newline or is not text is `NAME`, a newline, the length in 8
//! bytes (little endian), the value and a newline. An empty line ends an entry.
//!
//! Guarantees: at most the first [`VALUE_BYTES_MAX`] bytes of a value are in memory. Absent: every field that a [`JournalLine`] does not
//! need.

use std::io;

use gpuaas_model::Timestamp;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::journal::{Cursor, JournalLine};

/// Bytes kept of a value: the longest text of a line, and one byte more to detect a longer one.
const VALUE_BYTES_MAX: usize = JournalLine::TEXT_BYTES_MAX + 1;

/// Returns the next line; `None` at the end. Skips entries without a message.
pub(super) async fn next_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<JournalLine>> {
    let mut entry = Entry::default();
    loop {
        let name = Piece::read(from, b"=\n").await?;
        match name.end {
            None => return Ok(None),
            Some(b'\n') if name.length == 0 => {
                if let Some(line) = std::mem::take(&mut entry).line() {
                    return Ok(Some(line));
                }
            }
            Some(b'=') => entry.take(&name.start, Piece::read(from, b"\n").await?),
            Some(_) => entry.take(&name.start, read_counted(from).await?),
        }
    }
}

/// The fields of an entry that make a line.
#[derive(Default)]
struct Entry {
    cursor: Option<Cursor>,
    at: Option<Timestamp>,
    text: Option<String>,
}

impl Entry {
    fn take(&mut self, name: &[u8], value: Piece) {
        let text = || String::from_utf8_lossy(&value.start).into_owned();
        match name {
            b"__CURSOR" => self.cursor = Some(Cursor::new(text())),
            b"__REALTIME_TIMESTAMP" => {
                self.at = text().parse::<i64>().ok().map(|micros| Timestamp::from_millis(micros / 1_000));
            }
            // A field can occur twice; the first counts.
            b"MESSAGE" if self.text.is_none() => self.text = Some(JournalLine::bounded(&value.start, value.length)),
            _ => {}
        }
    }

    fn line(self) -> Option<JournalLine> {
        Some(JournalLine { cursor: self.cursor?, at: self.at?, text: self.text? })
    }
}

/// The beginning of a part of the stream, the part's length, and the byte that ended it.
struct Piece {
    start: Vec<u8>,
    length: usize,
    end: Option<u8>,
}

impl Piece {
    /// Reads up to and including one of these bytes.
    async fn read(from: &mut (impl AsyncBufRead + Unpin), ends: &[u8]) -> io::Result<Self> {
        let mut piece = Self { start: Vec::new(), length: 0, end: None };
        loop {
            let bytes = from.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(piece);
            }
            let end = bytes.iter().position(|byte| ends.contains(byte));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            piece.push(part);
            piece.end = end.map(|at| bytes[at]);
            let used = part.len() + usize::from(end.is_some());
            from.consume(used);
            if end.is_some() {
                return Ok(piece);
            }
        }
    }

    fn push(&mut self, part: &[u8]) {
        self.length += part.len();
        self.start.extend(part.iter().take(VALUE_BYTES_MAX - self.start.len()));
    }
}

/// Reads a value with its length prefix and the newline after it.
async fn read_counted(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Piece> {
    let mut left = from.read_u64_le().await?;
    let mut piece = Piece { start: Vec::new(), length: 0, end: None };
    while left > 0 {
        let bytes = from.fill_buf().await?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        piece.push(&bytes[..part]);
        from.consume(part);
        left -= part as u64;
    }
    from.read_u8().await?;
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(bytes: &[u8]) -> Vec<JournalLine> {
        // A buffer of seven bytes: no field fits into one read.
        let mut from = tokio::io::BufReader::with_capacity(7, bytes);
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut from).await.unwrap() {
            lines.push(line);
        }
        lines
    }

    fn entry(message: &[u8]) -> Vec<u8> {
        let head: &[u8] = b"__CURSOR=s=1;i=2\n__REALTIME_TIMESTAMP=1700000000123456\n_BOOT_ID=b\n";
        [head, message, b"\n\n"].concat()
    }

    #[tokio::test]
    async fn text_and_counted_bytes_are_read() {
        let counted = [b"MESSAGE\n\x06\0\0\0\0\0\0\0two\n=\xff".as_slice()].concat();
        let lines_read = lines(&[entry(b"MESSAGE=one = 1"), entry(&counted), entry(b"MESSAGE=three")].concat()).await;
        let texts: Vec<&str> = lines_read.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["one = 1", "two\n=\u{fffd}", "three"]);
        assert_eq!((lines_read[0].cursor.as_str(), lines_read[0].at.as_millis()), ("s=1;i=2", 1_700_000_000_123));
    }

    #[tokio::test]
    async fn long_value_is_truncated_and_the_next_entry_is_read() {
        let long = "x".repeat(100_000);
        let counted = [b"MESSAGE\n".as_slice(), &100_000_u64.to_le_bytes(), long.as_bytes()].concat();
        let lines_read =
            lines(&[entry(format!("MESSAGE={long}").as_bytes()), entry(&counted), entry(b"MESSAGE=next")].concat())
                .await;
        for line in &lines_read[..2] {
            assert!(
                line.text.len() <= JournalLine::TEXT_BYTES_MAX
                    && line.text.ends_with("[cut; the line has 100000 bytes]")
            );
        }
        assert_eq!(lines_read[2].text, "next");
    }

    #[tokio::test]
    async fn entries_without_message_or_end_are_not_lines() {
        let lines_read =
            lines(&[entry(b"COREDUMP=1"), entry(b"MESSAGE=whole"), b"__CURSOR=s=3\nMESSAGE=half".to_vec()].concat())
                .await;
        assert_eq!(lines_read.len(), 1);
        let mut broken = &b"MESSAGE\n\x06\0\0\0\0\0\0\0tw"[..];
        assert!(next_line(&mut broken).await.is_err());
    }
}
