//! Connects a stream of the control plane to an allowlisted port of the node's own address.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::TryStreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, tcp::OwnedWriteHalf},
};
use tokio_util::io::ReaderStream;

/// Connects, and returns the port's output as a body; the request's body is copied to the port.
pub(crate) async fn open(
    address: SocketAddr,
    from_control_plane: Incoming,
) -> std::io::Result<impl http_body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    tokio::spawn(pump(from_control_plane, write));
    Ok(StreamBody::new(ReaderStream::new(read).map_ok(Frame::data)))
}

async fn pump(mut from: Incoming, mut to: OwnedWriteHalf) {
    while let Some(Ok(frame)) = from.frame().await {
        let Ok(data): Result<Bytes, _> = frame.into_data() else { continue };
        if to.write_all(&data).await.is_err() {
            return;
        }
    }
    // The control plane sends no more data; the port may still answer.
    let _ = to.shutdown().await;
}
