//! Accepts connections.

use std::{net::SocketAddr, time::Duration};

use tokio::net::{TcpListener, TcpStream};

/// Wait after a failure, which is most likely a lack of file descriptors: until some of those in use are closed.
const RETRY: Duration = Duration::from_millis(100);

/// Returns the next connection. A failure to accept one is logged and ends nothing.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                let at = listener.local_addr().map_or_else(|_| "a listener".to_owned(), |at| at.to_string());
                tracing::warn!(%at, %error, "a connection could not be accepted");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
