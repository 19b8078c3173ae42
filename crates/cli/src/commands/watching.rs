//! Follows an operation to its end by its events. Shows a progress line on a terminal; elsewhere prints a line for each change of a step.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use gpuaas_api_types::{Operation, OperationDetail, Started, Step, Waiting};
use gpuaas_client::Client;
use gpuaas_model::{ExitStatus, visible};
use indicatif::{ProgressBar, ProgressStyle};
use unicode_width::UnicodeWidthStr;

use super::{
    following::{EventFollower, Next},
    operation_shown::show_end,
    waiting_shown, workload_next,
};
use crate::{
    color,
    duration::{format_millis, millis_between},
    output,
    table::{shortened, width_of},
    target::Target,
    text::Text,
};

/// State of an operation that did what was requested.
pub(super) const SUCCEEDED: &str = "succeeded";
/// State of an operation that ended because its cancellation was requested.
pub(super) const CANCELLED: &str = "cancelled";
/// Refresh interval of the progress line's elapsed time.
const TICK: Duration = Duration::from_millis(120);

/// Reports that an operation was accepted, and follows it with `--wait` or on a terminal.
pub(super) async fn report_and_follow(client: &Client, target: &Target, started: Started) -> anyhow::Result<ExitCode> {
    let (workload, operation) = (&started.workload, &started.operation);
    if target.wait || (target.output.is_for_people() && output::is_interactive()) {
        output::message(Text::from(accepted(&started)).as_str());
        let (detail, exit) = follow(client, target, &operation.id, SUCCEEDED).await?;
        if let Some(detail) = detail {
            // Scripts that deploy continue with the workload.
            show_end(target, &detail, &workload.name)?;
            let next = workload_next::after(&detail, &workload.name, &target.project_flag());
            if let (SUCCEEDED, Some(next)) = (detail.operation.state.as_str(), next) {
                output::hint(target.output, &next);
            }
        }
        return Ok(exit);
    }
    output::one(target.output, &started, accepted, &workload.name)?;
    output::hint(target.output, &format!("follow it: gpuaas operation watch {}", operation.id));
    Ok(ExitCode::SUCCESS)
}

/// Formats an accepted operation: its workload, kind and id.
fn accepted(started: &Started) -> String {
    let (workload, operation) = (&started.workload, &started.operation);
    let badge = if workload.stand_in { " (stand-in)" } else { "" };
    let (name, app, version) = (&workload.name, &workload.app, &workload.version);
    format!("{name} {app} {version}{badge}: {} (op {})", operation.kind, operation.id)
}

/// Follows an operation to its end and prints it. Fails if it ends in another state than `wanted`. Ctrl-C stops following; the operation
/// continues.
pub(super) async fn watch(client: &Client, target: &Target, id: &str, wanted: &str) -> anyhow::Result<ExitCode> {
    let (detail, exit) = follow(client, target, id, wanted).await?;
    if let Some(detail) = detail {
        show_end(target, &detail, &detail.operation.id)?;
    }
    Ok(exit)
}

/// Follows an operation to its end; returns it unless Ctrl-C came before, and the exit status of the command.
async fn follow(
    client: &Client,
    target: &Target,
    id: &str,
    wanted: &str,
) -> anyhow::Result<(Option<OperationDetail>, ExitCode)> {
    target.waits_for("the operation, which continues", &format!("follow it: gpuaas operation watch {id}"));
    let mut progress = Progress::default();
    let detail = tokio::select! {
        detail = follow_to_end(client, id, &mut progress) => detail?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            progress.end();
            output::message(format_args!("the operation continues; follow it again: gpuaas operation watch {id}"));
            return Ok((None, output::exit(ExitStatus::Interrupted)));
        }
    };
    progress.end();
    let done = detail.operation.state == wanted;
    Ok((Some(detail), if done { ExitCode::SUCCESS } else { output::exit(ExitStatus::Failed) }))
}

