//! Cancels every operation of a workload in each of its steps on a node and each of its calls to the cluster, one in each life.

use gpuaas_crash_points::StepKind;

use crate::{
    failure_of, injected,
    life::in_order,
    play_all,
    seed::{self, Played},
    show,
};

/// A number names a step: its kind times this, and its number among those of its kind. 0 names none.
const KIND: u64 = 10_000;
/// A cancellation comes too late for some short steps: for at most this share of them, in percent.
const LATE_PERCENT_MAX: usize = 25;

fn play(number: u64) -> Played {
    let nth = u32::try_from(number % KIND).expect("it is small");
    let cancelled = match number / KIND {
        0 => None,
        1 => Some((StepKind::NodeTask, nth)),
        _ => Some((StepKind::ClusterCall, nth)),
    };
    seed::play_cancelled(number, cancelled)
}

#[test]
fn simulation_of_a_cancellation_in_every_step_of_every_operation() {
    if let Ok(text) = std::env::var("GPUAAS_CANCEL_SEED") {
        let played = play(text.parse().expect("GPUAAS_CANCEL_SEED is a number"));
        show(&played.trace.join("\n"));
        assert!(played.violations.is_empty(), "{}", failure_of(&played, "GPUAAS_CANCEL_SEED"));
        return;
    }
    let undisturbed = play(0);
    assert!(undisturbed.violations.is_empty(), "{}", failure_of(&undisturbed, "GPUAAS_CANCEL_SEED"));
    let counted = |what: &str| undisturbed.injected.get(what).copied().unwrap_or_default();
    let accepted = counted("operations accepted");
    assert_eq!(
        usize::try_from(accepted).expect("it is small"),
        in_order::REQUESTS,
        "every operation is part of the life"
    );
    let (tasks, calls) = (u64::from(counted("node tasks begun")), u64::from(counted("cluster calls begun")));
    assert!(tasks > 20 && calls > 10, "{tasks} tasks and {calls} calls");
    let steps: Vec<u64> = (1..=tasks).map(|nth| KIND + nth).chain((1..=calls).map(|nth| 2 * KIND + nth)).collect();
    let played = play_all(&steps, play);
    let failed = played.iter().filter(|played| !played.violations.is_empty());
    let failed: Vec<String> = failed.map(|played| failure_of(played, "GPUAAS_CANCEL_SEED")).collect();
    assert!(failed.is_empty(), "{} of {} failed\n{}", failed.len(), played.len(), failed.join("\n"));
    for of in &played {
        assert_eq!(of.unsettled, None, "step {}", of.seed);
        // No request was refused because of what a cancellation had left.
        let resumed = of.injected.get("cancelled operations resumed").copied().unwrap_or_default();
        assert_eq!(of.injected.get("operations accepted"), Some(&(accepted + resumed)), "step {}", of.seed);
    }
    let late = played.iter().filter(|of| !of.injected.contains_key("cancelled operations resumed")).count();
    show(&format!("simulation of cancellations: {} steps, {late} too late, {:?}", steps.len(), injected(&played)));
    assert!(late * 100 <= steps.len() * LATE_PERCENT_MAX, "{late} of {} came too late", steps.len());
}
