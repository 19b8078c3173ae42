//! Units are independent of the clients that control them.

use futures::StreamExt;
use gpuaas_host::{Changed, JournalFrom};

use crate::{Backend, Bench, bench::command};

pub async fn concurrent_starts_start_once(backend: &dyn Backend) {
    let (one, two) = (Bench::of(backend), Bench::of(backend));
    one.service("plain", "", "echo ran >> $root/tmp/marks; echo say: up; exec sleep 1000").await;
    let (first, second) =
        tokio::join!(one.host.units().start("plain.service"), two.host.units().start("plain.service"));
    let changes = [first.unwrap(), second.unwrap()];
    // Both clients can find the unit at rest and order a start: the init merges the orders, and does not report which one started the unit.
    assert!(changes.contains(&Changed::Yes), "{changes:?}");
    one.wait_for_line("plain.service", "say: up").await;
    assert_eq!(two.text("/tmp/marks").await, "ran\n");
    let (first, second) = tokio::join!(one.host.units().stop("plain.service"), two.host.units().stop("plain.service"));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(two.status("plain.service").await.active, "inactive");
}

pub async fn start_continues_without_its_client(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let program = "mkfifo $root/tmp/gate; echo say: begun; read byte < $root/tmp/gate; $ready; exec sleep 1000";
    bench.service("gated", "Type=notify\nNotifyAccess=all", program).await;
    bench.program("starter", "exec systemctl start gated.service").await;
    let starter = backend.client();
    let waiting = tokio::spawn(async move { starter.run(&command("/usr/local/bin/starter")).await });
    bench.wait_for_line("gated.service", "say: begun").await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    bench.run("echo > $root/tmp/gate").await;
    assert_eq!(bench.until_running("gated.service").await.n_restarts, 0);
}

pub async fn units_survive_a_restart_of_the_agent(backend: &dyn Backend) {
    let before = Bench::of(backend);
    before.service("stays", "", "echo say: up; exec sleep 1000").await;
    before.host.units().start("stays.service").await.unwrap();
    let line = before.wait_for_line("stays.service", "say: up").await;
    let status = before.until_running("stays.service").await;
    let mut events = before.host.units().unit_events("stays.service").await.unwrap();
    let mut lines = before.host.units().journal("stays.service", JournalFrom::Start, true).await.unwrap();
    assert!(events.next().await.is_some() && lines.next().await.is_some());
    drop((events, lines, before));
    let after = Bench::of(backend);
    assert_eq!(after.status("stays.service").await, status);
    assert_eq!(after.lines("stays.service", JournalFrom::Start).await, [line]);
}

pub async fn signals_begin_with_the_current_status(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("plain", "", "exec sleep 1000").await;
    let mut early = bench.host.units().unit_events("plain.service").await.unwrap();
    assert_eq!(early.next().await.unwrap().active, "inactive");
    bench.host.units().start("plain.service").await.unwrap();
    bench.until_running("plain.service").await;
    let mut late = bench.host.units().unit_events("plain.service").await.unwrap();
    assert_eq!(late.next().await.unwrap().active, "active");
    bench.host.units().stop("plain.service").await.unwrap();
    for events in [early, late] {
        let last = events.skip_while(|status| std::future::ready(status.active != "inactive")).next().await;
        assert_eq!(last.unwrap().main_pid, 0);
    }
}
