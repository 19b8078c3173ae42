//! Answers nodes' requests for artifacts, secrets and certificate renewal. A node receives only artifacts and secrets of its own tasks;
//! admission is checked again for every request.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt;
use gpuaas_model::Code;
use gpuaas_wire::session::{BODY_BYTES_MAX, Refusal, RenewRequest, RenewResponse, SECRET_BYTES_MAX, path};
use http::{Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::{io::ReaderStream, sync::CancellationToken};
use zeroize::Zeroizing;

use crate::{
    backend::{Admission, ChannelBackend, FetchError, PresentedCertificate},
    channel::Shared,
    connections::ConnectionPermit,
    idle::Idle,
};

/// Concurrent requests per connection; an agent sends one at a time.
const REQUESTS_MAX: u32 = 4;
/// Size of one read from an artifact, in bytes.
const CHUNK_BYTES: usize = 64 * 1_024;
/// Bytes of one response that are buffered until the node takes them.
const SEND_BUFFER_BYTES_MAX: usize = 64 * 1_024;
/// Longest wait of a request for one of its node's request permits.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time until the body of a request has arrived.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// A response of which the node takes nothing for this long ends together with its connection; the agent requests the rest again.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// A connection without a request for this long ends; an agent opens a new one when it needs one.
const IDLE_MAX: Duration = Duration::from_secs(60);

type HttpResponse = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

struct Fetch {
    shared: Arc<Shared>,
    backend: Arc<dyn ChannelBackend>,
    permit: Arc<ConnectionPermit>,
    idle: Idle,
    /// Ends the connection.
    end: CancellationToken,
}

/// Serves one connection until it closes, is idle for [`IDLE_MAX`], or is ended.
pub(crate) async fn serve<S>(
    shared: Arc<Shared>,
    backend: Arc<dyn ChannelBackend>,
    place: Arc<ConnectionPermit>,
    stream: S,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let node = place.presented.identity.node;
    let (idle, end) = (Idle::default(), place.end.child_token());
    let fetch = Arc::new(Fetch { shared, backend, permit: place, idle: idle.clone(), end: end.clone() });
    let service = service_fn(move |request| {
        let fetch = fetch.clone();
        async move { Ok::<_, Infallible>(fetch.answer_with_permit(request).await) }
    });
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(REQUESTS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = end.cancelled() => {}
        () = idle.wait_idle_for(IDLE_MAX) => {}
        served = serving => if let Err(error) = served {
            tracing::debug!(%node, %error, "a fetch connection broke");
        }
    }
}

/// Ends the connection when a response stalls for [`STALLED_AFTER`]; returns when the response has been taken or dropped.
async fn end_when_stalled(mut taken: watch::Receiver<()>, end: CancellationToken) {
    loop {
        match timeout(STALLED_AFTER, taken.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => return end.cancel(),
        }
    }
}

impl Fetch {
    /// Waits for one of the node's request permits, answers, and holds the permit until the whole response is taken.
    async fn answer_with_permit(&self, request: Request<Incoming>) -> HttpResponse {
        let busy = self.idle.busy();
        let Ok(Ok(request_permit)) = timeout(PERMIT_TIMEOUT, self.permit.requests.clone().acquire_owned()).await else {
            let message = "too many concurrent requests from this node";
            return refusal(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, message);
        };
        let answer = self.answer(request).await;
        let (takes, taken) = watch::channel(());
        tokio::spawn(end_when_stalled(taken, self.end.clone()));
        answer.map(|body| {
            let held = (busy, request_permit);
            let tracked = body.map_frame(move |frame| {
                let _held = &held;
                takes.send_replace(());
                frame
            });
            tracked.boxed_unsync()
        })
    }

    fn presented(&self) -> &PresentedCertificate {
        &self.permit.presented
    }

    async fn answer(&self, request: Request<Incoming>) -> HttpResponse {
        let (method, target) = (request.method().clone(), request.uri().path().to_owned());
        let admission = match self.backend.admit(self.presented()).await {
            Ok(admission) => admission,
            Err(why) => return refusal(StatusCode::FORBIDDEN, why.code, &why.message),
        };
        if method == Method::POST && target == path::RENEW {
            return self.renew(request).await;
        }
        if admission == Admission::RenewalOnly {
            let message = "the certificate has expired: only its renewal is allowed";
            return refusal(StatusCode::FORBIDDEN, Code::CertificateExpired, message);
        }
        if method == Method::POST && target == path::CONFIRM_RENEWAL {
            // The admission above has already recorded the certificate that the node presented.
            return plain(StatusCode::NO_CONTENT, Bytes::new());
        }
        if let (&Method::GET, Some(sha256)) = (&method, target.strip_prefix(path::ARTIFACTS)) {
            return self.artifact(sha256, offset(&request)).await;
        }
        if let Some(secret) = target.strip_prefix(path::SECRETS) {
            let node = self.presented().identity.enrolled();
            return match (method, secret.parse()) {
                (Method::GET, Ok(secret)) => match self.backend.read_secret(node, secret).await {
                    Ok(bytes) => plain(StatusCode::OK, Bytes::copy_from_slice(&bytes)),
                    Err(error) => self.failed(&target, error),
                },
                (Method::PUT, Ok(secret)) => self.deposit(secret, request).await,
                _ => not_found(),
            };
        }
        not_found()
    }

    async fn artifact(&self, sha256: &str, offset: Option<u64>) -> HttpResponse {
        match self.backend.artifact(self.presented().identity.enrolled(), sha256, offset.unwrap_or(0)).await {
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

    async fn deposit(&self, secret: gpuaas_model::SecretId, request: Request<Incoming>) -> HttpResponse {
        let bytes = match body(request, SECRET_BYTES_MAX, "a secret must have at most 64 KiB").await {
            Ok(bytes) => Zeroizing::new(bytes.to_vec()),
            Err(why) => return why,
        };
        match self.backend.deposit_secret(self.presented().identity.enrolled(), secret, bytes).await {
            Ok(()) => plain(StatusCode::NO_CONTENT, Bytes::new()),
            Err(error) => self.failed("a deposit", error),
        }
    }

    async fn renew(&self, request: Request<Incoming>) -> HttpResponse {
        let presented = self.presented();
        if !self.shared.rate_limits.renewals.try_take(&presented.identity, Instant::now()) {
            let message = "too many certificate renewals from this node";
            return refusal(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, message);
        }
        let body = match body(request, BODY_BYTES_MAX, "the request is too long").await {
            Ok(body) => body,
            Err(why) => return why,
        };
        let Ok(renewal) = serde_json::from_slice::<RenewRequest>(&body) else {
            return refusal(StatusCode::BAD_REQUEST, Code::BodyInvalid, "the body is not a renewal request");
        };
        match self.backend.renew(presented, &renewal).await {
            Ok(certificate) => match serde_json::to_vec(&RenewResponse { certificate }) {
                Ok(body) => plain(StatusCode::OK, Bytes::from(body)),
                Err(error) => self.failed("a renewal", FetchError::Internal(error.to_string())),
            },
            Err(why) => refusal(StatusCode::FORBIDDEN, why.code, &why.message),
        }
    }

    fn failed(&self, what: &str, error: FetchError) -> HttpResponse {
        match error {
            FetchError::NotFound => not_found(),
            FetchError::Internal(why) => {
                tracing::error!(node = %self.presented().identity.node, what, why, "a request of a node failed");
                refusal(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, "the control plane failed")
            }
        }
    }
}

/// Returns the start of a `Range: bytes=N-` header; requests with other forms get the whole artifact.
fn offset(request: &Request<Incoming>) -> Option<u64> {
    let range = request.headers().get(header::RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

/// Reads the body of a request; returns the error response when the body is too long or too slow.
async fn body(request: Request<Incoming>, bytes_max: usize, too_long: &str) -> Result<Bytes, HttpResponse> {
    match timeout(BODY_TIMEOUT, Limited::new(request.into_body(), bytes_max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, Code::BodyTooLarge, too_long)),
        Err(_) => {
            Err(refusal(StatusCode::REQUEST_TIMEOUT, Code::BodyTooSlow, "the request body did not arrive in time"))
        }
    }
}

fn plain(status: StatusCode, bytes: Bytes) -> HttpResponse {
    let mut response = Response::new(Full::new(bytes).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn refusal(status: StatusCode, code: Code, message: &str) -> HttpResponse {
    let refusal = Refusal { code, message: message.to_owned() };
    plain(status, Bytes::from(serde_json::to_vec(&refusal).unwrap_or_default()))
}

fn not_found() -> HttpResponse {
    refusal(StatusCode::NOT_FOUND, Code::NotFound, "not found, or not available to this node")
}
