//! Response bodies that are read in pieces.

use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::error::ClientError;

/// Longest piece, in bytes.
const PIECE_BYTES_MAX: usize = 1_024 * 1_024;

/// A body that is split at a separator.
pub(crate) struct Pieces {
    body: Incoming,
    buffer: Vec<u8>,
    separator: &'static [u8],
}

impl Pieces {
    pub(crate) fn new(body: Incoming, separator: &'static [u8]) -> Self {
        Self { body, buffer: Vec::new(), separator }
    }

    /// Returns the next piece with its separator; `None` at the end of the body. Bytes after the last separator are an incomplete piece and
    /// are dropped.
    pub(crate) async fn next(&mut self) -> Option<Result<Vec<u8>, ClientError>> {
        loop {
            let length = self.separator.len();
            if let Some(end) = self.buffer.windows(length).position(|window| window == self.separator) {
                return Some(Ok(self.buffer.drain(..end + length).collect()));
            }
            if self.buffer.len() > PIECE_BYTES_MAX {
                self.buffer.clear();
                return Some(Err(ClientError::InvalidResponse(
                    "an item of the stream is longer than 1 MiB".to_owned(),
                )));
            }
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref())),
                Err(error) => return Some(Err(ClientError::Interrupted(error.to_string()))),
            }
        }
    }
}
