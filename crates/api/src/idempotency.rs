//! `Idempotency-Key`: repeating a mutation under the same key returns the first response instead of executing it again.
//!
//! Guarantees: the same token, key and request get the same response for as long as responses are kept (one day by default), even from
//! another process. Another request under the same key is refused. Of two concurrent equal requests, one waits for the other; if they reach
//! different replicas, the second gets 503. Stored responses are encrypted, because some contain a credential.
//!
//! A request that began runs to its end even if its client disconnects, so its response is stored and the key is released.
//!
//! Only success responses are stored. A refusal changed nothing, so the client may retry under the same key. If the process crashes between
//! a change and storing its response, the retry meets the change itself (`name_taken`, `operation_in_progress`).

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, resume_unwind},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use gpuaas_model::{Code, Principal, Timestamp, TokenId};
use gpuaas_store::{IdempotencyRecord, StoreError};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tracing::Instrument;

use crate::{auth, body, correlation, declared::operation_of, peer, problem::ApiProblem, state::ApiState};

/// Request header with the client's key.
pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Response header that marks a repeated response.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 128;
/// Longest stored response, in bytes. A kubeconfig has about 6 KiB.
const RESPONSE_BYTES_MAX: usize = 1_024 * 1_024;

/// Duration of the lease that serializes equal requests across replicas. The lease of a replica that died is free immediately.
const LEASE_TTL: Duration = Duration::from_secs(120);
/// Prefix of these leases' names.
const LEASE_PREFIX: &str = "idempotency/";

/// Returns the stored response, or runs the request and stores its response.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    match request.headers().get(&KEY).cloned() {
        Some(key) if takes_key(&request) => {
            keyed(&state, &key, request, next).await.unwrap_or_else(IntoResponse::into_response)
        }
        Some(_) | None => next.run(request).await,
    }
}

/// Returns whether the request is a mutation by an authenticated caller. Methods without an operation take no key.
fn takes_key(request: &Request) -> bool {
    let declared = operation_of(request);
    declared.is_some_and(|declared| declared.mutates && declared.declaration.access.permission().is_some())
}

