//! The report of a workload's life: per step what was requested, what the API and kubectl say, how long it took, and the verdict.

use std::time::Duration;

use serde::Serialize;

use super::{
    comparison::{Check, failed},
    expectation::Aspect,
    observation::Observation,
};

/// The report, as JSON and as a table.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// True if every verification succeeded and every sabotage made exactly its own verification fail.
    pub(super) passed: bool,
    pub(super) steps: Vec<StepReport>,
    /// Seconds of all steps with their verifications.
    pub(super) seconds: f64,
    /// Seconds of all sabotages, which are not part of `seconds`.
    pub(super) sabotage_seconds: f64,
}

/// A step with its verifications.
#[derive(Debug, Serialize)]
pub(super) struct StepReport {
    pub(super) step: &'static str,
    pub(super) requested: &'static str,
    pub(super) api: String,
    pub(super) kubectl: String,
    pub(super) seconds: f64,
    pub(super) verdict: Verdict,
    /// Why the step or one of its sabotages failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    pub(super) verifications: Vec<Check>,
    pub(super) sabotages: Vec<SabotageReport>,
    /// Everything that was seen at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seen: Option<Observation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Passed,
    Failed,
}

/// A sabotage after a step. Without a failure, exactly the named verification failed, and succeeded again after the sabotage was undone.
#[derive(Debug, Serialize)]
pub(super) struct SabotageReport {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// The verification that had to fail.
    pub(super) verification: Aspect,
    /// What that verification saw.
    pub(super) seen: String,
    pub(super) seconds: f64,
    pub(super) passed: bool,
}

impl StepReport {
    /// Returns the report of a step that has not been verified.
    pub(super) fn begun(step: &'static str, requested: &'static str) -> Self {
        Self {
            step,
            requested,
            api: String::new(),
            kubectl: String::new(),
            seconds: 0.0,
            verdict: Verdict::Failed,
            failure: None,
            verifications: Vec::new(),
            sabotages: Vec::new(),
            seen: None,
        }
    }

    /// Takes the result of the verifications.
    pub(super) fn verified(&mut self, seen: Observation, checks: Vec<Check>) {
        let seen_in =
            |aspect: Aspect| checks.iter().find(|check| check.aspect == aspect).map(|check| check.seen.clone());
        self.api = seen_in(Aspect::Members).unwrap_or_default();
        let of_cluster = [Aspect::Nodes, Aspect::Cordons, Aspect::Pods].into_iter().filter_map(seen_in);
        self.kubectl = of_cluster.collect::<Vec<_>>().join("; ");
        if self.kubectl.is_empty() {
            "not asked".clone_into(&mut self.kubectl);
        }
        self.verdict = if failed(&checks).is_empty() { Verdict::Passed } else { Verdict::Failed };
        if self.verdict == Verdict::Failed {
            self.failure = Some(describe_failures(&checks));
        }
        (self.verifications, self.seen) = (checks, Some(seen));
    }

    pub(super) fn fail(&mut self, why: String) {
        (self.verdict, self.failure) = (Verdict::Failed, Some(why));
    }

    /// Prints the step and, if it failed, why.
    pub(super) fn print(&self) {
        let mark = |ok: bool| if ok { "✓" } else { "✗" };
        let names = self.verifications.iter().map(|check| format!("{} {}", mark(check.ok), check.aspect.as_str()));
        let (passed, names) = (mark(self.verdict == Verdict::Passed), names.collect::<Vec<_>>().join("  "));
        println!("  {passed} {:<13} {:>6.1} s  {names}", self.step, self.seconds);
        for of in &self.sabotages {
            println!(
                "    {} sabotage {:<13} {:>6.1} s  {} failed: {}",
                mark(of.passed),
                of.name,
                of.seconds,
                of.verification.as_str(),
                of.seen
            );
        }
        if let Some(failure) = &self.failure {
            println!("    {failure}");
        }
    }
}

