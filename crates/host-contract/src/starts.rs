//! Starts: the unit's state during a start, and the signs of a start that fails.

use futures::StreamExt;
use gpuaas_host::{Changed, HostError, now};

use crate::{Backend, Bench};

/// Becomes ready when it reads a byte from the named pipe that it creates.
const GATED: &str = "mkfifo $root/tmp/gate; echo say: begun; read byte < $root/tmp/gate; $ready; exec sleep 1000";

pub async fn simple_unit_runs_as_soon_as_it_is_started(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("plain", "Type=simple", "exec sleep 1000").await;
    assert_eq!(bench.status("plain.service").await.active, "inactive");
    let before = now();
    assert_eq!(bench.host.units().start("plain.service").await.unwrap(), Changed::Yes);
    let status = bench.until_running("plain.service").await;
    assert!(status.started_at.is_some_and(|at| before <= at && at <= now()), "{status:?} after {before}");
    assert!(status.main_pid > 0 && bench.is_process_running(status.main_pid).await);
    assert_eq!((status.result.as_str(), status.n_restarts, status.exec_main_status), ("success", 0, 0));
    assert_eq!(bench.host.units().start("plain.service").await.unwrap(), Changed::No);
    assert_eq!(bench.status("plain.service").await, status, "the second start changed nothing");
}

pub async fn notify_unit_is_activating_until_ready(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("gated", "Type=notify\nNotifyAccess=all", GATED).await;
    bench.host.units().start("gated.service").await.unwrap();
    bench.wait_for_line("gated.service", "say: begun").await;
    let status = bench.status("gated.service").await;
    assert_eq!((status.active.as_str(), status.sub.as_str()), ("activating", "start"));
    assert!(!status.is_running() && status.main_pid > 0);
    bench.run("echo > $root/tmp/gate").await;
    assert_eq!(bench.until_running("gated.service").await.main_pid, status.main_pid);
}

pub async fn start_without_notification_times_out(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("mute", "Type=notify\nTimeoutStartSec=300ms", "echo say: pid $$; exec sleep 1000").await;
    bench.host.units().start("mute.service").await.unwrap();
    let status = bench.until_active_is("mute.service", "failed").await;
    assert_eq!((status.result.as_str(), status.main_pid), ("timeout", 0));
    bench.wait_for_line("mute.service", "timed out").await;
    let pid = bench.number("mute.service", "say: pid").await;
    assert!(!bench.is_process_running(pid).await, "a program that never became ready is killed");
}

pub async fn notify_unit_that_exits_before_ready_fails(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("brief", "Type=notify", "exit 0").await;
    bench.host.units().start("brief.service").await.unwrap();
    let status = bench.until_active_is("brief.service", "failed").await;
    assert_eq!((status.result.as_str(), status.exec_main_status), ("protocol", 0));
}

pub async fn changed_unit_file_applies_after_a_reload(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("changed", "Environment=WORD=old", "echo say: $WORD; exec sleep 1000").await;
    bench.host.units().start("changed.service").await.unwrap();
    bench.wait_for_line("changed.service", "say: old").await;
    let before = bench.until_running("changed.service").await;
    bench.service("changed", "Environment=WORD=new", "echo say: $WORD; exec sleep 1000").await;
    assert_eq!(bench.status("changed.service").await, before, "a reload does not change a running unit");
    bench.host.units().stop("changed.service").await.unwrap();
    bench.host.units().start("changed.service").await.unwrap();
    bench.wait_for_line("changed.service", "say: new").await;
}

pub async fn missing_unit_differs_from_inactive_unit(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("there", "", "exec sleep 1000").await;
    assert_eq!(bench.host.units().unit("nowhere.service").await.unwrap(), None);
    assert_eq!(bench.status("there.service").await.active, "inactive");
    for refused in
        [bench.host.units().start("nowhere.service").await, bench.host.units().enable("nowhere.service").await]
    {
        assert!(matches!(refused, Err(HostError::Unit { unit, .. }) if unit == "nowhere.service"));
    }
    let signals = bench.host.units().unit_events("nowhere.service").await.unwrap().count().await;
    assert_eq!(signals, 0, "a missing unit sends no signals");
}

pub async fn missing_program_is_status_203(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("lost", "", "exit 0").await;
    bench.host.files().remove("/usr/local/bin/lost".into()).await.unwrap();
    bench.host.units().start("lost.service").await.unwrap();
    let status = bench.until_active_is("lost.service", "failed").await;
    assert_eq!((status.result.as_str(), status.exec_main_status), ("exit-code", 203));
}

pub async fn environment_files_override_the_unit_and_each_other(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file("/etc/contract/one.env", 0o600, "# a comment\n; another\nA=one\nB=\"of one\"\n\nC='of one'\n").await;
    bench.file("/etc/contract/two.env", 0o600, "C=two\n").await;
    let files = "EnvironmentFile=/etc/contract/one.env\nEnvironmentFile=-/etc/contract/two.env";
    let program = "echo \"say: $A,$B,$C,$D\"; exec sleep 1000";
    bench.service("env", &format!("{files}\nEnvironment=A=unit D=unit"), program).await;
    bench.host.units().start("env.service").await.unwrap();
    let line = bench.wait_for_line("env.service", "say:").await;
    assert_eq!(line.text, "say: one,of one,two,unit");
}

pub async fn missing_environment_file_fails_the_start_unless_optional(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("strict", "EnvironmentFile=/etc/contract/nowhere", "exec sleep 1000").await;
    bench.host.units().start("strict.service").await.unwrap();
    assert_eq!(bench.until_active_is("strict.service", "failed").await.result, "resources");
    bench.service("lenient", "EnvironmentFile=-/etc/contract/nowhere", "exec sleep 1000").await;
    bench.host.units().start("lenient.service").await.unwrap();
    bench.until_running("lenient.service").await;
}
