//! Masks, and what the unit files say about a unit.

use futures::{FutureExt, StreamExt};
use gpuaas_host::{Changed, HostError, UnitFileState};

use crate::{Backend, Bench};

const INSTALL: &str = "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n";

/// Installs a unit where a distribution puts it: systemd refuses to mask one that the administrator wrote.
async fn installed(bench: &Bench, unit: &str) {
    bench.file(&format!("/usr/local/lib/systemd/system/{unit}"), 0o644, INSTALL).await;
    bench.host.units().daemon_reload().await.unwrap();
}

/// Removes the unit; the backend's own clearing does not know its folder.
async fn remove(bench: &Bench, unit: &str) {
    bench.host.units().disable(unit).await.unwrap();
    bench.host.files().remove(format!("/usr/local/lib/systemd/system/{unit}").as_str().into()).await.unwrap();
    bench.host.units().daemon_reload().await.unwrap();
}

pub async fn masked_unit_starts_only_after_its_mask_is_lifted(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    installed(&bench, "hidden.service").await;
    let units = bench.host.units();
    assert_eq!(units.unmask("hidden.service").await.unwrap(), Changed::No, "it is not masked yet");
    assert_eq!(units.enable("hidden.service").await.unwrap(), Changed::Yes);
    assert_eq!(bench.run("systemctl mask hidden.service").await.status, Some(0));
    units.daemon_reload().await.unwrap();
    for refused in [units.start("hidden.service").await, units.enable("hidden.service").await] {
        assert!(matches!(&refused, Err(HostError::Unit { message, .. }) if message.contains("masked")), "{refused:?}");
    }
    assert_eq!(bench.status("hidden.service").await.active, "inactive", "a masked unit still has a status");
    assert_eq!(units.stop("hidden.service").await.unwrap(), Changed::No);
    assert_eq!(units.unmask("hidden.service").await.unwrap(), Changed::Yes);
    assert_eq!(units.unmask("hidden.service").await.unwrap(), Changed::No);
    assert_eq!(bench.status("hidden.service").await.active, "inactive", "lifting a mask starts nothing");
    assert_eq!(units.unit_file_state("hidden.service").await.unwrap(), UnitFileState::Enabled, "as before the mask");
    assert_eq!(units.start("hidden.service").await.unwrap(), Changed::Yes);
    bench.until_running("hidden.service").await;
    assert_eq!(bench.run("systemctl mask hidden.service").await.status, Some(0));
    units.daemon_reload().await.unwrap();
    assert_eq!(bench.status("hidden.service").await.active, "active", "a mask stops nothing");
    assert_eq!(units.stop("hidden.service").await.unwrap(), Changed::Yes);
    assert_eq!(units.unmask("hidden.service").await.unwrap(), Changed::Yes);
    assert_eq!(units.unmask("nowhere.service").await.unwrap(), Changed::No, "a missing unit has no mask");
    remove(&bench, "hidden.service").await;
}

pub async fn unit_file_state_says_what_starts_at_boot(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let state = async || bench.host.units().unit_file_state("boots.service").await.unwrap();
    assert_eq!(state().await, UnitFileState::Missing);
    installed(&bench, "boots.service").await;
    assert_eq!(state().await, UnitFileState::Disabled);
    bench.host.units().enable("boots.service").await.unwrap();
    assert_eq!(state().await, UnitFileState::Enabled);
    bench.run("systemctl mask boots.service").await;
    assert_eq!(state().await, UnitFileState::Masked);
    bench.run("systemctl unmask boots.service").await;
    bench.host.units().disable("boots.service").await.unwrap();
    assert_eq!(state().await, UnitFileState::Disabled);
    remove(&bench, "boots.service").await;
    assert_eq!(state().await, UnitFileState::Missing);
}

pub async fn paths_of_enablement_change_with_it(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    installed(&bench, "watched.service").await;
    let paths = bench.host.units().enablement_paths("watched.service");
    let mut changes = bench.host.inventory().changes(&paths).await.unwrap();
    assert!(changes.next().now_or_never().is_none(), "nothing has changed yet");
    for verb in ["enable", "mask", "unmask", "disable"] {
        assert_eq!(bench.run(&format!("systemctl {verb} watched.service")).await.status, Some(0), "{verb}");
        let change = tokio::time::timeout(crate::WAIT_MAX / 2, changes.next()).await;
        assert_eq!(change, Ok(Some(())), "{verb}");
        // A verb can make several changes.
        while let Some(Some(())) = changes.next().now_or_never() {}
    }
    remove(&bench, "watched.service").await;
}