impl Report {
    pub(super) fn new() -> Self {
        Self { passed: false, steps: Vec::new(), seconds: 0.0, sabotage_seconds: 0.0 }
    }

    /// Sets the verdict and the times. A run is complete if no step is missing.
    pub(super) fn finish(&mut self, complete: bool) {
        self.passed = complete && self.steps.iter().all(|step| step.verdict == Verdict::Passed);
        self.seconds = self.steps.iter().map(|step| step.seconds).sum();
        self.sabotage_seconds = self.steps.iter().flat_map(|step| &step.sabotages).map(|of| of.seconds).sum();
    }

    /// Returns why the run failed; `None` if it passed.
    pub(crate) fn failure(&self) -> Option<String> {
        if self.passed {
            return None;
        }
        let step = self.steps.iter().find(|step| step.verdict == Verdict::Failed);
        Some(step.map_or_else(
            || "no step ran".to_owned(),
            |step| format!("{}: {}", step.step, step.failure.as_deref().unwrap_or("not verified")),
        ))
    }

    /// Prints the table: what was requested, and what the API and kubectl said.
    pub(crate) fn print(&self) {
        for step in &self.steps {
            println!("  {}: {}", step.step, step.requested);
            println!("    API      {}", step.api);
            println!("    kubectl  {}", step.kubectl);
        }
        println!("  steps {:.1} s · sabotages {:.1} s", self.seconds, self.sabotage_seconds);
    }
}

/// Names each failed verification, what was expected, and what was seen.
pub(super) fn describe_failures(checks: &[Check]) -> String {
    let failures = checks.iter().filter(|check| !check.ok);
    let texts = failures
        .map(|check| format!("{} failed: expected {}; seen {}", check.aspect.as_str(), check.expected, check.seen));
    texts.collect::<Vec<_>>().join("\n    ")
}

/// Returns a duration in seconds, rounded to milliseconds.
pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(aspect: Aspect, ok: bool) -> Check {
        Check { aspect, ok, expected: "demo-1 Ready".to_owned(), seen: "demo-1 NotReady".to_owned() }
    }

    #[test]
    fn failed_verification_is_named_with_what_was_expected_and_seen() {
        let mut step = StepReport::begun("drain", "drain the agent on demo-3");
        step.verified(Observation::default(), vec![check(Aspect::Members, true), check(Aspect::Nodes, false)]);
        let mut report = Report::new();
        report.steps.push(step);
        report.finish(true);
        let failure = report.failure().expect("it failed");
        assert_eq!(failure, "drain: nodes failed: expected demo-1 Ready; seen demo-1 NotReady");
    }

    #[test]
    fn report_has_per_step_request_api_kubectl_seconds_and_verdict() {
        let mut step = StepReport::begun("add", "add an agent on demo-3");
        step.verified(Observation::default(), vec![check(Aspect::Members, true), check(Aspect::Nodes, true)]);
        step.seconds = seconds(Duration::from_micros(1_500_400));
        let mut report = Report::new();
        report.steps.push(step);
        report.finish(true);
        assert_eq!(report.failure(), None);
        let json = serde_json::to_value(&report).expect("JSON");
        let step = &json["steps"][0];
        for field in ["step", "requested", "api", "kubectl", "seconds", "verdict", "verifications", "sabotages"] {
            assert!(step.get(field).is_some(), "{field} is missing in {step}");
        }
        assert_eq!((step["verdict"].as_str(), step["seconds"].as_f64()), (Some("passed"), Some(1.5)));
        assert_eq!(step["verifications"][1]["aspect"], "nodes");
    }

    #[test]
    fn run_that_ends_before_its_last_step_has_not_passed() {
        let mut step = StepReport::begun("deploy", "deploy");
        step.verified(Observation::default(), vec![check(Aspect::Members, true)]);
        let mut report = Report::new();
        report.steps.push(step);
        report.finish(false);
        assert!(report.failure().is_some());
    }
}
