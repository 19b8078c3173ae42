//! Follows an operation to its end by its events. Shows a progress line on a terminal; elsewhere prints a line for each ended step.

use std::{process::ExitCode, time::Duration};

use gpuaas_api_types::{OperationDetail, Started, Step};
use gpuaas_client::Client;
use gpuaas_model::ExitStatus;
use indicatif::{ProgressBar, ProgressStyle};

use super::following::{EventFollower, Next};
use crate::{
    cli::{Format, Target},
    output,
};

/// Refresh interval of the progress line's elapsed time.
const TICK: Duration = Duration::from_millis(120);

/// Reports that an operation was accepted, and follows it with `--wait` or on a terminal.
pub(super) async fn report_and_follow(client: &Client, target: &Target, started: Started) -> anyhow::Result<ExitCode> {
    let (workload, operation) = (&started.workload, &started.operation);
    let badge = if workload.stand_in { " (stand-in)" } else { "" };
    eprintln!(
        "{} {} {}{badge}: {} (op {})",
        workload.name, workload.app, workload.version, operation.kind, operation.id
    );
    if target.wait || (target.output == Format::Table && output::is_interactive()) {
        return watch(client, target, &operation.id).await;
    }
    let describe = |started: &Started| format!("follow it: gpuaas operation watch {}", started.operation.id);
    output::one(target.output, &started, describe, &operation.id)?;
    Ok(ExitCode::SUCCESS)
}

/// Follows an operation to its end. Ctrl-C stops following; the operation continues.
pub(super) async fn watch(client: &Client, target: &Target, id: &str) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new();
    let detail = tokio::select! {
        detail = follow_to_end(client, id, &mut progress) => detail?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            progress.end();
            eprintln!("the operation continues; follow it again: gpuaas operation watch {id}");
            return Ok(output::exit(ExitStatus::Failed));
        }
    };
    progress.end();
    super::operation::show(target, &detail)?;
    let done = detail.operation.state == "succeeded";
    Ok(if done { ExitCode::SUCCESS } else { output::exit(ExitStatus::Failed) })
}

async fn follow_to_end(client: &Client, id: &str, progress: &mut Progress) -> anyhow::Result<OperationDetail> {
    let begun = client.get_operation(id).await?;
    let workload = client.get_workload(None, &begun.operation.workload).await?.workload;
    // Subscribed before the state is read, so that no event is missed in between.
    let mut events = EventFollower::start(client, Some(workload.project), None).await?;
    loop {
        let detail = client.get_operation(id).await?;
        progress.report(&workload.name, &detail);
        if !is_open(&detail) {
            return Ok(detail);
        }
        loop {
            match events.next().await? {
                Next::Reconnected => break,
                Next::Event(event) => {
                    let ours = event.subject_id == id || event.data.get("operation").is_some_and(|of| of == id);
                    if ours && matches!(event.kind.as_str(), "step.changed" | "operation.ended" | "operation.started") {
                        break;
                    }
                }
            }
        }
    }
}

fn is_open(detail: &OperationDetail) -> bool {
    matches!(detail.operation.state.as_str(), "queued" | "running" | "waiting")
}

struct Progress {
    /// The progress line on a terminal; `None` elsewhere.
    line: Option<ProgressBar>,
    /// Number of ended steps that were printed.
    reported: usize,
}

impl Progress {
    fn new() -> Self {
        let line = output::is_interactive().then(|| {
            let line = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template("{prefix}   {bar:20}  {pos}/{len} {elapsed}   {wide_msg}") {
                line.set_style(style.progress_chars("━╸─"));
            }
            line.enable_steady_tick(TICK);
            line
        });
        Self { line, reported: 0 }
    }

    fn report(&mut self, workload: &str, detail: &OperationDetail) {
        let mut ended: Vec<&Step> = detail.steps.iter().filter(|step| step.ended_at_ms.is_some()).collect();
        ended.sort_by_key(|step| step.ended_at_ms);
        for step in ended.iter().skip(self.reported) {
            match &self.line {
                Some(line) => line.println(format_step(step)),
                None => eprintln!("{}", format_step(step)),
            }
        }
        self.reported = ended.len();
        if let Some(line) = &self.line {
            let succeeded = detail.steps.iter().filter(|step| step.state == "succeeded").count();
            line.set_prefix(format!("{} {workload} (op {})", detail.operation.kind, detail.operation.id));
            line.set_length(detail.steps.len() as u64);
            line.set_position(succeeded as u64);
            line.set_message(format_progress(detail));
        }
    }

    fn end(&self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}

fn format_step(step: &Step) -> String {
    let mark = if step.state == "succeeded" { "✓" } else { "✗" };
    let took = step.ended_at_ms.zip(step.started_at_ms).map_or(0, |(end, start)| end - start);
    format!("  {mark} {:<30} {:<28} {took:>7} ms", step.phase, step.key)
}

fn format_progress(detail: &OperationDetail) -> String {
    let step = detail.steps.iter().find(|step| matches!(step.state.as_str(), "running" | "backoff"));
    let Some(step) = step else { return detail.operation.state.clone() };
    let what = step.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{} · {}{what}", step.phase, step.key)
}
