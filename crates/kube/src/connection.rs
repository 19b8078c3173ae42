//! An HTTP/1.1 connection to an apiserver, with one request in progress at a time.

use std::{future::Future, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode, header::CONTENT_ENCODING, response::Parts};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Body as _, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{sync::watch, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    dial::Dialer,
    error::KubeError,
    limits::{HEAD_BYTES_MAX, HEADERS_MAX, IDLE_MAX, WATCH_SILENCE_MAX, wire_bytes_max},
    metered::Allowance,
};

/// A connection. It closes when it is dropped, and after [`IDLE_MAX`] without use.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    allowance: Allowance,
    is_used: watch::Sender<bool>,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    /// Dials and starts HTTP.
    pub(crate) async fn open(dialer: &Dialer) -> Result<Self, KubeError> {
        let (stream, allowance) = dialer.dial().await?;
        let (sender, connection) = http1::Builder::new()
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await?;
        let (is_used, used) = watch::channel(true);
        let driver = tokio::spawn(async move {
            tokio::select! {
                // The request in progress gets the error of a broken connection.
                _ = connection => {}
                () = wait_until_idle(used, IDLE_MAX) => {}
            }
        });
        Ok(Self { sender, allowance, is_used, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Returns true if another request can be sent: the peer left the connection open after its last answer.
    pub(crate) async fn is_usable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Marks the connection as unused from now on.
    pub(crate) fn mark_idle(&self) {
        self.is_used.send_replace(false);
    }

    /// Sends a request and reads its whole answer of any status, up to `bytes_max`.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<(Parts, Bytes), KubeError> {
        let response = self.send(request, wire_bytes_max(bytes_max)).await?;
        let (head, mut body) = response.into_parts();
        if body.size_hint().lower() > bytes_max as u64 {
            return Err(KubeError::TooLong { bytes_max });
        }
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Ok(piece) = frame?.into_data() {
                if read.len() + piece.len() > bytes_max {
                    return Err(KubeError::TooLong { bytes_max });
                }
                read.extend_from_slice(&piece);
            }
        }
        Ok((head, read.freeze()))
    }

    /// Sends a request whose answer has a line for each event, and at most `stream_bytes_max` in all; the connection is not used for
    /// anything else.
    pub(crate) async fn watch(
        mut self,
        request: Request<Full<Bytes>>,
        stream_bytes_max: usize,
    ) -> Result<(StatusCode, Lines), KubeError> {
        let response = self.send(request, stream_bytes_max).await?;
        let status = response.status();
        let lines = Lines { body: response.into_body(), read: BytesMut::new(), searched: 0, _connection: self };
        Ok((status, lines))
    }

    async fn send(&mut self, request: Request<Full<Bytes>>, allowed: usize) -> Result<Response<Incoming>, KubeError> {
        self.is_used.send_replace(true);
        self.allowance.set(allowed);
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        check_uncompressed(response.headers())?;
        Ok(response)
    }
}

/// Refuses encoded answers: none was requested, and ten compressed bytes can expand to a million.
fn check_uncompressed(headers: &HeaderMap) -> Result<(), KubeError> {
    match headers.get(CONTENT_ENCODING) {
        None => Ok(()),
        Some(encoding) if encoding == "identity" => Ok(()),
        Some(_) => Err(KubeError::Unreadable("the response is compressed, which was not requested".to_owned())),
    }
}

/// Returns when the connection has been unused for `limit`.
async fn wait_until_idle(mut used: watch::Receiver<bool>, limit: Duration) {
    // The sender is a part of the connection; dropping it aborts this task.
    while used.wait_for(|is_used| !is_used).await.is_ok() {
        tokio::select! {
            biased;
            _ = used.changed() => {}
            () = tokio::time::sleep(limit) => return,
        }
    }
}

/// An answer that is read line by line, with a limit for each line.
pub(crate) struct Lines {
    body: Incoming,
    read: BytesMut,
    /// Length of the part of `read` that is known to contain no newline.
    searched: usize,
    _connection: Connection,
}

impl Lines {
    /// Returns the next line that is not blank; `None` at the end of the answer.
    pub(crate) async fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, KubeError> {
        // Thousands of lines can be buffered: lets other tasks run in between.
        tokio::task::coop::consume_budget().await;
        loop {
            while let Some(end) = self.read[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(self.searched + end + 1).freeze();
                self.searched = 0;
                if !line.trim_ascii().is_empty() {
                    return Ok(Some(line));
                }
            }
            self.searched = self.read.len();
            if self.searched > bytes_max {
                return Err(KubeError::Unreadable(format!("an event is longer than {bytes_max} bytes")));
            }
            let Some(frame) = with_timeout(WATCH_SILENCE_MAX, self.body.frame()).await? else { return Ok(None) };
            if let Ok(piece) = frame?.into_data() {
                self.read.extend_from_slice(&piece);
            }
        }
    }
}

/// Waits for a future, for at most `limit`.
pub(crate) async fn with_timeout<T>(limit: Duration, done: impl Future<Output = T>) -> Result<T, KubeError> {
    timeout(limit, done).await.map_err(|_| KubeError::TimedOut { seconds: limit.as_secs() })
}
