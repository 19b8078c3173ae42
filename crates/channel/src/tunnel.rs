//! A byte stream to a port of a node.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::TryStreamExt;
use gpuaas_wire::session::{TUNNEL_PORT_HEADER, path};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_util::{io::ReaderStream, sync::DropGuard};

use crate::{error::ChannelError, link::Link};

/// Bytes that are buffered in each direction before the writer blocks.
const BUFFER_BYTES: usize = 64 * 1_024;

/// A stream to a port of a node. Dropping it ends its connection.
pub struct TunnelIo {
    near: DuplexStream,
    _connection: DropGuard,
}

impl TunnelIo {
    pub(crate) async fn open(link: Link, port: u16) -> Result<Self, ChannelError> {
        let connection = link.ended.clone().drop_guard();
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        let (outgoing, incoming) = tokio::io::split(far);
        let body = StreamBody::new(ReaderStream::new(outgoing).map_ok(Frame::data)).boxed_unsync();
        let headers = HeaderMap::from_iter([(HeaderName::from_static(TUNNEL_PORT_HEADER), HeaderValue::from(port))]);
        let response = link.request(Method::POST, path::TUNNEL, headers, body).await?;
        tokio::spawn(pump(response.into_body(), incoming));
        Ok(Self { near, _connection: connection })
    }
}

async fn pump(mut body: Incoming, mut to: impl AsyncWrite + Unpin) {
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data): Result<Bytes, _> = frame.into_data() else { continue };
        if to.write_all(&data).await.is_err() {
            return;
        }
    }
    // The far side has ended, so this side is closed. An error means that the reader is dropped already.
    let _ = to.shutdown().await;
}

impl AsyncRead for TunnelIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.near).poll_read(cx, buf)
    }
}

impl AsyncWrite for TunnelIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.near).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.near).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.near).poll_shutdown(cx)
    }
}
