//! `Idempotency-Key`: a mutation that is repeated under the same key is answered again, not done again.
//!
//! Guarantees: same token, key and request within [`KEPT`] → the same answer, even from another process; another request under the key is
//! refused; of two at once, one waits for the other, or is told to, where they came to two replicas. Answers are kept sealed: some hold a credential.
//!
//! What is remembered is an answer by which something changed. A refusal changed nothing and may be tried again under its key. After a
//! crash between a change and its remembering, the repetition meets the change itself (`name_taken`, `operation_in_progress`).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_model::{Code, Principal, SecretId, Timestamp, TokenId};
use gpuaas_store::{IdempotencyRecord, StoreError};

use crate::{
    auth, body,
    document::{self, Needs},
    limits,
    problem::ApiProblem,
    state::ApiState,
};

/// The client's key.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 128;
/// Longest answer that is remembered, in bytes; a kubeconfig is about 6 KiB.
const ANSWER_BYTES_MAX: usize = 1_024 * 1_024;
/// How long an answer is remembered: longer than any script retries.
const KEPT: Duration = Duration::from_secs(24 * 3_600);

/// How long a request may take before an equal one at another replica gets its turn; one of a replica that died gets it at once.
const TURN_TTL: Duration = Duration::from_secs(120);

/// Requests under way, by token and key.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<HashMap<(TokenId, String), Weak<Turn>>>);

/// Held by the one of equal requests whose turn it is.
type Turn = tokio::sync::Mutex<()>;

impl UnderWay {
    /// The lock of that key; gone with its last holder.
    fn lock(&self, token: TokenId, key: &str) -> Arc<Turn> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = known.get(&(token, key.to_owned())).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(Turn::new(()));
        known.insert((token, key.to_owned()), Arc::downgrade(&lock));
        lock
    }
}

/// Answers from memory, or lets the request through and remembers.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    match request.headers().get(&KEY).cloned() {
        Some(key) if takes_key(&request) => {
            keyed(&state, &key, request, next).await.unwrap_or_else(IntoResponse::into_response)
        }
        Some(_) | None => next.run(request).await,
    }
}

/// Whether an operation was asked for that does something for somebody. A method that no operation has is none of ours.
fn takes_key(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>();
    let declared = route.and_then(|route| document::declared(request.method(), route.as_str()));
    declared.is_some_and(|declared| declared.mutates && declared.needs != Needs::Nothing)
}

async fn keyed(state: &ApiState, key: &HeaderValue, request: Request, next: Next) -> Result<Response, ApiProblem> {
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX);
    let key = key.ok_or_else(|| {
        let detail = format!("an idempotency key has 1 to {KEY_BYTES_MAX} printable characters");
        ApiProblem::new(Code::QueryInvalid, detail).about("Idempotency-Key").then("send for example a fresh UUID")
    })?;
    let from = limits::sender(&request);
    let token = match request.extensions().get::<Principal>() {
        Some(known) => known.token,
        None => auth::principal(request.headers(), from, state).await?.token,
    };
    let (parts, body) = request.into_parts();
    let body = body::read(body).await?;
    let line = format!("{} {}\n", parts.method, parts.uri);
    let asked = Asked { token, key, sha256: gpuaas_trust::sha256_hex(&[line.as_bytes(), &body].concat()) };
    let lock = state.under_way.lock(token, key);
    let _held = lock.lock().await;
    if !state.engine.store().is_shared() {
        return asked.once(state, Request::from_parts(parts, Body::from(body)), next).await;
    }
    // Equal requests may come to other replicas at the same time.
    let (store, replica, lease) =
        (state.engine.store(), state.engine.replica(), format!("idempotency/{}", asked.owner()));
    if store.acquire_lease(&lease, replica, TURN_TTL).await?.is_none() {
        return Err(ApiProblem::new(Code::Unavailable, "an equal request is under way elsewhere")
            .about("Idempotency-Key")
            .then("try again in a moment"));
    }
    let answered = asked.once(state, Request::from_parts(parts, Body::from(body)), next).await;
    store.release_lease(&lease, replica).await?;
    answered
}

