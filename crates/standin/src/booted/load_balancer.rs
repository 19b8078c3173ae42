//! The agent's load balancer: a loopback port that forwards each connection to the first server that accepts it.
//!
//! Kubelet and kube-proxy use only this port, so their configuration stays the same when a server or a registration address changes.
//! Names are resolved at every connection.

use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::{kubelet_api, log, tls};

/// Time after which a server that did not accept the connection is skipped.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Binds `port` on loopback and forwards its connections to `servers` (`host:port` each) in a task that lasts until the process ends.
pub(super) async fn serve(name: &str, port: u16, servers: Vec<String>) -> anyhow::Result<()> {
    let listener = kubelet_api::listen(std::net::Ipv4Addr::LOCALHOST.into(), port).await?;
    log::info!("Running load balancer {name} 127.0.0.1:{port} -> [{}]", servers.join(" "));
    tokio::spawn(accept(listener, servers));
    Ok(())
}

async fn accept(listener: TcpListener, servers: Vec<String>) {
    loop {
        let mut client = tls::accept(&listener).await;
        let servers = servers.clone();
        tokio::spawn(async move {
            if let Some(mut server) = connect(&servers).await {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                // An error of either side closes both connections.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// Connects to the first server that accepts.
async fn connect(servers: &[String]) -> Option<TcpStream> {
    for server in servers {
        if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(server.as_str())).await {
            return Some(stream);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn unreachable_server_is_skipped() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let answering = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let servers = vec![closed, answering.local_addr().unwrap().to_string()];
        tokio::spawn(async move {
            let (mut stream, _) = answering.accept().await.unwrap();
            stream.write_all(b"here").await.unwrap();
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, servers));
        let mut answer = String::new();
        TcpStream::connect(front).await.unwrap().read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "here");
    }
}
