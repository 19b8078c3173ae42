//! The kubelet's port: refuses whoever shows no certificate of the cluster, and answers `/healthz` to the others.
//!
//! Deliberately absent: exec, logs, metrics. There are no pods to ask about.

use std::net::IpAddr;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::StatusCode;
use tokio::net::TcpListener;

use crate::identity::Identity;
use crate::settings::KUBELET_PORT;
use crate::tls::{self, PeerCertificates};

/// Takes the port; the error names it as the real program would.
pub(crate) async fn listen(address: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, port)).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!("listen tcp {address}:{port}: bind: address already in use"),
        _ => anyhow::anyhow!("listen tcp {address}:{port}: {error}"),
    })
}

/// Serves until the process ends.
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