struct Asked<'a> {
    token: TokenId,
    key: &'a str,
    sha256: String,
}

impl Asked<'_> {
    /// The remembered answer, or that of the request, which is remembered.
    async fn once(&self, state: &ApiState, request: Request, next: Next) -> Result<Response, ApiProblem> {
        if let Some(answer) = self.remembered(state).await? {
            return Ok(answer);
        }
        let response = next.run(request).await;
        if response.status().is_success() { self.remember(state, response).await } else { Ok(response) }
    }

    async fn remembered(&self, state: &ApiState) -> Result<Option<Response>, ApiProblem> {
        let Some(known) = state.engine.store().read().await?.idempotency(self.token, self.key).await? else {
            return Ok(None);
        };
        if known.created_at < self.forgotten_before(state) {
            return Ok(None);
        }
        if known.request_sha256 != self.sha256 {
            return Err(ApiProblem::new(Code::IdempotencyKeyReused, "this idempotency key came with another request")
                .about("Idempotency-Key")
                .then("use a fresh key for a new request"));
        }
        let body = self.opened(state, &known.body)?;
        let status = StatusCode::from_u16(known.status).unwrap_or(StatusCode::OK);
        let media_type = HeaderValue::from_static("application/json");
        let headers =
            [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
        let mut response = (status, headers, body).into_response();
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        Ok(Some(response))
    }

    async fn remember(&self, state: &ApiState, response: Response) -> Result<Response, ApiProblem> {
        let (parts, body) = response.into_parts();
        let broken = |_| ApiProblem::new(Code::Internal, "the answer could not be remembered");
        let body: Bytes = to_bytes(body, ANSWER_BYTES_MAX).await.map_err(broken)?;
        let sealed = state.engine.keys().seal(self.owner(), &body).map_err(|error| {
            tracing::error!(%error, "an answer could not be sealed");
            ApiProblem::new(Code::Internal, "the answer could not be remembered")
        })?;
        if let Err(error) = self.keep(state, parts.status, &sealed).await {
            // What was asked for has happened, and only this answer says so.
            tracing::warn!(%error, "an answer was given and could not be remembered");
        }
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    async fn keep(&self, state: &ApiState, status: StatusCode, sealed: &[u8]) -> Result<(), StoreError> {
        let mut tx = state.engine.store().begin().await?;
        tx.purge_idempotency(self.forgotten_before(state)).await?;
        tx.put_idempotency(&IdempotencyRecord {
            token: self.token,
            key: self.key.to_owned(),
            request_sha256: self.sha256.clone(),
            status: status.as_u16(),
            body: hex::encode(sealed),
            created_at: state.engine.ports().clock.now(),
        })
        .await?;
        tx.commit().await
    }

    fn opened(&self, state: &ApiState, sealed: &str) -> Result<Vec<u8>, ApiProblem> {
        let lost = || ApiProblem::new(Code::Internal, "the remembered answer cannot be opened");
        let sealed = hex::decode(sealed).map_err(|_| lost())?;
        let opened = state.engine.keys().unseal(self.owner(), &sealed).map_err(|_| lost())?;
        Ok(opened.to_vec())
    }

    /// Binds the sealed answer to its token and key: moved to another row, it does not open.
    fn owner(&self) -> SecretId {
        let digest = gpuaas_trust::sha256_hex(format!("idempotency {} {}", self.token, self.key).as_bytes());
        let mut bytes = [0_u8; 16];
        // The first half of a hex digest of 64 digits.
        let _ = hex::decode_to_slice(&digest[..32], &mut bytes);
        SecretId::from_uuid(uuid::Uuid::from_bytes(bytes))
    }

    fn forgotten_before(&self, state: &ApiState) -> Timestamp {
        let now = state.engine.ports().clock.now().as_millis();
        Timestamp::from_millis(now - i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX))
    }
}
