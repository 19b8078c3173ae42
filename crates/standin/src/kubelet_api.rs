//! The kubelet's port: requires a client certificate of the cluster and serves `/healthz`.
//!
//! Deliberately absent: exec, logs, metrics. The pods of a sandbox node have no containers.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::StatusCode;
use tokio::net::TcpListener;

use crate::identity::Identity;
use crate::log;
use crate::settings::KUBELET_PORT;
use crate::tls::{self, PeerCertificates};

/// Binds the port; the error has the text of Go's `net.Listen`.
pub(crate) async fn listen(address: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    let at = SocketAddr::new(address, port);
    TcpListener::bind(at).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!("listen tcp {at}: bind: address already in use"),
        _ => anyhow::anyhow!("listen tcp {at}: {error}"),
    })
}

/// Listens on the port at every address. Only a failure at the first address is an error; others are logged.
pub(crate) async fn listen_on(addresses: &[IpAddr], port: u16) -> anyhow::Result<Vec<TcpListener>> {
    let (first, others) = addresses.split_first().context("no address to listen on")?;
    let mut listeners = vec![listen(*first, port).await?];
    for address in others {
        match listen(*address, port).await {
            Ok(listener) => listeners.push(listener),
            // For example ::1 on a machine without IPv6. RKE2 logs it at debug level and continues.
            Err(error) => log::info!("Failed to listen on {address}: {error}"),
        }
    }
    Ok(listeners)
}

/// Binds the kubelet's port and serves it in a task that lasts until the process ends.
pub(crate) async fn start(node: &Identity) -> anyhow::Result<()> {
    let listener = listen(node.address, KUBELET_PORT).await?;
    let tls = tls::server_config(&node.serving, &node.client_ca).context("kubelet certificate")?;
    let app = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "404 page not found") })
        .layer(middleware::from_fn(authenticate));
    tokio::spawn(tls::serve(listener, tls, app));
    Ok(())
}

async fn authenticate(request: Request, next: Next) -> Response {
    let certified = request.extensions().get::<PeerCertificates>().is_some_and(|peer| !peer.0.is_empty());
    if certified { next.run(request).await } else { (StatusCode::UNAUTHORIZED, "Unauthorized").into_response() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listens_at_every_address_and_requires_only_the_first() {
        let [first, second, absent]: [IpAddr; 3] =
            ["127.71.3.1", "127.71.3.2", "192.0.2.1"].map(|text| text.parse().unwrap());
        // A port that is free at the first address; another process is unlikely to bind it at the second address before the test does.
        let port = listen(first, 0).await.unwrap().local_addr().unwrap().port();
        let listeners = listen_on(&[first, absent, second], port).await.unwrap();
        assert_eq!(listeners.len(), 2);
        for address in [first, second] {
            assert!(tokio::net::TcpStream::connect((address, port)).await.is_ok(), "{address}");
        }
        assert!(listen_on(&[absent, second], 0).await.is_err(), "the first address is required");
    }
}
