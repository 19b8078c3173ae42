//! Starts: the unit's state during a start, and the signs of a start that fails.

use futures::StreamExt;
use gpuaas_host::{Changed, HostError};

use crate::{Backend, Bench};

/// Becomes ready when it reads a byte from the named pipe that it creates.
const GATED: &str = "mkfifo $root/tmp/gate; echo say: begun; read byte < $root/tmp/gate; $ready; exec sleep 1000";

pub async fn a_simple_unit_runs_as_soon_as_it_is_started(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("plain", "Type=simple", "exec sleep 1000").await;
    assert_eq!(bench.status("plain.service").await.active, "inactive");
    assert_eq!(bench.host.start("plain.service").await.unwrap(), Changed::Yes);
    let status = bench.until_running("plain.service").await;
    assert!(status.main_pid > 0 && bench.runs(status.main_pid).await);
    assert_eq!((status.result.as_str(), status.n_restarts, status.exec_main_status), ("success", 0, 0));
    assert_eq!(bench.host.start("plain.service").await.unwrap(), Changed::No);
    assert_eq!(bench.status("plain.service").await, status, "the second start changed nothing");
}

pub async fn a_notify_unit_is_activating_until_it_says_ready(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("gated", "Type=notify\nNotifyAccess=all", GATED).await;
    bench.host.start("gated.service").await.unwrap();
    bench.says("gated.service", "say: begun").await;
    let status = bench.status("gated.service").await;
    assert_eq!((status.active.as_str(), status.sub.as_str()), ("activating", "start"));
    assert!(!status.is_running() && status.main_pid > 0);
    bench.run("echo > $root/tmp/gate").await;
    assert_eq!(bench.until_running("gated.service").await.main_pid, status.main_pid);
}

pub async fn a_start_that_never_notifies_times_out_and_says_so(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("mute", "Type=notify\nTimeoutStartSec=300ms", "echo say: pid $$; exec sleep 1000").await;
    bench.host.start("mute.service").await.unwrap();
    let status = bench.until_active_is("mute.service", "failed").await;
    assert_eq!((status.result.as_str(), status.main_pid), ("timeout", 0));
    bench.says("mute.service", "timed out").await;
    let pid = bench.number("mute.service", "say: pid").await;
    assert!(!bench.runs(pid).await, "what never became ready does not stay");
}

pub async fn a_notify_unit_that_ends_well_before_it_is_ready_has_failed(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("brief", "Type=notify", "exit 0").await;
    bench.host.start("brief.service").await.unwrap();
    let status = bench.until_active_is("brief.service", "failed").await;
    assert_eq!((status.result.as_str(), status.exec_main_status), ("protocol", 0));
}

pub async fn a_changed_unit_file_counts_from_the_reload_on(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("changed", "Environment=WORD=old", "echo say: $WORD; exec sleep 1000").await;
    bench.host.start("changed.service").await.unwrap();
    bench.says("changed.service", "say: old").await;
    let before = bench.until_running("changed.service").await;
    bench.service("changed", "Environment=WORD=new", "echo say: $WORD; exec sleep 1000").await;
    assert_eq!(bench.status("changed.service").await, before, "a reload leaves what runs alone");
    bench.host.stop("changed.service").await.unwrap();
    bench.host.start("changed.service").await.unwrap();
    bench.says("changed.service", "say: new").await;
}

pub async fn a_unit_that_is_not_there_is_told_from_one_that_does_not_run(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("there", "", "exec sleep 1000").await;
    assert_eq!(bench.host.unit("nowhere.service").await.unwrap(), None);
    assert_eq!(bench.status("there.service").await.active, "inactive");
    for refused in [bench.host.start("nowhere.service").await, bench.host.enable("nowhere.service").await] {
        assert!(matches!(refused, Err(HostError::Unit { unit, .. }) if unit == "nowhere.service"));
    }
    let signals = bench.host.unit_events("nowhere.service").await.unwrap().count().await;
    assert_eq!(signals, 0, "there is nothing to signal");
}

pub async fn a_missing_program_is_status_203(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("lost", "", "exit 0").await;
    bench.host.remove("/usr/local/bin/lost".into()).await.unwrap();
    bench.host.start("lost.service").await.unwrap();
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
    bench.host.start("env.service").await.unwrap();
    let line = bench.says("env.service", "say:").await;
    assert_eq!(line.text, "say: one,of one,two,unit");
}

pub async fn a_missing_environment_file_fails_the_start_unless_it_is_optional(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("strict", "EnvironmentFile=/etc/contract/nowhere", "exec sleep 1000").await;
    bench.host.start("strict.service").await.unwrap();
    assert_eq!(bench.until_active_is("strict.service", "failed").await.result, "resources");
    bench.service("lenient", "EnvironmentFile=-/etc/contract/nowhere", "exec sleep 1000").await;
    bench.host.start("lenient.service").await.unwrap();
    bench.until_running("lenient.service").await;
}
