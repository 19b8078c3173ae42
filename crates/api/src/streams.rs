//! Limits long-lived responses: each ends when its token expires or is revoked, and a token has a limited number of them.
//!
//! Guarantees: a stream ends when its token expires. It ends with the notification that the token was revoked; if the notification is lost,
//! at most [`CHECK_EVERY`] later.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt};
use gpuaas_engine::{Engine, port::Ports};
use gpuaas_model::{Code, Timestamp, TokenId};
use gpuaas_store::{Change, Store, StoreError, with_retries};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::problem::ApiProblem;

/// Concurrent streams per token: a page that shows a workload uses one, a waiting command another.
const PER_TOKEN_MAX: usize = 100;
/// Interval of looking the token up again without a notification.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// Number of streams per token.
#[derive(Default)]
pub(crate) struct Streams(Mutex<HashMap<TokenId, usize>>);

/// Counts one stream of a token until dropped.
struct StreamPermit {
    streams: Arc<Streams>,
    token: TokenId,
}

impl Streams {
    fn take(self: &Arc<Self>, token: TokenId) -> Result<StreamPermit, ApiProblem> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(token).or_default();
        if *count >= PER_TOKEN_MAX {
            let detail = format!("this token already has {PER_TOKEN_MAX} streams");
            return Err(ApiProblem::new(Code::RateLimited, detail).then("close one of them, or use another token"));
        }
        *count += 1;
        Ok(StreamPermit { streams: self.clone(), token })
    }

    /// Limits a stream to the validity of its token. Refuses a token that has too many streams.
    pub(crate) fn limit_to_token<S: Stream>(
        self: &Arc<Self>,
        engine: &Engine,
        token: TokenId,
        stream: S,
    ) -> Result<impl Stream<Item = S::Item> + use<S>, ApiProblem> {
        let permit = self.take(token)?;
        let (store, ports) = (engine.store().clone(), engine.ports().clone());
        Ok(stream.take_until(async move {
            // Released with the stream, for whatever reason it ends.
            let _place = permit;
            until_token_ends(&store, &ports, token).await;
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

/// Completes when the token is no longer valid, or cannot be looked up.
async fn until_token_ends(store: &Store, ports: &Ports, token: TokenId) {
    // Subscribes before the first look-up, so that no revocation in between is missed.
    let mut changes = store.changes();
    loop {
        let now = ports.clock.now();
        let expiry = match with_retries(async || valid_until(store, now, token).await).await {
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

/// Returns when a valid token expires; `None` for an invalid one.
async fn valid_until(store: &Store, now: Timestamp, token: TokenId) -> Result<Option<Timestamp>, StoreError> {
    let token = match store.read_once().await?.token(token).await {
        Ok(token) => token,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let expiry = token.expires_at.unwrap_or(Timestamp::from_millis(i64::MAX));
    Ok((token.revoked_at.is_none() && expiry > now).then_some(expiry))
}

/// Waits for the notification that the token was revoked. Missed notifications count as one.
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
mod tests {
    use futures::future::BoxFuture;
    use gpuaas_engine::record_proof;
    use gpuaas_model::{Clock, Coded, Role, Runtime};
    use gpuaas_store::{StoreOptions, TokenRecord};
    use gpuaas_test_support::{DatabaseFile, SeededEntropy};
    use gpuaas_trust::SealingKey;
    use tokio::{
        sync::{mpsc, watch},
        task::JoinHandle,
    };

    use super::*;

    const BEGIN: Timestamp = Timestamp::from_millis(1_000_000);

    /// A clock that the test advances, and that reports the deadlines of sleepers.
    struct ManualClock {
        now: watch::Sender<Timestamp>,
        waits: mpsc::UnboundedSender<u64>,
    }

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            *self.now.borrow()
        }
    }

    impl Runtime for ManualClock {
        fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) {}

        fn elapsed(&self) -> Duration {
            self.now().since(BEGIN)
        }

        fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
            self.waits.send(at.since(BEGIN).as_secs()).unwrap();
            let mut now = self.now.subscribe();
            Box::pin(async move {
                let _ = now.wait_for(|now| *now >= at).await;
            })
        }
    }

    /// A stream of a token, in a store that two processes have open. Neither receives the other's notifications.
    struct OpenStream {
        time: Arc<ManualClock>,
        waits: mpsc::UnboundedReceiver<u64>,
        token: TokenId,
        store: Store,
        other: Store,
        stream: JoinHandle<()>,
        _database: DatabaseFile,
    }

    impl OpenStream {
        async fn with_token_ttl_seconds(seconds: u64) -> Self {
            let database = DatabaseFile::new();
            let options = StoreOptions { url: database.url() };
            let (send, waits) = mpsc::unbounded_channel();
            let time = Arc::new(ManualClock { now: watch::Sender::new(BEGIN), waits: send });
            let store = Store::open(&options, time.clone()).await.unwrap();
            let other = Store::open(&options, time.clone()).await.unwrap();
            let proof = record_proof(SealingKey::new(&[7; 32]).unwrap().into());
            [&store, &other].into_iter().for_each(|store| store.set_record_proof(proof.clone()));
            let token = TokenId::from_uuid(uuid::Uuid::from_u128(1));
            let record = TokenRecord {
                id: token,
                name: "robot".to_owned(),
                sha256: "0".repeat(64),
                role: Role::PlatformOperator,
                project: None,
                service_account: None,
                created_at: BEGIN,
                expires_at: Some(BEGIN.plus(Duration::from_secs(seconds))),
                revoked_at: None,
                is_bootstrap: false,
            };
            let mut tx = store.begin().await.unwrap();
            tx.insert_token(&record).await.unwrap();
            tx.commit().await.unwrap();
            let ports =
                Ports { clock: time.clone(), entropy: Arc::new(SeededEntropy::of_seed(7)), runtime: time.clone() };
            let watching = store.clone();
            let stream = tokio::spawn(async move { until_token_ends(&watching, &ports, token).await });
            Self { time, waits, token, store, other, stream, _database: database }
        }

        /// Returns the deadline, in seconds, for which the stream waits after its look-up.
        async fn waits(&mut self) -> u64 {
            self.waits.recv().await.unwrap()
        }

        fn advance(&self, seconds: u64) {
            self.time.now.send_modify(|now| *now = now.plus(Duration::from_secs(seconds)));
        }

        async fn revoke(&self, through: &Store) {
            let mut tx = through.begin().await.unwrap();
            tx.revoke_token(self.token, self.time.now()).await.unwrap();
            tx.commit().await.unwrap();
        }
    }

    #[tokio::test]
    async fn stream_ends_when_its_token_is_revoked() {
        let mut open = OpenStream::with_token_ttl_seconds(3_600).await;
        assert_eq!(open.waits().await, 30);
        open.revoke(&open.store).await;
        tokio::time::timeout(Duration::from_secs(20), open.stream).await.expect("it ends immediately").unwrap();
    }

    #[tokio::test]
    async fn stream_without_notification_ends_within_thirty_seconds() {
        let mut open = OpenStream::with_token_ttl_seconds(3_600).await;
        assert_eq!(open.waits().await, 30);
        open.revoke(&open.other).await;
        open.advance(30);
        tokio::time::timeout(Duration::from_secs(20), open.stream).await.expect("it looked again").unwrap();
    }

    #[tokio::test]
    async fn stream_ends_when_its_token_expires() {
        let mut open = OpenStream::with_token_ttl_seconds(40).await;
        assert_eq!(open.waits().await, 30);
        open.advance(30);
        assert_eq!(open.waits().await, 40, "it continues for the remaining time");
        open.advance(10);
        tokio::time::timeout(Duration::from_secs(20), open.stream).await.expect("it ends with its token").unwrap();
    }

    #[test]
    fn streams_per_token_are_limited() {
        let streams = Arc::new(Streams::default());
        let (ada, bob) = (TokenId::from_uuid(uuid::Uuid::from_u128(1)), TokenId::from_uuid(uuid::Uuid::from_u128(2)));
        let mut held: Vec<StreamPermit> = (0..PER_TOKEN_MAX).map(|_| streams.take(ada).expect("a permit")).collect();
        assert_eq!(streams.take(ada).err().expect("no permit").cause().code(), Code::RateLimited);
        assert!(streams.take(bob).is_ok());
        held.pop();
        held.push(streams.take(ada).expect("a permit is free"));
        held.clear();
        assert!(streams.0.lock().unwrap().is_empty(), "tokens without a stream are dropped");
    }
}
