//! Hints that files or the enablement of an app's unit may have changed: the control plane then looks, and decides what to do.
//!
//! Guarantees: only paths of the apps' closed lists are watched; a hint follows the last change within [`QUIET_TIME`], or a first change
//! within [`DELAY_MAX`]; the first hint comes at once, because nobody watched before. Changes that the agent's own tasks make are hints too.

use std::{sync::Arc, time::Duration};

use camino::Utf8PathBuf;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use gpuaas_app_rke2_handlers::{UNITS, WATCHED};
use gpuaas_host::Host;
use gpuaas_wire::session::DriftHint;
use tokio::time::{Instant, timeout_at};

/// Time without a change after which a hint is sent: an editor or a tool changes several files at once.
const QUIET_TIME: Duration = Duration::from_millis(500);
/// Longest time from a change to its hint while changes continue.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// Streams the hints for a unit; `None` if it is no unit of an app, or its files cannot be watched.
pub(crate) async fn hints(host: &Arc<dyn Host>, unit: &str) -> Option<impl Stream<Item = DriftHint> + Send + use<>> {
    let unit = UNITS.into_iter().find(|of_app| *of_app == unit)?;
    let files = WATCHED.iter().map(Utf8PathBuf::from);
    let paths: Vec<Utf8PathBuf> = files.chain(host.units().enablement_paths(unit)).collect();
    let changes = host.inventory().changes(&paths).await;
    let changes = changes.inspect_err(|error| tracing::warn!(unit, %error, "no drift of this unit is reported"));
    let first = stream::once(std::future::ready(()));
    Some(first.chain(debounced(changes.ok()?)).map(|()| DriftHint { drifted: unit.to_owned() }))
}

/// Yields once for changes that follow each other.
fn debounced(changes: BoxStream<'static, ()>) -> impl Stream<Item = ()> + Send {
    stream::unfold(changes, |mut changes| async move {
        changes.next().await?;
        let latest = Instant::now() + DELAY_MAX;
        while let Ok(Some(())) = timeout_at(latest.min(Instant::now() + QUIET_TIME), changes.next()).await {}
        Some(((), changes))
    })
}

#[cfg(test)]
mod tests {
    use gpuaas_handler::test_host::sandbox;
    use gpuaas_host::WATCHED_PATHS_MAX;

    use super::*;

    #[tokio::test]
    async fn change_of_a_watched_file_is_hinted_and_other_units_are_not_watched() {
        let (folder, host) = sandbox(&[("/etc/rancher/rke2/config.yaml", "a: 1\n")]);
        let mut hints = Box::pin(hints(&host, UNITS[0]).await.unwrap());
        let hint = DriftHint { drifted: UNITS[0].to_owned() };
        assert_eq!(hints.next().await, Some(hint.clone()), "nobody watched before");
        for text in ["a: 2\n", "a: 3\n"] {
            std::fs::write(folder.path().join("etc/rancher/rke2/config.yaml"), text).unwrap();
        }
        assert_eq!(hints.next().await, Some(hint), "one hint for both");
        let more = tokio::time::timeout(QUIET_TIME * 2, hints.next()).await;
        assert!(more.is_err(), "{more:?}");
        for other in ["gpuaas-agent.service", "ssh.service", "../rke2-server.service"] {
            assert!(super::hints(&host, other).await.is_none(), "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_end_are_hinted_again_and_again() {
        let changes = stream::unfold((), |()| async {
            tokio::time::sleep(QUIET_TIME / 2).await;
            Some(((), ()))
        });
        let began = Instant::now();
        let hints: Vec<()> = debounced(changes.boxed()).take(3).collect().await;
        assert_eq!(hints.len(), 3);
        assert!((DELAY_MAX * 3..DELAY_MAX * 4).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn paths_of_each_unit_fit_into_one_watch() {
        let (_folder, host) = sandbox(&[]);
        for unit in UNITS {
            // A machine has one path more than a sandbox.
            assert!(WATCHED.len() + host.units().enablement_paths(unit).len() < WATCHED_PATHS_MAX, "{unit}");
        }
    }
}
