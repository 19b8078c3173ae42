//! Stops: which processes end, how long they may take, and that a second stop changes nothing.

use std::time::{Duration, Instant};

use futures::StreamExt;
use gpuaas_host::{Changed, HostError};

use crate::{Backend, Bench};

/// The main process and a child in its own session.
const PARENT: &str = "setsid sleep 1000 & echo say: child $!; exec sleep 1000";

pub async fn stop_ends_every_process_of_the_unit(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("parent", "", PARENT).await;
    bench.host.units().start("parent.service").await.unwrap();
    let child = bench.number("parent.service", "say: child").await;
    bench.until_program_is(child, "sleep").await;
    let main = bench.until_running("parent.service").await.main_pid;
    assert!(bench.is_process_running(child).await && bench.is_process_running(main).await);
    assert_eq!(bench.host.units().stop("parent.service").await.unwrap(), Changed::Yes);
    assert!(!bench.is_process_running(child).await && !bench.is_process_running(main).await);
    let status = bench.status("parent.service").await;
    assert_eq!((status.active.as_str(), status.result.as_str(), status.main_pid), ("inactive", "success", 0));
}

pub async fn kill_mode_process_keeps_children(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("parent", "KillMode=process", PARENT).await;
    bench.host.units().start("parent.service").await.unwrap();
    let child = bench.number("parent.service", "say: child").await;
    bench.until_program_is(child, "sleep").await;
    let main = bench.until_running("parent.service").await.main_pid;
    bench.host.units().stop("parent.service").await.unwrap();
    assert!(bench.is_process_running(child).await && !bench.is_process_running(main).await);
    bench.run(&format!("kill -9 {child}")).await;
}

pub async fn children_do_not_outlive_a_main_process_that_ends(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let program = "setsid sleep 1000 & echo say: child $!; exit 0";
    bench.service("leaves", "", program).await;
    bench.host.units().start("leaves.service").await.unwrap();
    let child = bench.number("leaves.service", "say: child").await;
    bench.wait_for_line("leaves.service", "Deactivated successfully").await;
    bench.until_active_is("leaves.service", "inactive").await;
    assert!(!bench.is_process_running(child).await);
}

pub async fn unit_that_ignores_sigterm_is_killed_after_its_timeout(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let program = "trap '' TERM; echo say: deaf; while :; do sleep 1000; done";
    bench.service("deaf", "TimeoutStopSec=400ms", program).await;
    bench.host.units().start("deaf.service").await.unwrap();
    bench.wait_for_line("deaf.service", "say: deaf").await;
    let main = bench.until_running("deaf.service").await.main_pid;
    let began = Instant::now();
    assert_eq!(bench.host.units().stop("deaf.service").await.unwrap(), Changed::Yes);
    assert!(began.elapsed() >= Duration::from_millis(400), "the stop timeout passes first");
    assert!(!bench.is_process_running(main).await);
    let status = bench.status("deaf.service").await;
    assert_eq!((status.active.as_str(), status.result.as_str()), ("failed", "timeout"));
}

pub async fn stop_ends_a_unit_in_start_pre(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.program("prepares", "echo say: preparing $$; exec sleep 1000").await;
    bench.service("prepared", "ExecStartPre=/usr/local/bin/prepares", "exec sleep 1000").await;
    bench.host.units().start("prepared.service").await.unwrap();
    let pid = bench.number("prepared.service", "say: preparing").await;
    assert_eq!(
        bench.host.units().start("prepared.service").await.unwrap(),
        Changed::No,
        "the unit is already starting"
    );
    assert_eq!(bench.host.units().stop("prepared.service").await.unwrap(), Changed::Yes);
    assert!(!bench.is_process_running(pid).await);
    // A killed preparation counts as a failure; a killed main process would not.
    let status = bench.status("prepared.service").await;
    assert_eq!((status.active.as_str(), status.result.as_str()), ("failed", "signal"));
}

