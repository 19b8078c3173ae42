//! An impostor at a control plane's address: a TLS server with a certificate and answers of the test's choice.

use std::{net::SocketAddr, sync::Arc};

use gpuaas_model::Timestamp;
use gpuaas_trust::{Authority, OldestTls, ReloadableCertificate, api_server_config};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// The answer that the impostor gives to every request.
#[derive(Clone)]
pub(super) struct Impostor {
    status: &'static str,
    body: String,
    date: Timestamp,
    is_endless: bool,
}

pub(super) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("it fits"))
}

pub(super) fn authority() -> Authority {
    Authority::generate("cp-1", now()).expect("an authority")
}

impl Impostor {
    /// Answers every request with this authority (PEM).
    pub(super) fn claiming(authority: &str) -> Self {
        Self { status: "200 OK", body: authority.to_owned(), date: now(), is_endless: false }
    }

    /// Answers with this status and body.
    pub(super) fn refusing(status: &'static str, body: &str) -> Self {
        Self { status, ..Self::claiming(body) }
    }

    /// Repeats this body without end.
    pub(super) fn endless(body: &str) -> Self {
        Self { is_endless: true, ..Self::claiming(body) }
    }

    /// Sets the `Date` header.
    pub(super) fn at(self, date: Timestamp) -> Self {
        Self { date, ..self }
    }

    /// Listens on a free loopback port with a certificate that `shows` issued, until the test ends. Returns the address.
    pub(super) async fn listen(self, shows: &Authority) -> SocketAddr {
        let (chain, key) = shows.issue_server(&["127.0.0.1".to_owned()], now()).expect("a certificate");
        let mut config =
            api_server_config(ReloadableCertificate::new(chain, key).expect("a certificate"), OldestTls::default())
                .expect("a configuration");
        // The server implements HTTP/1.1 only.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, impostor) = (acceptor.clone(), self.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate disconnects.
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut asked = [0; 4_096];
                    let _ = stream.read(&mut asked).await;
                    let _ = stream.write_all(impostor.answer().as_bytes()).await;
                    // Until the client closes the connection.
                    while impostor.is_endless && stream.write_all(impostor.body.as_bytes()).await.is_ok() {}
                    let _ = stream.shutdown().await;
                });
            }
        });
        address
    }

    fn answer(&self) -> String {
        let date = jiff::Timestamp::from_millisecond(self.date.as_millis()).expect("a time");
        let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT");
        let Self { status, body, .. } = self;
        let length = if self.is_endless { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        format!("HTTP/1.1 {status}\r\nDate: {date}\r\n{length}Connection: close\r\n\r\n{body}")
    }
}
