//! Hints between processes that share a PostgreSQL database: `NOTIFY` with every commit, and a listener that forwards
//! hints of other processes to the channel of this process's own hints.
//!
//! Nothing depends on a hint. After a lost connection the channel carries [`Change::Missed`], and subscribers read
//! rows.

use std::{sync::Arc, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use gpuaas_model::{NodeId, OperationId, StreamName, TokenId};
use sqlx::postgres::PgListener;
use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::{database::Connection, error::StoreError, query::text};

/// The only channel, because a database holds one store.
const CHANNEL: &str = "gpuaas_changes";
/// Most bytes per notification; PostgreSQL's limit is below 8,000.
const PAYLOAD_BYTES_MAX: usize = 7_000;

/// A hint that something was committed. Hints may be lost; a subscriber that must be certain reads rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An event was appended.
    Event {
        /// The stream that it was appended to.
        stream: StreamName,
        /// Its number within that stream.
        sequence: u64,
    },
    /// An operation was accepted, its cancellation was requested, or it yields to a person.
    Operation(OperationId),
    /// A node, its allocation or its connection changed, and with them perhaps its rights and the access to it.
    Node(NodeId),
    /// A token was revoked, or one of its browsers signed out.
    Token(TokenId),
    /// A task-signing key or an authority was created or changed.
    Keys,
    /// Another sealing key is in use, or more rows were sealed under the current one.
    Sealing,
    /// Hints of other processes may have been lost: anything may have changed.
    Missed,
}

/// A listener task; aborted when the last clone of its store is dropped.
pub(crate) type Listener = Arc<AbortOnDropHandle<()>>;

/// Announces hints to other processes. PostgreSQL delivers them when, and only if, the transaction commits.
pub(crate) async fn announce(
    connection: &mut Connection,
    origin: Uuid,
    hints: impl Iterator<Item = &Change>,
) -> Result<(), StoreError> {
    for payload in payloads(origin, hints) {
        connection.execute("select pg_notify($1, $2)", vec![text(CHANNEL), text(payload)]).await?;
    }
    Ok(())
}

/// Listens for hints from other processes than `origin`. Receives everything that is committed after this returns.
pub(crate) async fn listen(
    url: String,
    origin: Uuid,
    changes: broadcast::Sender<Change>,
) -> Result<Listener, StoreError> {
    let mut listener = connect(&url).await?;
    let relay = async move {
        loop {
            while let Ok(Some(notification)) = listener.try_recv().await {
                for change in received_changes(origin, notification.payload()) {
                    // Without subscribers the hint is not needed: they read rows.
                    let _ = changes.send(change);
                }
            }
            tracing::warn!("the connection for the database's notifications was lost; reconnecting");
            listener = reconnect(&url).await;
            let _ = changes.send(Change::Missed);
        }
    };
    Ok(Arc::new(AbortOnDropHandle::new(tokio::spawn(relay))))
}

async fn connect(url: &str) -> Result<PgListener, StoreError> {
    let mut listener = PgListener::connect(url).await?;
    // Makes the listener report a lost connection instead of hiding it.
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

async fn reconnect(url: &str) -> PgListener {
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times();
    loop {
        if let Ok(listener) = (|| connect(url)).retry(backoff).await {
            return listener;
        }
    }
}

fn payloads<'a>(origin: Uuid, hints: impl Iterator<Item = &'a Change>) -> Vec<String> {
    let mut payloads: Vec<String> = Vec::new();
    for line in hints.filter_map(encode) {
        match payloads.last_mut().filter(|payload| payload.len() + line.len() < PAYLOAD_BYTES_MAX) {
            Some(payload) => {
                payload.push('\n');
                payload.push_str(&line);
            }
            None => payloads.push(format!("{origin}\n{line}")),
        }
    }
    payloads
}

fn encode(change: &Change) -> Option<String> {
    match change {
        Change::Event { stream, sequence } => Some(format!("event {stream} {sequence}")),
        Change::Operation(id) => Some(format!("operation {id}")),
        Change::Node(id) => Some(format!("node {id}")),
        Change::Token(id) => Some(format!("token {id}")),
        Change::Keys => Some("keys".to_owned()),
        Change::Sealing => Some("sealing".to_owned()),
        Change::Missed => None,
    }
}

/// Parses a payload; empty for one of this process. A line that this version does not know counts as
/// [`Change::Missed`].
fn received_changes(origin: Uuid, payload: &str) -> Vec<Change> {
    let (from, lines) = payload.split_once('\n').unwrap_or((payload, ""));
    if from == origin.to_string() {
        return Vec::new();
    }
    lines.lines().map(|line| decode(line).unwrap_or(Change::Missed)).collect()
}

fn decode(line: &str) -> Option<Change> {
    let mut fields = line.split(' ');
    let change = match fields.next()? {
        "event" => Change::Event { stream: fields.next()?.parse().ok()?, sequence: fields.next()?.parse().ok()? },
        "operation" => Change::Operation(fields.next()?.parse().ok()?),
        "node" => Change::Node(fields.next()?.parse().ok()?),
        "token" => Change::Token(fields.next()?.parse().ok()?),
        "keys" => Change::Keys,
        "sealing" => Change::Sealing,
        _ => return None,
    };
    fields.next().is_none().then_some(change)
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{NodeId, OperationId, ProjectId, StreamName, TokenId};

    use super::*;

    #[test]
    fn hints_are_received_by_other_processes_but_not_by_their_sender() {
        let (here, there) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let hints = [
            Change::Event { stream: StreamName::Platform, sequence: 7 },
            Change::Event { stream: StreamName::Project(ProjectId::from_uuid(Uuid::from_u128(3))), sequence: 1 },
            Change::Operation(OperationId::from_uuid(Uuid::from_u128(4))),
            Change::Node(NodeId::from_uuid(Uuid::from_u128(5))),
            Change::Token(TokenId::from_uuid(Uuid::from_u128(6))),
            Change::Keys,
            Change::Sealing,
        ];
        let payloads = payloads(here, hints.iter());
        assert_eq!(payloads.len(), 1);
        assert_eq!(received_changes(there, &payloads[0]), hints);
        assert_eq!(received_changes(here, &payloads[0]), []);
    }

    #[test]
    fn many_hints_stay_below_the_limit_of_a_notification() {
        let hint = Change::Operation(OperationId::from_uuid(Uuid::from_u128(4)));
        let payloads = payloads(Uuid::from_u128(1), [hint; 1_000].iter());
        assert!(payloads.iter().all(|payload| payload.len() < 8_000));
        let total: usize = payloads.iter().map(|payload| received_changes(Uuid::nil(), payload).len()).sum();
        assert_eq!(total, 1_000);
    }

    #[test]
    fn unknown_hint_counts_as_missed() {
        let payload = format!("{}\nfuture hint", Uuid::from_u128(1));
        assert_eq!(received_changes(Uuid::from_u128(2), &payload), [Change::Missed]);
    }
}
