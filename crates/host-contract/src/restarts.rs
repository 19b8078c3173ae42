//! Restarts, as observed with RKE2's units: a program that exits is restarted in a loop, and only the counters show it.

use std::time::{Duration, Instant};

use futures::StreamExt;
use gpuaas_host::{Changed, UnitStatus};

use crate::{Backend, Bench};

pub async fn crash_loop_without_start_limit_never_fails(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let service = "Type=notify\nRestart=always\nRestartSec=150ms";
    bench.unit("loops", "StartLimitIntervalSec=0", service, "exit 3").await;
    let events = bench.host.units().unit_events("loops.service").await.unwrap();
    let began = Instant::now();
    bench.host.units().start("loops.service").await.unwrap();
    let seen: Vec<UnitStatus> = events.take_while(|status| std::future::ready(status.n_restarts < 7)).collect().await;
    assert!(began.elapsed() >= 7 * Duration::from_millis(150), "each restart waits");
    assert!(seen.iter().all(|status| status.active != "failed"), "{seen:#?}");
    // The counter is raised at the end of the wait, while the unit is still in `auto-restart`.
    let waits = seen.iter().filter(|status| status.sub == "auto-restart").map(|status| status.n_restarts);
    let mut counted: Vec<u32> = waits.collect();
    assert!(counted.is_sorted(), "{counted:?}");
    counted.dedup();
    assert_eq!(counted, [0, 1, 2, 3, 4, 5, 6]);
    let waiting = seen.iter().find(|status| status.sub == "auto-restart").unwrap();
    let reported = (waiting.active.as_str(), waiting.result.as_str(), waiting.exec_main_status, waiting.main_pid);
    assert_eq!(reported, ("activating", "exit-code", 3, 0));
    bench.host.units().stop("loops.service").await.unwrap();
    assert_eq!(bench.status("loops.service").await.n_restarts, 0, "a stop resets the restart counter");
    // The job of a blocking start fails with the first exit, although the unit is restarted.
    assert_eq!(bench.run("systemctl start loops.service").await.status, Some(1));
}

pub async fn start_limit_fails_the_unit_until_reset(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let limit = "StartLimitIntervalSec=600\nStartLimitBurst=3";
    bench.unit("quick", limit, "Restart=always\nRestartSec=10ms", "echo ran >> $root/tmp/marks; exit 3").await;
    bench.host.units().start("quick.service").await.unwrap();
    let status = bench.until_active_is("quick.service", "failed").await;
    assert_eq!((status.result.as_str(), status.n_restarts, status.exec_main_status), ("exit-code", 3, 3));
    bench.wait_for_line("quick.service", "Start request repeated too quickly").await;
    assert_eq!(bench.run("systemctl start quick.service").await.status, Some(1));
    assert_eq!(bench.status("quick.service").await.active, "failed");
    assert_eq!(bench.text("/tmp/marks").await, "ran\n".repeat(3));
    assert_eq!(
        bench.host.units().stop("quick.service").await.unwrap(),
        Changed::No,
        "a failed unit has nothing to stop"
    );
    for changed in [Changed::Yes, Changed::No] {
        assert_eq!(bench.host.units().reset_failed("quick.service").await.unwrap(), changed);
        assert_eq!(bench.status("quick.service").await.active, "inactive");
    }
    bench.host.units().start("quick.service").await.unwrap();
    bench.until_active_is("quick.service", "failed").await;
    assert_eq!(bench.text("/tmp/marks").await, "ran\n".repeat(6));
    assert_eq!(bench.run("systemctl reset-failed quick.service").await.status, Some(0));
    assert_eq!(bench.status("quick.service").await.active, "inactive");
}

pub async fn exit_0_is_restarted_with_restart_always(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench
        .service(
            "again",
            "Restart=always\nRestartSec=10ms",
            "test -e $root/tmp/once || { touch $root/tmp/once; exit 0; }; exec sleep 1000",
        )
        .await;
    bench.host.units().start("again.service").await.unwrap();
    let status = bench.until("again.service", |status| status.is_running() && status.n_restarts == 1).await;
    assert_eq!((status.result.as_str(), status.exec_main_status), ("success", 0));
}

pub async fn exit_0_is_not_restarted_with_restart_on_failure(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("fine", "Restart=on-failure\nRestartSec=10ms", "echo ran >> $root/tmp/marks; exit 0").await;
    bench.host.units().start("fine.service").await.unwrap();
    bench.wait_for_line("fine.service", "Deactivated successfully").await;
    let status = bench.until_active_is("fine.service", "inactive").await;
    assert_eq!((status.result.as_str(), status.n_restarts), ("success", 0));
    assert_eq!(bench.text("/tmp/marks").await, "ran\n");
    bench.service("bad", "Restart=on-failure\nRestartSec=10ms", "exit 1").await;
    bench.host.units().start("bad.service").await.unwrap();
    bench.until("bad.service", |status| status.n_restarts > 0).await;
}

pub async fn killed_program_is_restarted_and_counted(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("victim", "Restart=on-failure\nRestartSec=10ms", "exec sleep 1000").await;
    bench.host.units().start("victim.service").await.unwrap();
    let first = bench.until_running("victim.service").await;
    bench.run(&format!("kill -9 {}", first.main_pid)).await;
    let second = bench.until("victim.service", |status| status.is_running() && status.n_restarts == 1).await;
    assert_ne!(first.main_pid, second.main_pid);
    assert!(first.started_at < second.started_at, "{first:?}, {second:?}");
    assert_eq!(second.exec_main_status, 0, "a running program has no exit status");
}

pub async fn program_ended_by_sigterm_has_not_failed(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("watched", "Restart=on-failure\nRestartSec=10ms", "exec sleep 1000").await;
    bench.host.units().start("watched.service").await.unwrap();
    let status = bench.until_running("watched.service").await;
    bench.run(&format!("kill -TERM {}", status.main_pid)).await;
    let ended = bench.until("watched.service", |status| status.main_pid == 0 && status.active != "active").await;
    let ended =
        if ended.active == "deactivating" { bench.until_active_is("watched.service", "inactive").await } else { ended };
    assert_eq!((ended.active.as_str(), ended.result.as_str(), ended.n_restarts), ("inactive", "success", 0));
}

pub async fn stop_ends_the_wait_for_a_restart(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("waits", "Restart=always\nRestartSec=1000", "exit 3").await;
    bench.host.units().start("waits.service").await.unwrap();
    bench.until("waits.service", |status| status.sub == "auto-restart").await;
    assert_eq!(bench.host.units().start("waits.service").await.unwrap(), Changed::No, "the unit is already starting");
    assert_eq!(bench.host.units().stop("waits.service").await.unwrap(), Changed::Yes);
    let status = bench.status("waits.service").await;
    assert_eq!((status.active.as_str(), status.n_restarts), ("inactive", 0));
}
