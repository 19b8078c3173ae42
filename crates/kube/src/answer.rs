//! Reading answers of a machine that belongs to a tenant: bounded in bytes and in time.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;

use crate::error::KubeError;

/// Longest answer. Lists of a few thousand nodes fit; a watch that exceeds it is opened anew.
pub const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Longest wait for the answer to anything but a watch. With etcd frozen, lists hang for 20 s and more (measured at 1.36.3).
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Waits for `answer`, but not for ever.
pub(crate) async fn in_time<T, E: Into<KubeError>>(answer: impl Future<Output = Result<T, E>>) -> Result<T, KubeError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(KubeError::Silent { seconds: REQUEST_TIMEOUT.as_secs() }),
    }
}

/// Sends a request and reads the whole answer, whatever its status.
///
/// For answers that must not pass through the client library, which logs a body that it cannot read: tokens, for example.
pub(crate) async fn raw(client: &kube::Client, request: Request<Vec<u8>>) -> Result<(StatusCode, Bytes), KubeError> {
    in_time(async {
        let response = client.send(request.map(Body::from)).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok::<_, kube::Error>((status, body))
    })
    .await
}

/// A request without a body.
pub(crate) fn get(path: &str) -> Request<Vec<u8>> {
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = path.parse().expect("paths here are constants");
    request
}