pub async fn stop_post_is_run(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.program("tidies", "echo tidied >> $root/tmp/marks").await;
    let service = "ExecStopPost=-/sbin/nowhere\nExecStopPost=/usr/local/bin/tidies";
    bench.service("tidied", service, "exec sleep 1000").await;
    bench.host.units().start("tidied.service").await.unwrap();
    bench.until_running("tidied.service").await;
    bench.host.units().stop("tidied.service").await.unwrap();
    assert_eq!(bench.text("/tmp/marks").await, "tidied\n");
}

pub async fn second_stop_changes_nothing(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("plain", "", "exec sleep 1000").await;
    assert_eq!(bench.host.units().stop("plain.service").await.unwrap(), Changed::No, "it never ran");
    bench.host.units().start("plain.service").await.unwrap();
    assert_eq!(bench.host.units().stop("plain.service").await.unwrap(), Changed::Yes);
    assert_eq!(bench.host.units().stop("plain.service").await.unwrap(), Changed::No);
    bench.host.units().start("plain.service").await.unwrap();
    bench.until_running("plain.service").await;
}

pub async fn second_enable_and_disable_change_nothing(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("plain", "\n[Install]\nWantedBy=multi-user.target", "exec sleep 1000").await;
    let enabled = async || bench.run("systemctl is-enabled plain.service").await.output.trim().to_owned();
    assert_eq!(enabled().await, "disabled");
    assert_eq!(bench.host.units().enable("plain.service").await.unwrap(), Changed::Yes);
    assert_eq!(bench.host.units().enable("plain.service").await.unwrap(), Changed::No);
    assert_eq!(enabled().await, "enabled");
    assert_eq!(bench.status("plain.service").await.active, "inactive", "enabling starts nothing");
    for changed in [Changed::Yes, Changed::No] {
        assert_eq!(bench.host.units().disable("plain.service").await.unwrap(), changed);
        assert_eq!(enabled().await, "disabled");
    }
    assert_eq!(bench.run("systemctl enable plain.service").await.status, Some(0));
    assert_eq!(bench.host.units().enable("plain.service").await.unwrap(), Changed::No);
    assert_eq!(bench.run("systemctl disable plain.service").await.status, Some(0));
    assert_eq!(bench.host.units().enable("plain.service").await.unwrap(), Changed::Yes);
    assert_eq!(
        bench.host.units().disable("nowhere.service").await.unwrap(),
        Changed::No,
        "a missing unit is not enabled"
    );
}

pub async fn signals_of_a_unit_end_when_it_is_removed(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("passing", "", "exec sleep 1000").await;
    bench.host.units().start("passing.service").await.unwrap();
    bench.until_running("passing.service").await;
    let events = bench.host.units().unit_events("passing.service").await.unwrap();
    bench.host.units().stop("passing.service").await.unwrap();
    for changed in [Changed::Yes, Changed::No] {
        let removed = bench.host.files().remove("/etc/systemd/system/passing.service".into()).await.unwrap();
        assert_eq!(removed, changed);
        bench.host.units().daemon_reload().await.unwrap();
    }
    let seen: Vec<String> = events.map(|status| status.active).collect().await;
    assert_eq!((seen.first().unwrap().as_str(), seen.last().unwrap().as_str()), ("active", "inactive"));
    assert_eq!(bench.host.units().unit("passing.service").await.unwrap(), None);
}

pub async fn unit_without_install_section_cannot_be_enabled(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("unwanted", "", "exec sleep 1000").await;
    let refused = bench.host.units().enable("unwanted.service").await;
    assert!(matches!(&refused, Err(HostError::Unit { message, .. }) if message.contains("[Install]")), "{refused:?}");
    assert_eq!(bench.host.units().disable("unwanted.service").await.unwrap(), Changed::No);
    bench.host.units().start("unwanted.service").await.unwrap();
    bench.until_running("unwanted.service").await;
}
