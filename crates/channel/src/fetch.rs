//! Answers what nodes ask for: artifacts, secrets, renewal. Each only ever gets what belongs to its own tasks, and may ask for as long as it
//! may connect: that is looked up again for every request.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt;
use gpuaas_model::Code;
use gpuaas_wire::session::{BODY_BYTES_MAX, Refusal, RenewRequest, RenewResponse, SECRET_BYTES_MAX, path};
use http::{Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::{io::ReaderStream, sync::CancellationToken};
use zeroize::Zeroizing;

use crate::backend::{Admission, ChannelBackend, FetchError, Presented};

/// Requests of one connection at once.
const REQUESTS_MAX: u32 = 8;
/// Bytes of an artifact read at once.
const CHUNK_BYTES: usize = 64 * 1_024;

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

struct Fetch {
    backend: Arc<dyn ChannelBackend>,
    presented: Presented,
}

/// Serves one connection until it ends or `end` is cancelled.
pub(crate) async fn serve<S>(backend: Arc<dyn ChannelBackend>, presented: Presented, stream: S, end: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let node = presented.identity.node;
    let fetch = Arc::new(Fetch { backend, presented });
    let service = service_fn(move |request| {
        let fetch = fetch.clone();
        async move { Ok::<_, Infallible>(fetch.answer(request).await) }
    });
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(REQUESTS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = end.cancelled() => {}
        served = serving => if let Err(error) = served {
            tracing::debug!(%node, %error, "a fetch connection broke");
        }
    }
}

impl Fetch {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (method, target) = (request.method().clone(), request.uri().path().to_owned());
        let admission = match self.backend.admit(&self.presented).await {
            Ok(admission) => admission,
            Err(why) => return refused(StatusCode::FORBIDDEN, why.code, &why.message),
        };
        if method == Method::POST && target == path::RENEW {
            return self.renew(request).await;
        }
        if admission == Admission::RenewalOnly {
            let message = "the certificate has expired: it may be renewed, and does nothing else";
            return refused(StatusCode::FORBIDDEN, Code::CertificateExpired, message);
        }
        if let (&Method::GET, Some(sha256)) = (&method, target.strip_prefix(path::ARTIFACTS)) {
            return self.artifact(sha256, offset(&request)).await;
        }
        if let Some(secret) = target.strip_prefix(path::SECRETS) {
            return match (method, secret.parse()) {
                (Method::GET, Ok(secret)) => match self.backend.read_secret(self.presented.identity.node, secret).await
                {
                    Ok(bytes) => plain(StatusCode::OK, Bytes::copy_from_slice(&bytes)),
                    Err(error) => self.failed(&target, error),
                },
                (Method::PUT, Ok(secret)) => self.deposit(secret, request).await,
                _ => not_found(),
            };
        }
        not_found()
    }

    async fn artifact(&self, sha256: &str, offset: Option<u64>) -> Answer {
        match self.backend.artifact(self.presented.identity.node, sha256, offset.unwrap_or(0)).await {
            Ok(artifact) => {
                let bytes = ReaderStream::with_capacity(artifact.bytes, CHUNK_BYTES).map_ok(Frame::data);
                let mut response = Response::new(StreamBody::new(bytes).boxed_unsync());
                if let Some(offset) = offset {
                    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                    let last = artifact.size_bytes.saturating_sub(1);
                    let range = format!("bytes {offset}-{last}/{}", artifact.size_bytes);
                    if let Ok(range) = range.parse() {
                        response.headers_mut().insert(header::CONTENT_RANGE, range);
                    }
                }
                response
            }
            Err(error) => self.failed(sha256, error),
        }
    }

    async fn deposit(&self, secret: gpuaas_model::SecretId, request: Request<Incoming>) -> Answer {
        match Limited::new(request.into_body(), SECRET_BYTES_MAX).collect().await {
            Ok(bytes) => {
                let bytes = Zeroizing::new(bytes.to_bytes().to_vec());
                match self.backend.deposit_secret(self.presented.identity.node, secret, bytes).await {
                    Ok(()) => plain(StatusCode::NO_CONTENT, Bytes::new()),
                    Err(error) => self.failed("a deposit", error),
                }
            }
            Err(_) => refused(StatusCode::PAYLOAD_TOO_LARGE, Code::BodyTooLarge, "a secret is at most 64 KiB long"),
        }
    }

    async fn renew(&self, request: Request<Incoming>) -> Answer {
        let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return refused(StatusCode::PAYLOAD_TOO_LARGE, Code::BodyTooLarge, "the request is too long"),
        };
        let Ok(ask) = serde_json::from_slice::<RenewRequest>(&body) else {
            return refused(StatusCode::BAD_REQUEST, Code::BodyInvalid, "that is no renewal request");
        };
        match self.backend.renew(&self.presented, &ask).await {
            Ok(certificate) => match serde_json::to_vec(&RenewResponse { certificate }) {
                Ok(body) => plain(StatusCode::OK, Bytes::from(body)),
                Err(error) => self.failed("a renewal", FetchError::Internal(error.to_string())),
            },
            Err(why) => refused(StatusCode::FORBIDDEN, why.code, &why.message),
        }
    }

    fn failed(&self, what: &str, error: FetchError) -> Answer {
        match error {
            FetchError::NotFound => not_found(),
            FetchError::Internal(why) => {
                tracing::error!(node = %self.presented.identity.node, what, why, "a node did not get what it asked for");
                refused(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, "the control plane failed")
            }
        }
    }
}

/// The start of a `Range: bytes=N-` header; other forms are answered with the whole.
fn offset(request: &Request<Incoming>) -> Option<u64> {
    let range = request.headers().get(header::RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

fn plain(status: StatusCode, bytes: Bytes) -> Answer {
    let mut response = Response::new(Full::new(bytes).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn refused(status: StatusCode, code: Code, message: &str) -> Answer {
    let refusal = Refusal { code, message: message.to_owned() };
    plain(status, Bytes::from(serde_json::to_vec(&refusal).unwrap_or_default()))
}

fn not_found() -> Answer {
    refused(StatusCode::NOT_FOUND, Code::NotFound, "there is no such thing for this node")
}