async fn keyed(state: &ApiState, key: &HeaderValue, request: Request, next: Next) -> Result<Response, ApiProblem> {
    let is_key =
        |key: &&str| (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let key = key.to_str().ok().filter(is_key);
    let key = key.ok_or_else(|| {
        let detail = format!("an idempotency key has 1 to {KEY_BYTES_MAX} printable ASCII characters without spaces");
        ApiProblem::new(Code::QueryInvalid, detail).about("Idempotency-Key").then("send for example a new UUID")
    })?;
    let token = match request.extensions().get::<Principal>() {
        Some(known) => known.token,
        None => auth::principal(request.headers(), peer::sender(&request), state).await?.token,
    };
    let (parts, body) = request.into_parts();
    let body = body::read(body, state.bodies.reserve(&parts.extensions)).await?;
    let keyed = KeyedRequest { token, key: key.to_owned(), sha256: digest(&parts, &body) };
    let request = Request::from_parts(parts, Body::from(body));
    let lock = state.in_progress.lock(token, key);
    let guard = lock.lock_owned().await;
    run_to_end(state, keyed, request, next, guard).await
}

/// Digest of everything that two equal requests share: method, URI, `If-Match` and body.
fn digest(parts: &Parts, body: &[u8]) -> String {
    let mut content = format!("{} {}\n", parts.method, parts.uri).into_bytes();
    for tag in parts.headers.get_all(header::IF_MATCH) {
        content.extend([b"if-match: ", tag.as_bytes(), b"\n"].concat());
    }
    content.extend(body);
    gpuaas_trust::sha256_hex(&content)
}

/// Runs the request in its own task, so that a client that disconnects cannot interrupt it between the change and storing the response.
async fn run_to_end(
    state: &ApiState,
    keyed: KeyedRequest,
    request: Request,
    next: Next,
    guard: OwnedMutexGuard<()>,
) -> Result<Response, ApiProblem> {
    let (sender, receiver) = oneshot::channel();
    let (of_task, correlation) = (state.clone(), correlation::current_id(&state.engine));
    let run = async move {
        let result = AssertUnwindSafe(keyed.run_with_lease(&of_task, request, next)).catch_unwind().await;
        drop(guard);
        // The client may have disconnected.
        let _ = sender.send(result);
    };
    let run = correlation::within(correlation, run).in_current_span();
    state.engine.ports().runtime.spawn("request with an idempotency key", Box::pin(run));
    match receiver.await {
        Ok(Ok(response)) => response,
        // Ends this request as the panic would have without the task.
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => Err(ApiProblem::new(Code::Internal, "the request was aborted")),
    }
}

struct KeyedRequest {
    token: TokenId,
    key: String,
    sha256: String,
}

impl KeyedRequest {
    /// Runs the request under the lease that serializes equal requests across replicas.
    async fn run_with_lease(&self, state: &ApiState, request: Request, next: Next) -> Result<Response, ApiProblem> {
        let (store, replica) = (state.engine.store(), state.engine.replica());
        if !store.is_shared() {
            return self.run_once(state, request, next).await;
        }
        let lease = format!("{LEASE_PREFIX}{}", self.lease_name());
        if store.acquire_lease(&lease, replica, LEASE_TTL).await?.is_none() {
            return Err(ApiProblem::new(Code::Unavailable, "another replica is executing the same request")
                .about("Idempotency-Key")
                .then("try again in a moment"));
        }
        let run = AssertUnwindSafe(self.run_once(state, request, next)).catch_unwind();
        let result = tokio::select! {
            biased;
            result = run => result,
            never = self.renew_lease(state, &lease) => match never {},
        };
        if let Err(error) = store.delete_lease(&lease, replica).await {
            // The request is done. A repetition waits until the lease expires.
            tracing::warn!(%error, "the lease of a request could not be released");
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Renews the lease while the request runs; importing a release takes minutes.
    async fn renew_lease(&self, state: &ApiState, lease: &str) -> Infallible {
        let (engine, ports) = (&state.engine, state.engine.ports());
        loop {
            ports.runtime.sleep_until(ports.clock.now().plus(LEASE_TTL / 3)).await;
            if let Err(error) = engine.store().acquire_lease(lease, engine.replica(), LEASE_TTL).await {
                tracing::warn!(%error, "the lease of a request could not be renewed");
            }
        }
    }

    /// Returns the stored response, or runs the request and stores its response.
    async fn run_once(&self, state: &ApiState, request: Request, next: Next) -> Result<Response, ApiProblem> {
        if let Some(response) = self.stored_response(state).await? {
            return Ok(response);
        }
        let response = next.run(request).await;
        if response.status().is_success() { self.store_response(state, response).await } else { Ok(response) }
    }

    async fn stored_response(&self, state: &ApiState) -> Result<Option<Response>, ApiProblem> {
        let Some(record) = state.engine.store().read_once().await?.idempotency(self.token, &self.key).await? else {
            return Ok(None);
        };
        if Self::expired_before(state).is_some_and(|limit| record.created_at < limit) {
            return Ok(None);
        }
        if record.request_sha256 != self.sha256 {
            return Err(ApiProblem::new(
                Code::IdempotencyKeyReused,
                "this idempotency key was used for another request",
            )
            .about("Idempotency-Key")
            .then("use a new key for a new request"));
        }
        // Uses the requested token and key instead of those in the row, because a manipulated row may belong to another request.
        let record = IdempotencyRecord { token: self.token, key: self.key.clone(), ..record };
        let body = decrypted_body(state, &record)?;
        let status = StatusCode::from_u16(record.status).unwrap_or(StatusCode::OK);
        let media_type = HeaderValue::from_static("application/json");
        let headers =
            [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
        let mut response = (status, headers, body).into_response();
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        Ok(Some(response))
    }

    async fn store_response(&self, state: &ApiState, response: Response) -> Result<Response, ApiProblem> {
        let (parts, body) = response.into_parts();
        let unreadable = |_| ApiProblem::new(Code::Internal, "the response could not be stored");
        let body: Bytes = to_bytes(body, RESPONSE_BYTES_MAX).await.map_err(unreadable)?;
        let mut record = IdempotencyRecord {
            token: self.token,
            key: self.key.clone(),
            request_sha256: self.sha256.clone(),
            status: parts.status.as_u16(),
            body: String::new(),
            created_at: state.engine.ports().clock.now(),
        };
        let sealed = state.engine.keys().sealing().seal(&record.seal_owner(), &body).map_err(|error| {
            tracing::error!(%error, "a response could not be encrypted");
            ApiProblem::new(Code::Internal, "the response could not be stored")
        })?;
        record.body = hex::encode(sealed);
        if let Err(error) = self.insert(state, &record).await {
            // The change has happened, so the client must get this response.
            tracing::warn!(%error, "a response was sent but could not be stored");
        }
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    async fn insert(&self, state: &ApiState, record: &IdempotencyRecord) -> Result<(), StoreError> {
        let mut tx = state.engine.store().begin().await?;
        tx.put_idempotency(record, Self::expired_before(state)).await?;
        tx.commit().await
    }

    /// Returns the name of the request's lease, without the prefix.
    fn lease_name(&self) -> String {
        gpuaas_trust::sha256_hex(format!("idempotency {} {}", self.token, self.key).as_bytes())
    }

    /// Returns the creation time before which stored responses no longer count, even if retention has not deleted them yet.
    fn expired_before(state: &ApiState) -> Option<Timestamp> {
        state.engine.retention().idempotency_keys.due_before(state.engine.ports().clock.now())
    }
}

/// Decrypts the body of a stored response. A failure means that someone else changed the row.
fn decrypted_body(state: &ApiState, record: &IdempotencyRecord) -> Result<Vec<u8>, ApiProblem> {
    let refused = || {
        tracing::error!(token = %record.token, "a stored response was refused: another program changed its row");
        ApiProblem::new(Code::Internal, "another program changed the stored response, so it is not returned")
            .then("check whether the change has happened; if not, send the request with a new idempotency key")
    };
    let sealed = hex::decode(&record.body).map_err(|_| refused())?;
    let body = state.engine.keys().sealing().open(&record.seal_owner(), &sealed).map_err(|_| refused())?;
    Ok(body.to_vec())
}
