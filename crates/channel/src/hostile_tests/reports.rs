//! Units that keep flapping, on a paused clock.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use gpuaas_model::Timestamp;
use gpuaas_wire::{
    session::{DriftHint, UnitLine},
    task::UnitReport,
};
use tokio::time::{Instant, sleep};

use super::control_plane::{Recording, Rows, enrolled};
use crate::{ChannelError, report_throttle::ReportThrottle, reports::forward};

const AN_HOUR: usize = 3_600;

fn report(unit: &str, number: usize) -> UnitReport {
    UnitReport {
        unit: unit.to_owned(),
        active: if number.is_multiple_of(2) { "active" } else { "failed" }.to_owned(),
        sub: "running".to_owned(),
        result: "success".to_owned(),
        n_restarts: 0,
        exec_main_status: 0,
        since: Timestamp::from_millis(i64::try_from(number).unwrap()),
    }
}

/// Yields a report of the unit every second.
fn flapping(unit: &'static str, seconds: usize) -> impl Stream<Item = Result<UnitLine, ChannelError>> + Unpin {
    Box::pin(stream::iter(1..=seconds).then(move |number| async move {
        sleep(Duration::from_secs(1)).await;
        Ok(UnitLine::Report(report(unit, number)))
    }))
}

#[tokio::test(start_paused = true)]
async fn flapping_unit_is_reported_less_and_less_and_its_last_report_always() {
    let rows = Arc::new(Rows::default());
    let throttle = ReportThrottle::default();
    forward(&throttle, &*rows, enrolled(1), flapping("ill.service", AN_HOUR)).await;
    let forwarded = std::mem::take(&mut *rows.reports.lock().unwrap());
    assert!((60..85).contains(&forwarded.len()), "{} times in an hour", forwarded.len());
    let (times, last): (Vec<Instant>, _) =
        (forwarded.iter().map(|(at, _)| *at).collect(), &forwarded.last().unwrap().1);
    assert!(
        times[..8].windows(2).all(|two| two[1] - two[0] <= Duration::from_secs(1)),
        "the first ones are forwarded at once"
    );
    assert_eq!(last[0].since, Timestamp::from_millis(3_600));

    // Reconnecting does not reset the rate limit.
    let began = Instant::now();
    forward(&throttle, &*rows, enrolled(1), flapping("ill.service", 30)).await;
    assert_eq!(std::mem::take(&mut *rows.reports.lock().unwrap()).len(), 1);
    assert!(began.elapsed() > Duration::from_secs(30));

    // The unit has settled, so its limit is reset.
    sleep(Duration::from_secs(300)).await;
    let began = Instant::now();
    forward(&throttle, &*rows, enrolled(1), flapping("ill.service", 8)).await;
    assert_eq!((rows.reports.lock().unwrap().len(), began.elapsed().as_secs()), (8, 8), "each at once");
}

#[tokio::test(start_paused = true)]
async fn flapping_unit_delays_no_other() {
    let rows = Arc::new(Rows::default());
    let throttle = ReportThrottle::default();
    forward(&throttle, &*rows, enrolled(1), flapping("ill.service", 600)).await;
    let began = Instant::now();
    // Reports while the other unit's report waits for its delivery time.
    let well = stream::once(async {
        sleep(Duration::from_millis(1_500)).await;
        Ok(UnitLine::Report(report("well.service", 1)))
    });
    let both = stream::select(flapping("ill.service", 1), Box::pin(well));
    let other = flapping("ill.service", 1);
    tokio::join!(forward(&throttle, &*rows, enrolled(1), both), forward(&throttle, &*rows, enrolled(2), other));
    let reports = rows.reports.lock().unwrap();
    let at_once = reports.iter().filter(|(at, _)| *at > began && *at - began <= Duration::from_secs(2));
    assert_eq!(at_once.count(), 2, "the other unit, and the unit of the other node");
    assert!(began.elapsed() > Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn unrecorded_report_is_retried_unless_there_is_a_newer_one() {
    let rows = Arc::new(Rows::default());
    *rows.recording.lock().unwrap() = Recording::Fails;
    let (of, throttle) = (rows.clone(), ReportThrottle::default());
    let repaired = async move {
        sleep(Duration::from_secs(60)).await;
        *of.recording.lock().unwrap() = Recording::Works;
    };
    tokio::join!(repaired, forward(&throttle, &*rows, enrolled(1), flapping("a.service", 10)));
    let reports = rows.reports.lock().unwrap();
    let numbers: Vec<i64> = reports.iter().map(|(_, reports)| reports[0].since.as_millis()).collect();
    assert_eq!(numbers, [10]);
}

#[tokio::test(start_paused = true)]
async fn hints_are_limited_retried_and_delay_no_report() {
    let rows = Arc::new(Rows::default());
    let throttle = ReportThrottle::default();
    let hints = |seconds: usize| {
        Box::pin(stream::iter(1..=seconds).then(|_| async {
            sleep(Duration::from_secs(1)).await;
            Ok(UnitLine::Drift(DriftHint { drifted: "a.service".to_owned() }))
        }))
    };
    forward(&throttle, &*rows, enrolled(1), hints(AN_HOUR)).await;
    let hinted = std::mem::take(&mut *rows.hints.lock().unwrap());
    assert!((60..85).contains(&hinted.len()), "{} times in an hour", hinted.len());
    assert!(rows.reports.lock().unwrap().is_empty());

    let began = Instant::now();
    let both = stream::select(hints(1), flapping("a.service", 1));
    *rows.recording.lock().unwrap() = Recording::Fails;
    let of = rows.clone();
    let repaired = async move {
        sleep(Duration::from_secs(90)).await;
        *of.recording.lock().unwrap() = Recording::Works;
    };
    let report = async {
        let mut rest = flapping("b.service", 1);
        while rest.next().await.is_some() {}
    };
    tokio::join!(repaired, report, forward(&throttle, &*rows, enrolled(1), both));
    assert_eq!(*rows.hints.lock().unwrap(), ["a.service"], "the hint is delivered once it can be recorded");
    assert!(began.elapsed() >= Duration::from_secs(90) && rows.reports.lock().unwrap().len() == 1);
}
