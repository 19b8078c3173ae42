//! Changes that wait for the writer share a commit, and each of them is still atomic.

use std::{future::Future, pin::pin, time::Duration};

use futures::poll;
use gpuaas_model::StreamName;
use gpuaas_store::{Change, Page, Store, StoreError};
use tokio::{task::JoinHandle, time::timeout};

use super::{
    database::{Database, run_concurrently},
    given,
};

/// Time after which a change counts as hanging.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A change that inserts a project and an event.
async fn insert(store: &Store, name: &str) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    tx.insert_project(&given::project(name)).await?;
    tx.append_event(&given::event(StreamName::Platform)).await?;
    tx.commit().await
}

async fn names(store: &Store) -> Vec<String> {
    let mut reader = store.read().await.unwrap();
    let projects = reader.projects(None, &Page::default()).await.unwrap();
    projects.into_iter().map(|project| project.name.to_string()).collect()
}

/// Starts the change, and returns when it waits for the writer.
async fn spawn_waiting<T: Send + 'static>(change: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let waits = tokio::spawn(change);
    // The queue is first in, first out, and does not show when a change has joined it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waits.is_finished());
    waits
}

pub(crate) async fn waiting_changes_share_a_commit(database: Database) {
    let store = database.open().await;
    let before = store.counts();
    let first = store.begin().await.unwrap();
    let mut others = Vec::new();
    for index in 0..20 {
        let store = store.clone();
        others.push(spawn_waiting(async move { insert(&store, &format!("p-{index:02}")).await }).await);
    }
    first.commit().await.unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    let after = store.counts();
    assert_eq!(after.changes - before.changes, 21);
    assert!(after.commits - before.commits < 11, "{} commits of 21 changes", after.commits - before.commits);
    assert_eq!(names(&database.open().await).await.len(), 20, "another process sees all of them");
}

pub(crate) async fn dropped_change_does_not_affect_its_group(database: Database) {
    let store = database.open().await;
    let mut first = store.begin().await.unwrap();
    first.insert_project(&given::project("first")).await.unwrap();
    let dropped = {
        let store = store.clone();
        spawn_waiting(async move {
            let mut tx = store.begin().await.unwrap();
            tx.insert_project(&given::project("dropped")).await.unwrap();
            tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
        })
        .await
    };
    let failed = {
        let store = store.clone();
        spawn_waiting(async move { insert(&store, "first").await }).await
    };
    let last = {
        let store = store.clone();
        spawn_waiting(async move { insert(&store, "last").await }).await
    };
    first.commit().await.unwrap();
    dropped.await.unwrap();
    let failed = failed.await.unwrap();
    assert!(matches!(failed, Err(StoreError::NameTaken { .. })), "{failed:?}");
    last.await.unwrap().unwrap();
    assert_eq!(names(&store).await, ["first", "last"]);
    assert_eq!(database.number("select last_sequence from streams where stream = 'platform'").await, 1);
}

pub(crate) async fn failed_group_commit_fails_every_change_of_the_group(database: Database) {
    let store = database.open().await;
    database.sql(&refuse_commits_of("bad", database.is_shared())).await.unwrap();
    let mut changes = store.changes();
    let mut first = store.begin().await.unwrap();
    first.insert_project(&given::project("good")).await.unwrap();
    first.append_event(&given::event(StreamName::Platform)).await.unwrap();
    let bad = {
        let store = store.clone();
        spawn_waiting(async move { insert(&store, "bad").await }).await
    };
    let first = timeout(WAIT_MAX, first.commit()).await.unwrap();
    let bad = timeout(WAIT_MAX, bad).await.unwrap().unwrap();
    assert!(first.is_err() && bad.is_err(), "{first:?}, {bad:?}");
    assert_eq!(names(&store).await, [""; 0]);
    assert!(changes.try_recv().is_err(), "a hint was sent");
    insert(&store, "later").await.expect("the writer accepts changes again");
    assert_eq!(names(&store).await, ["later"]);
    assert_eq!(changes.recv().await.unwrap(), Change::Event { stream: StreamName::Platform, sequence: 1 });
}

/// SQL that makes the database refuse to commit a project of that name, by a deferred foreign key, which is checked at the commit.
fn refuse_commits_of(name: &str, is_server: bool) -> String {
    let tables = "create table things (id text primary key); \
                  create table references_ (id text references things (id) deferrable initially deferred);";
    let insert = format!("insert into references_ (id) values ('nothing-{name}');");
    match is_server {
        false => format!(
            "{tables} create trigger refuses after insert on projects when new.name = '{name}' begin {insert} end;"
        ),
        true => format!(
            "{tables} create function refuses() returns trigger language plpgsql as $$ begin \
             if new.name = '{name}' then {insert} end if; return new; end; $$; \
             create trigger refuses after insert on projects for each row execute function refuses();"
        ),
    }
}

pub(crate) async fn group_is_committed_when_the_next_waiting_change_is_cancelled(database: Database) {
    let store = database.open().await;
    for _ in 0..20 {
        let mut first = store.begin().await.unwrap();
        first.append_event(&given::event(StreamName::Platform)).await.unwrap();
        let first = {
            let mut cancelled = pin!(store.begin());
            assert!(poll!(&mut cancelled).is_pending());
            let mut first = Box::pin(first.commit());
            // The waiting change now has the writer, and with it the group.
            let ended = poll!(&mut first);
            (first, ended.is_ready())
        };
        if !first.1 {
            timeout(WAIT_MAX, first.0).await.expect("the group is committed").unwrap();
        }
    }
    assert_eq!(database.number("select last_sequence from streams where stream = 'platform'").await, 20);
}

pub(crate) async fn group_size_is_limited_under_load(database: Database) {
    let store = database.open().await;
    let before = store.counts();
    run_concurrently(40, |writer| {
        let store = store.clone();
        async move {
            for turn in 0..10 {
                insert(&store, &format!("p-{writer}-{turn}")).await.unwrap();
            }
        }
    })
    .await;
    let after = store.counts();
    let (changes, commits) = (after.changes - before.changes, after.commits - before.commits);
    assert_eq!(changes, 400);
    assert!((7..200).contains(&commits), "{commits} commits: groups must have more than one change and at most 64");
    assert_eq!(database.number("select last_sequence from streams where stream = 'platform'").await, 400);
}
