//! Attacks and failures on the system bus that must not affect an agent.

use std::time::Duration;

use futures::{FutureExt, StreamExt, future::LocalBoxFuture};
use gpuaas_host::UnitStatus;
use gpuaas_host_contract::{Backend, Bench, Case};
use zbus::fdo::DBusProxy;

/// Returns every case with its name.
pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    vec![
        ("query_does_not_load_a_unit", query_does_not_load_a_unit as Case),
        ("signal_of_another_sender_is_ignored", signal_of_another_sender_is_ignored as Case),
        ("watch_survives_daemon_reexec", watch_survives_daemon_reexec as Case),
        ("bus_is_reconnected_after_a_restart", bus_is_reconnected_after_a_restart as Case),
        ("masked_unit_is_refused_with_systemds_message", masked_unit_is_refused_with_systemds_message as Case),
        ("many_restarts_do_not_block_queries", many_restarts_do_not_block_queries as Case),
    ]
}

fn query_does_not_load_a_unit(backend: &dyn Backend) -> LocalBoxFuture<'_, ()> {
    async move {
        let bench = Bench::of(backend);
        bench.service("rests", "", "exec sleep 1000").await;
        let loaded = async || bench.run("systemctl list-units --all --no-legend 'rests*'").await.output;
        let mut events = bench.host.units().unit_events("rests.service").await.unwrap();
        assert_eq!(events.next().await.unwrap().active, "inactive");
        assert_eq!(bench.status("rests.service").await.active, "inactive");
        assert_eq!(loaded().await, "", "a query does not load the unit");
        bench.host.units().start("rests.service").await.unwrap();
        bench.until_running("rests.service").await;
        assert!(loaded().await.contains("rests.service"));
        bench.host.units().stop("rests.service").await.unwrap();
        let ended = events.skip_while(|status| std::future::ready(status.active != "inactive"));
        Box::pin(ended).next().await.unwrap();
        // systemd unloads the unit when it is idle; a watcher that called it after every signal would keep it loaded forever.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while !loaded().await.is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "the unit stays loaded");
        }
        assert_eq!(bench.status("rests.service").await.active, "inactive");
    }
    .boxed_local()
}

fn signal_of_another_sender_is_ignored(backend: &dyn Backend) -> LocalBoxFuture<'_, ()> {
    async move {
        let bench = Bench::of(backend);
        bench.service("watched", "", "exec sleep 1000").await;
        bench.host.units().start("watched.service").await.unwrap();
        bench.until_running("watched.service").await;
        let mut events = bench.host.units().unit_events("watched.service").await.unwrap();
        assert_eq!(events.next().await.unwrap().active, "active");
        let liar = zbus::Connection::system().await.unwrap();
        let names = DBusProxy::new(&liar).await.unwrap().list_names().await.unwrap();
        let lie = std::collections::HashMap::from([("ActiveState", zbus::Variant::from("failed"))]);
        let body = ("org.freedesktop.systemd1.Unit", lie, Vec::<&str>::new());
        for name in names.iter().filter(|name| name.starts_with(':')) {
            let (path, interface) =
                ("/org/freedesktop/systemd1/unit/told_2eservice", "org.freedesktop.DBus.Properties");
            liar.emit_signal(Some(name.as_str()), path, interface, "PropertiesChanged", &body).await.unwrap();
        }
        // The false signals are sent before the stop, so they would arrive before its effects.
        bench.host.units().stop("watched.service").await.unwrap();
        let seen: Vec<UnitStatus> =
            events.take_while(|status| std::future::ready(status.active != "inactive")).collect().await;
        assert!(seen.iter().all(|status| status.active != "failed"), "{seen:#?}");
    }
    .boxed_local()
}

fn watch_survives_daemon_reexec(backend: &dyn Backend) -> LocalBoxFuture<'_, ()> {
    async move {
        let bench = Bench::of(backend);
        bench.service("stays", "", "exec sleep 1000").await;
        bench.host.units().start("stays.service").await.unwrap();
        let before = bench.until_running("stays.service").await;
        let mut events = bench.host.units().unit_events("stays.service").await.unwrap();
        assert_eq!(events.next().await.unwrap(), before);
        assert_eq!(bench.run("systemctl daemon-reexec").await.status, Some(0));
        assert_eq!(bench.status("stays.service").await, before, "the unit is unchanged");
        bench.host.units().stop("stays.service").await.unwrap();
        let ended = events.skip_while(|status| std::future::ready(status.active != "inactive"));
        assert!(Box::pin(ended).next().await.is_some());
    }
    .boxed_local()
}

fn bus_is_reconnected_after_a_restart(backend: &dyn Backend) -> LocalBoxFuture<'_, ()> {
    async move {
        let bench = Bench::of(backend);
        bench.service("stays", "", "exec sleep 1000").await;
        bench.host.units().start("stays.service").await.unwrap();
        let before = bench.until_running("stays.service").await;
        let events = bench.host.units().unit_events("stays.service").await.unwrap();
        bench.run("systemctl kill --signal=KILL dbus.service").await;
        assert_eq!(events.map(|status| status.active).collect::<Vec<_>>().await, ["active"], "ends with the bus");
        // systemd starts the killed bus again.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        let after = loop {
            match bench.host.units().unit("stays.service").await {
                Ok(status) => break status,
                Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
            }
        };
        assert_eq!(after, Some(before));
        bench.host.units().stop("stays.service").await.unwrap();
    }
    .boxed_local()
}

fn masked_unit_is_refused_with_systemds_message(backend: &dyn Backend) -> LocalBoxFuture<'_, ()> {
    async move {
        let bench = Bench::of(backend);
        bench.run("ln -s /dev/null /etc/systemd/system/masked.service && systemctl daemon-reload").await;
        let refused =
            [bench.host.units().start("masked.service").await, bench.host.units().enable("masked.service").await];
        bench.run("rm /etc/systemd/system/masked.service && systemctl daemon-reload").await;
        for refused in refused {
            assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("masked")), "{refused:?}");
        }
    }
    .boxed_local()
}

fn many_restarts_do_not_block_queries(backend: &dyn Backend) -> LocalBoxFuture<'_, ()> {
    async move {
        let bench = Bench::of(backend);
        bench.unit("flaps", "StartLimitIntervalSec=0", "Restart=always\nRestartSec=0", "exit 1").await;
        // This stream is never read.
        let _events = bench.host.units().unit_events("flaps.service").await.unwrap();
        bench.host.units().start("flaps.service").await.unwrap();
        bench.until("flaps.service", |status| status.n_restarts > 200).await;
        for _ in 0..50 {
            assert!(bench.host.units().unit("flaps.service").await.unwrap().is_some());
        }
        bench.host.units().stop("flaps.service").await.unwrap();
        let newest = bench.status("flaps.service").await;
        // The unit is at rest. If the stop coincides with the program's own exit with status 1, the unit keeps that as its failure; no
        // other failure is allowed.
        let rest = (newest.active.as_str(), newest.result.as_str());
        assert!(newest.active == "inactive" || rest == ("failed", "exit-code"), "{newest:?}");
    }
    .boxed_local()
}
