//! Somebody who answers at a control plane's address and is none: it shows what certificate it likes and says what it likes.

use std::{net::SocketAddr, sync::Arc};

use gpuaas_model::Timestamp;
use gpuaas_trust::{Authority, api_server_config};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// What it answers.
#[derive(Clone)]
pub(super) struct Stranger {
    /// The authority that it claims to be of, PEM.
    pub(super) claims: String,
    /// The date that it tells.
    pub(super) date: Timestamp,
}

pub(super) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("it fits"))
}

pub(super) fn authority() -> Authority {
    Authority::generate("cp-1", now()).expect("an authority")
}

impl Stranger {
    /// Answers at any free port of the loopback, by a certificate of `shows`, until the test ends.
    pub(super) async fn listen(self, shows: &Authority) -> SocketAddr {
        let (chain, key) = shows.issue_server(&["127.0.0.1".to_owned()], now()).expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(api_server_config(chain, key).expect("a configuration")));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, stranger) = (acceptor.clone(), self.clone());
                tokio::spawn(async move {
                    // Whoever does not trust it goes away.
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut asked = [0; 4_096];
                    let _ = stream.read(&mut asked).await;
                    let _ = stream.write_all(stranger.answer().as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        address
    }

    fn answer(&self) -> String {
        let date = jiff::Timestamp::from_millisecond(self.date.as_millis()).expect("a time");
        let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT");
        let (length, body) = (self.claims.len(), &self.claims);
        format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    }
}
