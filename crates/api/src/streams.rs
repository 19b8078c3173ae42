//! Limits long-lived responses: each ends when its token expires or is revoked, or its browser's session ends, and a token has a limited
//! number of them.
//!
//! Guarantees: a stream ends when its token or session expires. It ends with the notification that one of them was revoked; if the
//! notification is lost, at most [`CHECK_EVERY`] later.
//!
//! An open stream is no use of a session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt};
use gpuaas_engine::{Engine, port::Ports};
use gpuaas_model::{BrowserSessionId, Code, Timestamp, TokenId};
use gpuaas_store::{Change, Store, StoreError, with_retries};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::problem::ApiProblem;

/// Concurrent streams per token: a page that shows a workload uses one, a waiting command another, the logs of a workload one and another
/// for each journal.
const PER_TOKEN_MAX: usize = 100;
/// Interval of looking the token up again without a notification.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// Number of streams per token.
#[derive(Default)]
pub(crate) struct Streams(Mutex<HashMap<TokenId, usize>>);

/// Counts one stream of a token until dropped.
pub(crate) struct StreamPermit {
    streams: Arc<Streams>,
    token: TokenId,
}

impl Streams {
    /// Counts one more stream of a token. Refuses a token that has too many.
    pub(crate) fn take(self: &Arc<Self>, token: TokenId) -> Result<StreamPermit, ApiProblem> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(token).or_default();
        if *count >= PER_TOKEN_MAX {
            let detail = format!("this token already has {PER_TOKEN_MAX} streams");
            return Err(ApiProblem::new(Code::RateLimited, detail).then("close one of them, or use another token"));
        }
        *count += 1;
        Ok(StreamPermit { streams: self.clone(), token })
    }

    /// Limits a stream to the validity of its token, and of its session if a browser reads it. Refuses a token that has too many streams.
    pub(crate) fn limit_to_token<S: Stream>(
        self: &Arc<Self>,
        engine: &Engine,
        (token, session): (TokenId, Option<BrowserSessionId>),
        stream: S,
    ) -> Result<impl Stream<Item = S::Item> + use<S>, ApiProblem> {
        let permit = self.take(token)?;
        let (store, ports) = (engine.store().clone(), engine.ports().clone());
        Ok(stream.take_until(async move {
            // Released with the stream, for whatever reason it ends.
            let _place = permit;
            until_token_ends(&store, &ports, token, session).await;
        }))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut held = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.token);
            }
        }
    }
}

/// Completes when the token or the session is no longer valid, or cannot be looked up.
async fn until_token_ends(store: &Store, ports: &Ports, token: TokenId, session: Option<BrowserSessionId>) {
    // Subscribes before the first look-up, so that no revocation in between is missed.
    let mut changes = store.changes();
    loop {
        let now = ports.clock.now();
        let expiry = match with_retries(async || valid_until(store, now, token, session).await).await {
            Ok(Some(expiry)) => expiry,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "a stream ends: its token cannot be looked up");
                return;
            }
        };
        let timer = ports.runtime.sleep_until(expiry.min(now.plus(CHECK_EVERY)));
        tokio::select! {
            biased;
            () = revoked(&mut changes, token) => {}
            () = timer => {}
        }
    }
}

/// Returns when a valid token expires, or its session if that is earlier; `None` if one of them is invalid.
async fn valid_until(
    store: &Store,
    now: Timestamp,
    token: TokenId,
    session: Option<BrowserSessionId>,
) -> Result<Option<Timestamp>, StoreError> {
    let token = match store.read_once().await?.token(token).await {
        Ok(token) => token,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut expiry = token.expires_at.unwrap_or(Timestamp::from_millis(i64::MAX));
    if let Some(session) = session {
        match store.read_once().await?.browser_session(session).await {
            Ok(session) => expiry = expiry.min(session.ends_at()),
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok((token.revoked_at.is_none() && expiry > now).then_some(expiry))
}

/// Waits for the notification that the token was revoked or one of its browsers signed out. Missed notifications count as one.
async fn revoked(changes: &mut Receiver<Change>, token: TokenId) {
    loop {
        match changes.recv().await {
            Ok(Change::Token(changed)) if changed == token => return,
            Ok(
                Change::Token(_)
                | Change::Event { .. }
                | Change::Operation(_)
                | Change::Node(_)
                | Change::Keys
                | Change::Sealing,
            ) => {}
            Ok(Change::Missed) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
