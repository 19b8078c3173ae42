//! Calls to the apiserver. Every request leaves from here: it waits for its permit, has a timeout, and its answer has a size limit.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER},
};
use http_body_util::Full;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    connection::{Connection, Lines, with_timeout},
    connector::Connector,
    dial::Dialer,
    endpoint::Endpoint,
    error::{KubeError, status_error},
    json,
    kubeconfig::{Identity, Kubeconfig, KubeconfigError},
    limits::{ANSWER_BYTES_MAX, REQUEST_TIMEOUT, WATCH_BYTES_MAX},
};

/// Media type with which Kubernetes changes a part of an object; `null` removes a field.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of an object's metadata alone; an apiserver that cannot send it sends the whole object.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The kind of call that a permit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// A request with one answer; takes at most [`REQUEST_TIMEOUT`].
    Request,
    /// A request with a stream of events, which lasts until the caller drops it.
    Watch,
}

/// Held while a call is in progress.
pub type Permit = Box<dyn Any + Send>;

/// Decides when a call may begin. Calls to one cluster must not wait because of another cluster.
pub trait Admission: Send + Sync + 'static {
    /// Waits for a permit, or fails with [`KubeError::Busy`].
    fn admit(&self, kind: CallKind) -> BoxFuture<'static, Result<Permit, KubeError>>;
}

/// Admits every call at once.
struct Unlimited;

impl Admission for Unlimited {
    fn admit(&self, _: CallKind) -> BoxFuture<'static, Result<Permit, KubeError>> {
        async { Ok(Box::new(()) as Permit) }.boxed()
    }
}

/// A request that is not sent yet.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    target: String,
    accept: Option<&'static str>,
    body: Option<(&'static str, Value)>,
    bytes_max: usize,
    stream_bytes_max: usize,
}

impl Call {
    /// Returns a call whose answer has at most [`ANSWER_BYTES_MAX`], and a whole watch at most [`WATCH_BYTES_MAX`].
    pub(crate) fn new(method: Method, target: impl Into<String>) -> Self {
        let (bytes_max, stream_bytes_max) = (ANSWER_BYTES_MAX, WATCH_BYTES_MAX);
        Self { method, target: target.into(), accept: None, body: None, bytes_max, stream_bytes_max }
    }

    pub(crate) fn get(target: impl Into<String>) -> Self {
        Self::new(Method::GET, target)
    }

    /// Returns a call that creates an object.
    pub(crate) fn post(target: impl Into<String>, body: Value) -> Self {
        Self::new(Method::POST, target).with("application/json", body)
    }

    pub(crate) fn delete(target: impl Into<String>) -> Self {
        Self::new(Method::DELETE, target)
    }

    /// Returns a call that changes a part of an object.
    pub(crate) fn patch(target: impl Into<String>, change: Value) -> Self {
        Self::new(Method::PATCH, target).with(MERGE_PATCH, change)
    }

    /// Requests only the metadata of objects.
    pub(crate) fn metadata(self) -> Self {
        Self { accept: Some(METADATA), ..self }
    }

    pub(crate) fn with(self, media_type: &'static str, body: Value) -> Self {
        Self { body: Some((media_type, body)), ..self }
    }

    /// Sets another limit for the answer, or for each event of a watch.
    pub(crate) fn up_to(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Sets another limit for a whole watch.
    pub(crate) fn stream_up_to(self, stream_bytes_max: usize) -> Self {
        Self { stream_bytes_max, ..self }
    }
}

/// An answer with any status.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The time after which the apiserver wants to be called again, from the header `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Returns the answer if its status is a success, and its error otherwise.
    pub(crate) fn success(self) -> Result<Self, KubeError> {
        if self.status.is_success() { Ok(self) } else { Err(self.failure()) }
    }

    /// Parses the object of a successful answer.
    pub(crate) fn object<T: DeserializeOwned>(self) -> Result<T, KubeError> {
        json::read(&self.success()?.body)
    }

    /// Returns the answer's error, with Kubernetes' message if there is one.
    pub(crate) fn failure(&self) -> KubeError {
        failure(self.status, &self.body)
    }
}

/// Returns the error of an unsuccessful answer.
fn failure(status: StatusCode, body: &[u8]) -> KubeError {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    match json::read::<Status>(body) {
        Ok(reply) => status_error(status.as_u16(), reply.message),
        Err(_) => status_error(status.as_u16(), String::from_utf8_lossy(&body[..body.len().min(1_024)])),
    }
}