async fn follow_to_end(client: &Client, id: &str, progress: &mut Progress) -> anyhow::Result<OperationDetail> {
    let begun = client.get_operation(id).await?;
    let id = begun.operation.id.as_str();
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

/// Width of the bar of a progress line, in characters.
const BAR_WIDTH: usize = 20;

/// What was shown of an operation.
#[derive(Default)]
struct Progress {
    /// The progress line on a terminal; `None` elsewhere, and until the steps are known.
    line: Option<ProgressBar>,
    /// The last reported state of each step that left `pending`.
    reported: BTreeMap<String, String>,
}

impl Progress {
    fn report(&mut self, workload: &str, detail: &OperationDetail) {
        if self.line.is_none() && output::is_interactive() && !detail.steps.is_empty() {
            self.line = Some(progress_line(&detail.operation, workload, detail.steps.len()));
        }
        for step in in_order(&detail.steps) {
            let before = self.reported.insert(step.key.clone(), step.state.clone());
            let is_new = before.as_ref() != Some(&step.state);
            match &self.line {
                // The line itself shows what is running.
                Some(line) if is_new && step.ended_at.is_some() => line.println(format_step(step)),
                None if is_new => output::message(format_step(step)),
                Some(_) | None => {}
            }
        }
        if let Some(line) = &self.line {
            // Skipped steps are no work that is left.
            let done =
                detail.steps.iter().filter(|step| matches!(step.state.as_str(), "succeeded" | "skipped")).count();
            line.set_position(done as u64);
            let taken =
                line.prefix().width() + BAR_WIDTH + format!("{done}/{} 00:00:00", detail.steps.len()).width() + 8;
            let room = width_of(&std::io::stderr()).map_or(0, |width| width.saturating_sub(taken));
            line.set_message(shortened(&format_progress(detail), room).into_owned());
        }
    }

    fn end(&self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}

/// Returns the steps that left `pending`: ended ones by their end, then running ones, then skipped ones, which no work follows.
fn in_order(steps: &[Step]) -> Vec<&Step> {
    let mut changed: Vec<&Step> = steps.iter().filter(|step| step.state != "pending").collect();
    changed.sort_by_key(|step| {
        let last = step.ended_at.as_ref().or(step.started_at.as_ref());
        (step.state == "skipped", step.ended_at.is_none(), last)
    });
    changed
}

/// Returns the line of an operation. Its time is that of the operation, which may be older than this command.
fn progress_line(operation: &Operation, workload: &str, steps: usize) -> ProgressBar {
    let now = jiff::Timestamp::now().to_string();
    let age = millis_between(&operation.created_at, &now).and_then(|age| u64::try_from(age).ok()).unwrap_or(0);
    let line = ProgressBar::new(steps as u64).with_elapsed(Duration::from_millis(age));
    // The message comes last: a terminal that becomes narrower cuts it and nothing else.
    let template = format!("{{prefix}}   {{bar:{BAR_WIDTH}}}  {{pos}}/{{len}} {{elapsed}}   {{wide_msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        line.set_style(style.progress_chars("━╸─"));
    }
    line.set_prefix(format!("{} {workload}", operation.kind));
    line.enable_steady_tick(TICK);
    line
}

fn format_step(step: &Step) -> String {
    let mark = match step.state.as_str() {
        "succeeded" => color::mark("✓", true),
        "running" => "▸".to_owned(),
        "backoff" => "↻".to_owned(),
        "skipped" => "-".to_owned(),
        _ => color::mark("✗", false),
    };
    let result = match step.state.as_str() {
        "succeeded" | "failed" => {
            let took = step.started_at.as_deref().zip(step.ended_at.as_deref());
            let took = took.and_then(|(start, end)| millis_between(start, end)).unwrap_or(0);
            format!("{:>9}", format_millis(took))
        }
        "backoff" => format!("retries: {}", step.detail.as_deref().unwrap_or("it failed")),
        state => {
            let waiting = step.waiting.as_ref().map(|waiting| format!("waiting for {}", waiting.what));
            waiting.unwrap_or_else(|| state.to_owned())
        }
    };
    format!("  {mark} {:<30} {:<28} {}", step.phase, step.key, visible(&result))
}

fn format_progress(detail: &OperationDetail) -> String {
    let step = detail.steps.iter().find(|step| matches!(step.state.as_str(), "running" | "backoff"));
    let Some(step) = step else {
        let waiting = waiting_shown::sentence(since_last_step(detail).as_ref());
        return visible(waiting.as_ref().unwrap_or(&detail.operation.state)).into_owned();
    };
    let what = step.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    visible(&format!("{} · {}{what}", step.phase, step.key)).into_owned()
}

/// Returns what an operation waits for between two steps. Its wait began when the last step ended; the operation itself names its begin.
fn since_last_step(detail: &OperationDetail) -> Option<Waiting> {
    let waiting = detail.operation.waiting.clone()?;
    let last = detail.steps.iter().filter_map(|step| step.ended_at.clone()).max();
    Some(match last {
        // All times have the same form, so that their order is that of their texts.
        Some(ended) if ended > waiting.since => Waiting { since: ended, ..waiting },
        Some(_) | None => waiting,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(state: &str) -> Step {
        let value = serde_json::json!({
            "key": "agent-1/install", "phase": "agent_installing", "state": state, "attempts": 1, "detail": "download: 503",
            "started_at": "2026-07-01T08:00:01.000Z", "ended_at": "2026-07-01T08:00:02.500Z",
        });
        serde_json::from_value(value).expect("a step")
    }

    #[test]
    fn skipped_steps_follow_those_that_ended_after_they_were_skipped() {
        let late = Step { ended_at: Some("2026-07-01T08:00:09.000Z".to_owned()), ..step("succeeded") };
        let running = Step { ended_at: None, ..step("running") };
        let steps = [step("skipped"), late, step("pending"), running, step("failed")];
        let states: Vec<&str> = in_order(&steps).iter().map(|step| step.state.as_str()).collect();
        assert_eq!(states, ["failed", "succeeded", "running", "skipped"]);
    }

    #[test]
    fn wait_between_two_steps_begins_at_the_end_of_the_last_one() {
        let begin = "2026-07-01T08:00:00.000Z";
        let value = serde_json::json!({
            "operation": {
                "id": "o", "workload": "w", "kind": "deploy", "state": "running", "requested_by": "ann", "created_at": begin,
                "waiting": { "what": "the platform to begin its next step", "from": "platform", "since": begin, "next": "wait" },
            },
            "steps": [step("succeeded")],
        });
        let mut detail: OperationDetail = serde_json::from_value(value).expect("an operation");
        let since = |detail: &OperationDetail| since_last_step(detail).expect("it waits").since;
        assert_eq!(since(&detail), "2026-07-01T08:00:02.500Z");
        detail.steps.clear();
        assert_eq!(since(&detail), begin);
    }

    #[test]
    fn each_state_of_a_step_has_its_own_line() {
        let states = ["running", "backoff", "succeeded", "failed", "skipped", "cancelled"];
        let lines = states.map(|state| format_step(&step(state)).trim_start().to_owned());
        insta::assert_snapshot!(lines.join("\n"), @r"
        ▸ agent_installing               agent-1/install              running
        ↻ agent_installing               agent-1/install              retries: download: 503
        ✓ agent_installing               agent-1/install                  1.5 s
        ✗ agent_installing               agent-1/install                  1.5 s
        - agent_installing               agent-1/install              skipped
        ✗ agent_installing               agent-1/install              cancelled
        ");
    }
}
