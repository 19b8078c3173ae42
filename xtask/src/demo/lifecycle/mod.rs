//! The whole life of a workload, from its deployment to its decommission. After each step the platform's API, genuine kubectl with the
//! tenant's kubeconfig, and the nodes themselves must agree on what is true.
//!
//! With sabotages, the state is damaged after a step: exactly one verification must fail, and succeed again when the damage is undone.

mod comparison;
mod expectation;
mod observation;
mod report;
mod sabotage;
mod steps;
mod work;

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use comparison::{Check, compare, failed};
use expectation::{Expected, POLL_EVERY};
use observation::{Observation, observe};
use report::{SabotageReport, StepReport, Verdict, describe_failures, seconds};
use sabotage::Sabotage;
use steps::{STEPS, Step};

use super::running::RunningDemo;
pub(super) use report::Report;
pub(super) use sabotage::{Choice, print as print_sabotages};

/// Longest wait after a step until everything agrees. After a start, the controllers of the cluster need up to 30 s to elect new leaders, and
/// create and delete pods only then.
const SETTLE_MAX: Duration = Duration::from_secs(90);
/// Longest wait until a sabotage shows itself; for the same reason.
const SHOWN_MAX: Duration = Duration::from_secs(60);

/// Runs the steps with the chosen sabotages. Ends after the first failure, and after the step of a single sabotage.
pub(super) fn run(running: &RunningDemo, choice: Choice) -> Report {
    let mut report = Report::new();
    let mut expected = steps::after_deploy();
    let mut ended_early = false;
    for step in &STEPS {
        let of_step = take_step(running, step, choice, &mut expected);
        of_step.print();
        let is_last = of_step.verdict == Verdict::Failed || matches!(choice, Choice::One(of) if of.step == step.name);
        ended_early = of_step.verdict == Verdict::Failed;
        report.steps.push(of_step);
        if is_last {
            break;
        }
    }
    report.finish(!ended_early);
    report
}

/// Takes a step, verifies it, and carries out its sabotages.
fn take_step(running: &RunningDemo, step: &Step, choice: Choice, expected: &mut Expected) -> StepReport {
    let mut report = StepReport::begun(step.name, step.requested);
    let began = Instant::now();
    let outcome = (step.act)(running, expected).and_then(|()| settle(running, expected));
    report.seconds = seconds(began.elapsed());
    match outcome {
        Ok((seen, checks)) => report.verified(seen, checks),
        Err(error) => report.fail(format!("{error:#}")),
    }
    for sabotage in choice.after(step.name) {
        if report.verdict == Verdict::Failed {
            break;
        }
        let began = Instant::now();
        let (seen, failure) = match carry_out(running, sabotage, expected) {
            Ok(seen) => (seen, None),
            Err(error) => (String::new(), Some(format!("sabotage {}: {error:#}", sabotage.name))),
        };
        report.sabotages.push(SabotageReport {
            name: sabotage.name,
            what: sabotage.what,
            verification: sabotage.aspect,
            seen,
            seconds: seconds(began.elapsed()),
            passed: failure.is_none(),
        });
        if let Some(failure) = failure {
            report.fail(failure);
        }
    }
    report
}

/// Observes until everything agrees, or until it takes too long.
fn settle(running: &RunningDemo, expected: &Expected) -> anyhow::Result<(Observation, Vec<Check>)> {
    let began = Instant::now();
    loop {
        let is_over = began.elapsed() > SETTLE_MAX;
        match observe(running, expected) {
            Ok(seen) => {
                let checks = compare(expected, &seen);
                if failed(&checks).is_empty() || is_over {
                    return Ok((seen, checks));
                }
            }
            Err(error) if is_over => return Err(error),
            // For example a comparison that the platform refuses while it makes others.
            Err(_) => {}
        }
        std::thread::sleep(POLL_EVERY);
    }
}

/// Carries out a sabotage, requires that exactly its verification fails, undoes it, and requires that everything agrees again. Returns what
/// the failed verification saw.
fn carry_out(running: &RunningDemo, sabotage: &Sabotage, expected: &mut Expected) -> anyhow::Result<String> {
    let undo = (sabotage.act)(running)?;
    let shown = await_failure(running, sabotage, expected);
    // Undone in any case: a process that it left must not outlive the demo.
    undo(running, expected)?;
    let seen = shown?;
    let (_, checks) = settle(running, expected)?;
    ensure!(failed(&checks).is_empty(), "after it was undone: {}", describe_failures(&checks));
    Ok(seen)
}

/// Observes until exactly the sabotage's verification fails.
fn await_failure(running: &RunningDemo, sabotage: &Sabotage, expected: &Expected) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let is_over = began.elapsed() > SHOWN_MAX;
        let seen = match observe(running, expected) {
            Err(_) if !is_over => {
                std::thread::sleep(POLL_EVERY);
                continue;
            }
            seen => seen?,
        };
        let checks = compare(expected, &seen);
        let wrong = failed(&checks);
        if let Some(check) = checks.iter().find(|check| wrong == [check.aspect] && check.aspect == sabotage.aspect) {
            return Ok(check.seen.clone());
        }
        if is_over {
            let name = sabotage.aspect.as_str();
            if wrong.is_empty() {
                bail!("expected that {name} fails; every verification succeeded");
            }
            bail!("expected that only {name} fails; seen: {}", describe_failures(&checks));
        }
        std::thread::sleep(POLL_EVERY);
    }
}
