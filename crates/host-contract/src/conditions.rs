//! Conditions and commands before a unit's program: a skip is not a failure and a failure is not a skip, although `systemctl`'s exit code
//! shows neither.

use futures::StreamExt;

use crate::{Backend, Bench};

/// Writes a mark and keeps running.
const MARKS: &str = "echo ran >> $root/tmp/marks; exec sleep 1000";

pub async fn unmet_path_condition_skips_the_start(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let conditions = "ConditionPathExists=/etc/contract/wanted\nConditionPathExists=!/etc/contract/unwanted";
    bench.unit("asks", conditions, "Restart=always", MARKS).await;
    for missing in ["ConditionPathExists=/etc/contract/wanted", "ConditionPathExists=!/etc/contract/unwanted"] {
        bench.host.units().start("asks.service").await.unwrap();
        bench.wait_for_line("asks.service", missing).await;
        let status = bench.until_active_is("asks.service", "inactive").await;
        assert_eq!((status.result.as_str(), status.n_restarts), ("success", 0));
        for file in ["/etc/contract/wanted", "/etc/contract/unwanted"] {
            bench.file(file, 0o600, "").await;
        }
    }
    assert_eq!(bench.text("/tmp/marks").await, "");
    bench.host.files().remove("/etc/contract/unwanted".into()).await.unwrap();
    bench.host.units().start("asks.service").await.unwrap();
    bench.until_running("asks.service").await;
}

pub async fn failed_exec_condition_skips_the_start(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.program("says-no", "exit 1").await;
    bench.service("asks", "ExecCondition=/usr/local/bin/says-no\nRestart=always", MARKS).await;
    bench.host.units().start("asks.service").await.unwrap();
    bench.wait_for_line("asks.service", "Skipped due to 'exec-condition'").await;
    let status = bench.until_active_is("asks.service", "inactive").await;
    assert_eq!(status.n_restarts, 0);
    assert_eq!(bench.text("/tmp/marks").await, "");
    // `systemctl` treats a skip as a success.
    assert_eq!(bench.run("systemctl start asks.service").await.status, Some(0));
}

pub async fn exec_condition_with_status_255_fails_the_start(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.program("breaks", "exit 255").await;
    bench.service("asks", "ExecCondition=/usr/local/bin/breaks", MARKS).await;
    bench.host.units().start("asks.service").await.unwrap();
    assert_eq!(bench.until_active_is("asks.service", "failed").await.result, "exit-code");
    assert_eq!(bench.text("/tmp/marks").await, "");
}

pub async fn failed_start_pre_fails_the_unit(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.program("prepares", "exit 7").await;
    bench.service("prepared", "ExecStartPre=/usr/local/bin/prepares", MARKS).await;
    bench.host.units().start("prepared.service").await.unwrap();
    let status = bench.until_active_is("prepared.service", "failed").await;
    assert_eq!((status.result.as_str(), status.main_pid), ("exit-code", 0));
    assert_eq!(bench.text("/tmp/marks").await, "");
    assert_eq!(bench.run("systemctl start prepared.service").await.status, Some(1));
}

pub async fn optional_start_pre_may_fail(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.program("prepares", "exit 7").await;
    let pre = "ExecStartPre=-/usr/local/bin/prepares\nExecStartPre=-/sbin/nowhere";
    bench.service("prepared", pre, MARKS).await;
    bench.host.units().start("prepared.service").await.unwrap();
    bench.until_running("prepared.service").await;
}

pub async fn skip_differs_from_success(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.program("says-no", "exit 1").await;
    bench.service("skipped", "ExecCondition=/usr/local/bin/says-no", MARKS).await;
    bench.service("succeeds", "ExecCondition=/bin/true", "exit 0").await;
    for (name, result) in [("skipped.service", "exec-condition"), ("succeeds.service", "success")] {
        // Subscribed before the start: systemd can unload a unit that is at rest, and its result is lost then.
        let events = bench.host.units().unit_events(name).await.unwrap();
        bench.host.units().start(name).await.unwrap();
        let moved = events.skip_while(|status| std::future::ready(status.active == "inactive"));
        let ended = moved.skip_while(|status| std::future::ready(status.active != "inactive"));
        let ended = Box::pin(ended).next().await.unwrap();
        assert_eq!((ended.result.as_str(), ended.n_restarts), (result, 0), "{name}");
    }
}