/// Makes calls with the credentials for one cluster, over one connection that is kept between calls.
pub(crate) struct Calls {
    dialer: Dialer,
    host: HeaderValue,
    bearer: Option<HeaderValue>,
    admission: Arc<dyn Admission>,
    idle: Mutex<Option<Connection>>,
}

impl Calls {
    pub(crate) fn new(
        kubeconfig: &Kubeconfig,
        endpoint: &Endpoint,
        connector: Arc<dyn Connector>,
        admission: Option<Arc<dyn Admission>>,
    ) -> Result<Self, KubeError> {
        let host = HeaderValue::from_str(&endpoint.authority())
            .map_err(|_| KubeError::Refusal(format!("{endpoint} is not a valid address")))?;
        Ok(Self {
            dialer: Dialer::new(kubeconfig, endpoint, connector)?,
            host,
            bearer: bearer(&kubeconfig.identity)?,
            admission: admission.unwrap_or_else(|| Arc::new(Unlimited)),
            idle: Mutex::default(),
        })
    }

    /// Makes a call and reads its answer, both within [`REQUEST_TIMEOUT`]; the wait for the permit comes before.
    pub(crate) async fn make(&self, call: Call) -> Result<Answer, KubeError> {
        let request = self.request(&call)?;
        let _permit = self.admission.admit(CallKind::Request).await?;
        with_timeout(REQUEST_TIMEOUT, self.exchange(request, call.bytes_max)).await?
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, bytes_max: usize) -> Result<Answer, KubeError> {
        let mut connection = self.connection().await?;
        let (head, body) = connection.exchange(request, bytes_max).await?;
        // A connection is only reused if its answer was read completely. Of parallel connections, the first to finish is kept and the
        // others close.
        connection.mark_idle();
        self.idle().get_or_insert(connection);
        Ok(Answer { status: head.status, retry_after: retry_after(&head.headers), body })
    }

    /// Returns the kept connection if it is still open, and a new one otherwise.
    async fn connection(&self) -> Result<Connection, KubeError> {
        let kept = self.idle().take();
        if let Some(mut kept) = kept
            && kept.is_usable().await
        {
            return Ok(kept);
        }
        Connection::open(&self.dialer).await
    }

    /// Makes a call that is answered by lines, over its own connection.
    pub(crate) async fn watch(&self, call: Call) -> Result<Watch, KubeError> {
        let request = self.request(&call)?;
        let permit = self.admission.admit(CallKind::Watch).await?;
        let begun = async { Connection::open(&self.dialer).await?.watch(request, call.stream_bytes_max).await };
        let (status, mut lines) = with_timeout(REQUEST_TIMEOUT, begun).await??;
        if !status.is_success() {
            let body = with_timeout(REQUEST_TIMEOUT, lines.next(ANSWER_BYTES_MAX)).await??;
            return Err(failure(status, &body.unwrap_or_default()));
        }
        Ok(Watch { lines, bytes_max: call.bytes_max, _permit: permit })
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, KubeError> {
        let refused = |error: &dyn std::fmt::Display| KubeError::Refusal(error.to_string());
        let target: Uri = call.target.parse().map_err(|error| refused(&error))?;
        let bytes = match &call.body {
            None => Bytes::new(),
            Some((_, body)) => serde_json::to_vec(body).map_err(|error| refused(&error))?.into(),
        };
        let mut request = Request::new(Full::new(bytes));
        (*request.method_mut(), *request.uri_mut()) = (call.method.clone(), target);
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        if let Some(accept) = call.accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        if let Some((media_type, _)) = call.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, bearer.clone());
        }
        Ok(request)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Option<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the seconds of the header `Retry-After`; Kubernetes sends no date there.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

fn bearer(identity: &Identity) -> Result<Option<HeaderValue>, KubeError> {
    let Identity::Token(token) = identity else { return Ok(None) };
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        .map_err(|_| KubeError::from(KubeconfigError::Invalid("token")))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// A stream of events.
pub(crate) struct Watch {
    lines: Lines,
    bytes_max: usize,
    _permit: Permit,
}

impl Watch {
    /// Returns the next event as JSON; `None` if the apiserver ended the watch.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, KubeError> {
        self.lines.next(self.bytes_max).await
    }
}
