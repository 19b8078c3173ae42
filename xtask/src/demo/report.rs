//! Observations and measurements of the demo.

use std::time::Duration;

use gpuaas_model::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// The report. Times are in milliseconds unless a name says otherwise.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(super) steps: Vec<Step>,
    /// Nodes as kubectl lists them.
    pub(super) nodes: Vec<Value>,
    /// Duration of the deployment, from the command to the end of the operation.
    pub(super) deploy_ms: u64,
    /// Part of it in which the distribution starts or joins.
    pub(crate) distribution_ms: u64,
    /// Remaining part.
    pub(crate) platform_ms: u64,
    /// Time from the start command of the first server until its KubeNode is Ready.
    pub(crate) cluster_start_ms: u64,
    /// Time from the start of `gpuaas dev` until every node is active.
    pub(crate) dev_ready_ms: u64,
    pub(crate) dispatch_p50_ms: f64,
    pub(crate) dispatch_p99_ms: f64,
    /// Median duration of durable disk writes.
    pub(crate) fdatasync_p50_ms: f64,
    pub(crate) agent_rss_bytes: u64,
    pub(crate) server_rss_bytes: u64,
    /// Resident memory before any deployment.
    pub(crate) agent_idle_rss_bytes: u64,
    pub(crate) server_idle_rss_bytes: u64,
    pub(super) verifications: Vec<Verification>,
}

/// A step of an operation.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    operation: String,
    key: String,
    phase: String,
    ms: i64,
    #[serde(skip)]
    span: (i64, i64),
}

/// Result of a verification.
#[derive(Debug, Serialize)]
pub(super) struct Verification {
    pub(super) name: String,
    pub(super) ok: bool,
    pub(super) evidence: String,
}

impl Report {
    pub(super) fn take_steps(&mut self, operation: &Value) {
        let kind = operation.pointer("/operation/kind").and_then(Value::as_str).unwrap_or_default();
        for step in operation.get("steps").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| step.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let time = |name: &str| text(name).parse().map_or(0, Timestamp::as_millis);
            let span = (time("started_at"), time("ended_at"));
            self.steps.push(Step {
                operation: kind.to_owned(),
                key: text("key"),
                phase: text("phase"),
                ms: span.1 - span.0,
                span,
            });
        }
    }

    pub(super) fn take_deploy(&mut self, operation: &Value, took: Duration) {
        self.take_steps(operation);
        self.deploy_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let distribution =
            |step: &&Step| step.key.ends_with("/start") || step.key.ends_with("ready") && step.key != "ready";
        let mut spans: Vec<(i64, i64)> = self.steps.iter().filter(distribution).map(|step| step.span).collect();
        spans.sort_unstable();
        let (mut covered, mut until) = (0, i64::MIN);
        for (start, end) in spans {
            covered += (end - start.max(until)).max(0);
            until = until.max(end);
        }
        self.distribution_ms = u64::try_from(covered).unwrap_or(0);
        let of_server =
            self.steps.iter().filter(|step| ["server-1/start", "server-1/wait-ready"].contains(&&*step.key));
        let of_server: Vec<(i64, i64)> = of_server.map(|step| step.span).collect();
        let ends = of_server.iter().map(|span| span.0).min().zip(of_server.iter().map(|span| span.1).max());
        self.cluster_start_ms = ends.and_then(|(start, end)| u64::try_from(end - start).ok()).unwrap_or(0);
        self.platform_ms = self.deploy_ms.saturating_sub(self.distribution_ms);
    }

    pub(super) fn take_dispatch(&mut self, mut trips_us: Vec<u64>) {
        trips_us.sort_unstable();
        let at = |percent: usize| trips_us.get(trips_us.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0);
        self.dispatch_p50_ms = at(50) as f64 / 1_000.0;
        self.dispatch_p99_ms = at(99) as f64 / 1_000.0;
    }

    pub(super) fn verify(&mut self, name: &str, ok: bool, evidence: impl Into<String>) {
        self.verifications.push(Verification { name: name.to_owned(), ok, evidence: evidence.into() });
    }

    pub(super) fn failed(&self) -> Vec<String> {
        self.verifications.iter().filter(|one| !one.ok).map(|one| one.name.clone()).collect()
    }

    /// Prints the phases of the deployment.
    pub(super) fn print_deploy(&self) {
        let mut phases: Vec<(&str, i64, i64)> = Vec::new();
        for step in self.steps.iter().filter(|step| step.operation == "deploy") {
            match phases.iter_mut().find(|(phase, _, _)| *phase == step.phase) {
                Some((_, start, end)) => (*start, *end) = ((*start).min(step.span.0), (*end).max(step.span.1)),
                None => phases.push((&step.phase, step.span.0, step.span.1)),
            }
        }
        for (phase, start, end) in phases {
            println!("    ✓ {phase:<32} {:>7} ms", end - start);
        }
        println!(
            "  active in {:.1} s, of which the platform took {:.2} s",
            self.deploy_ms as f64 / 1e3,
            self.platform_ms as f64 / 1e3
        );
    }

    pub(super) fn print(&self) {
        println!(
            "  platform {} ms · distribution {} ms · dispatch p50 {:.2} ms p99 {:.2} ms (fdatasync p50 {:.2} ms) · agent {:.1} MB · control plane {:.1} MB",
            self.platform_ms,
            self.distribution_ms,
            self.dispatch_p50_ms,
            self.dispatch_p99_ms,
            self.fdatasync_p50_ms,
            self.agent_rss_bytes as f64 / 1e6,
            self.server_rss_bytes as f64 / 1e6
        );
        for one in &self.verifications {
            println!("  {} {:<28} {}", if one.ok { "✓" } else { "✗" }, one.name, one.evidence);
        }
    }
}
