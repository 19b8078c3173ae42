//! `rke2.start`: lifts a mask, enables and starts the unit, and follows its events until it is up, or gives up with evidence.
//!
//! Guarantees: when the task fails, the unit is stopped, or its stop was ordered and takes longer than the task has; the next attempt waits
//! for that stop. Only an agent that died during the task leaves a unit that is still starting; the next attempt continues to wait for it.
//! A failure from before this start does not fail it.
//!
//! Measured behaviour of RKE2's units: a unit whose program exits loops in `activating/auto-restart` and never reaches `failed`; a unit
//! that cannot reach its server stays `activating` without end; a start that a condition skips ends inactive and reports success.

use std::time::Duration;

use camino::Utf8Path;
use futures::{StreamExt, stream::BoxStream};
use gpuaas_app_rke2_tasks::{Rke2Role, Rke2Start, Rke2Started};
use gpuaas_handler::{Context, host_failed, report, tail};
use gpuaas_host::{Host, HostError, JournalFrom, JournalLine, UnitStatus, now};
use gpuaas_model::{Code, Timestamp, cut};
use gpuaas_wire::task::TaskFailure;

use crate::{
    enable::unmask_and_enable,
    kubelet_log::{self, KUBELET_EXITED},
    observe::ca_sha256,
};

/// Part of the task's time that is reserved for a failed start: to collect evidence and to stop the unit.
const CLEANUP_TIME: Duration = Duration::from_secs(30);
/// Longest time to collect evidence.
const EVIDENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Exists once a kubelet has run; an uninstall removes it.
const KUBELET_DIR: &str = "/var/lib/kubelet";

/// Starts the unit and waits until it is up.
pub(crate) async fn run(task: Rke2Start, context: Context) -> Result<Rke2Started, TaskFailure> {
    let unit = task.role.unit();
    let host = &context.host;
    host.units().daemon_reload().await.map_err(host_failed)?;
    unmask_and_enable(host.units(), unit).await.map_err(host_failed)?;
    settle_unit(host.as_ref(), unit).await.map_err(host_failed)?;
    // The subscription comes before the start, so that no event in between is missed.
    let events = host.units().unit_events(unit).await.map_err(host_failed)?;
    if let Some(status) = host.units().unit(unit).await.map_err(host_failed)?
        && status.is_running()
    {
        return started(&task, &context, status, 0).await;
    }
    leave_second(host.as_ref()).await.map_err(host_failed)?;
    let began = now();
    let journal = host.units().journal(unit, JournalFrom::Since(began), true).await.map_err(host_failed)?;
    host.units().start(unit).await.map_err(host_failed)?;
    let restarts_before = host.units().unit(unit).await.map_err(host_failed)?.map_or(0, |status| status.n_restarts);
    let mut wait = Wait {
        task: &task,
        restarts_before,
        seen: vec![0; task.give_up_on.len()],
        excepted: vec![false; task.exceptions.len()],
        last_line: String::new(),
        kubelet_exited: false,
        was_activating: false,
    };
    match wait.until_running(&context, events, journal).await {
        Ok(status) => {
            let ready_after_ms = u64::try_from(now().since(began).as_millis()).unwrap_or(u64::MAX);
            started(&task, &context, status, ready_after_ms).await
        }
        Err((code, message)) => {
            let bare = TaskFailure::new(code, message.clone());
            // A cancellation needs no evidence and must not take long.
            let evidence_max = if code == Code::TaskCancelled { Duration::ZERO } else { EVIDENCE_TIMEOUT };
            let evidence = with_evidence(&context, unit, began, code, message, wait.kubelet_exited);
            let failure = tokio::time::timeout(evidence_max, evidence).await.unwrap_or(bare);
            // A failed start leaves no unit that keeps trying unnoticed, and the next attempt begins with a stopped unit. If the stop takes
            // longer than the task has, the failure is reported anyway: the stop is ordered.
            match tokio::time::timeout(context.time_left(), host.units().stop(unit)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(unit, %error, "could not stop a unit that failed to start"),
                Err(_) => tracing::warn!(unit, "a unit that failed to start is still stopping"),
            }
            Err(failure)
        }
    }
}

/// Waits for an earlier stop, and resets an earlier failure: systemd reports a unit as failed until it is reset or started.
async fn settle_unit(host: &dyn Host, unit: &str) -> Result<(), HostError> {
    let active =
        async || Ok::<_, HostError>(host.units().unit(unit).await?.map(|status| status.active).unwrap_or_default());
    if active().await? == "deactivating" {
        host.units().stop(unit).await?;
    }
    if active().await? == "failed" {
        host.units().reset_failed(unit).await?;
    }
    Ok(())
}

/// Waits for the next second if a kubelet has run on this node. Kubelets report in whole seconds: the status of the former one must not be
/// of the second in which this one starts, because nothing else tells them apart.
async fn leave_second(host: &dyn Host) -> Result<(), HostError> {
    if host.files().exists(Utf8Path::new(KUBELET_DIR)).await? {
        let passed = u64::try_from(now().as_millis().rem_euclid(1_000)).unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(1_000 - passed)).await;
    }
    Ok(())
}

async fn started(
    task: &Rke2Start,
    context: &Context,
    status: UnitStatus,
    ready_after_ms: u64,
) -> Result<Rke2Started, TaskFailure> {
    let ca_sha256 = match task.role {
        Rke2Role::Server => ca_sha256(context).await?,
        Rke2Role::Agent => None,
    };
    let started_at = status.started_at;
    Ok(Rke2Started { unit: report(status), ready_after_ms, started_at, ca_sha256 })
}

struct Wait<'a> {
    task: &'a Rke2Start,
    /// Restarts that the unit's counter already had.
    restarts_before: u32,
    /// How often each text of `give_up_on` was seen.
    seen: Vec<u32>,
    /// For each exception, true if the last line is within its span.
    excepted: Vec<bool>,
    last_line: String,
    /// True if a line reported the end of the kubelet.
    kubelet_exited: bool,
    /// True after the unit has left the state that it had before the start.
    was_activating: bool,
}

impl Wait<'_> {
    async fn until_running(
        &mut self,
        context: &Context,
        mut events: BoxStream<'static, UnitStatus>,
        mut journal: BoxStream<'static, JournalLine>,
    ) -> Result<UnitStatus, (Code, String)> {
        let unit = self.task.role.unit();
        let left = context.time_left();
        let timeout = tokio::time::sleep(left.saturating_sub(CLEANUP_TIME.min(left / 4)));
        tokio::pin!(timeout);
        loop {
            tokio::select! {
                biased;
                // Lines come last: a unit that never stops logging must not delay the end of the start.
                () = context.cancel.cancelled() => return Err((Code::TaskCancelled, "the start was cancelled".to_owned())),
                status = events.next() => {
                    let Some(status) = status else { return Err((Code::TaskInterrupted, "the stream of unit events ended".to_owned())) };
                    if let Some(end) = self.evaluate(status) { return end }
                }
                () = &mut timeout => {
                    return Err((Code::TaskTimedOut, format!("{unit} did not become ready in time; its last log line: {}", self.last_line)));
                }
                line = journal.next() => {
                    let Some(line) = line else { return Err((Code::TaskInterrupted, "the stream of journal lines ended".to_owned())) };
                    self.last_line = line.text;
                    self.kubelet_exited |= self.last_line.contains(KUBELET_EXITED);
                    context.report_progress(format!("waiting for {unit}: {}", self.last_line));
                    if let Some(text) = self.matched_text() {
                        return Err((Code::HostFailed, format!("{unit} repeatedly logs: {text}")));
                    }
                }
            }
        }
    }

    /// Returns success if the unit is up, an error if it will not come up, and `None` while it must be waited for.
    fn evaluate(&mut self, status: UnitStatus) -> Option<Result<UnitStatus, (Code, String)>> {
        let unit = self.task.role.unit();
        if status.is_running() {
            return Some(Ok(status));
        }
        if status.active == "activating" {
            self.was_activating = true;
        }
        // A start from rest resets systemd's restart counter to zero.
        self.restarts_before = self.restarts_before.min(status.n_restarts);
        if status.n_restarts - self.restarts_before > self.task.restarts_max {
            let why =
                format!("{unit} exited {} times, last with status {}", status.n_restarts, status.exec_main_status);
            return Some(Err((Code::HostFailed, why)));
        }
        match status.active.as_str() {
            "failed" => Some(Err((Code::HostFailed, format!("{unit} failed: {}", status.result)))),
            "inactive" if self.was_activating => Some(Err((
                Code::HostFailed,
                format!("{unit} is inactive after its start: a condition failed, or it was stopped"),
            ))),
            _ => None,
        }
    }

    /// Returns the text for which the last line ends the wait. Counts that line, so it must be called once per line.
    fn matched_text(&mut self) -> Option<&str> {
        let exceptions = self.task.exceptions.iter().zip(&mut self.excepted);
        exceptions.for_each(|(exception, holds)| *holds = exception.includes(&self.last_line, *holds));
        let holding = self.task.exceptions.iter().zip(&self.excepted).filter(|(_, holds)| **holds);
        let excepted: Vec<&str> = holding.map(|(exception, _)| exception.text.as_str()).collect();
        for (pattern, seen) in self.task.give_up_on.iter().zip(&mut self.seen) {
            if self.last_line.contains(&pattern.text) && !excepted.contains(&pattern.text.as_str()) {
                *seen += 1;
                if *seen >= pattern.times {
                    return Some(&pattern.text);
                }
            }
        }
        None
    }
}

/// Returns the failure with the unit's status and the end of its journal since the start; if the kubelet exited, also with the errors in the
/// kubelet's own log, in place of the oldest lines.
pub(crate) async fn with_evidence(
    context: &Context,
    unit: &str,
    since: Timestamp,
    code: Code,
    message: String,
    kubelet_exited: bool,
) -> TaskFailure {
    let mut failure = TaskFailure::new(code, cut(&message, TaskFailure::MESSAGE_BYTES_MAX));
    failure.unit = context.host.units().unit(unit).await.ok().flatten().map(|status| Box::new(report(status)));
    failure.journal = tail(context, unit, JournalFrom::Since(since)).await;
    // The unit's end can be seen before the journal's line about it.
    if kubelet_exited || failure.journal.iter().any(|line| line.text.contains(KUBELET_EXITED)) {
        failure.journal.extend(kubelet_log::errors(context).await);
        let excess = failure.journal.len().saturating_sub(TaskFailure::JOURNAL_LINES_MAX);
        failure.journal.drain(..excess);
    }
    failure
}

#[cfg(test)]
mod tests {
    use gpuaas_app_rke2_tasks::{GiveUp, GiveUpException};

    use super::*;

    const NOT_A_MEMBER: &str = "is a not a member of the etcd cluster";

    /// Returns true if one of these lines ends the wait.
    fn gives_up_on(lines: &[&str]) -> bool {
        let exception = GiveUpException {
            text: NOT_A_MEMBER.to_owned(),
            from: "cluster-reset=true".to_owned(),
            until: "Starting rke2 ".to_owned(),
        };
        let task = Rke2Start {
            role: Rke2Role::Server,
            give_up_on: vec![
                GiveUp { text: "boom".to_owned(), times: 1 },
                GiveUp { text: NOT_A_MEMBER.to_owned(), times: 1 },
            ],
            restarts_max: 2,
            exceptions: vec![exception],
        };
        let mut wait = Wait {
            task: &task,
            restarts_before: 0,
            seen: vec![0; 2],
            excepted: vec![false],
            last_line: String::new(),
            kubelet_exited: false,
            was_activating: false,
        };
        lines.iter().any(|line| {
            wait.last_line = (*line).to_owned();
            wait.matched_text().is_some()
        })
    }

    #[test]
    fn give_up_text_does_not_count_during_its_exception() {
        let not_a_member = format!("Failed to test etcd connection: this server {NOT_A_MEMBER}. Found [], expect: n1");
        let (start, reset) = ("Starting rke2 v1.36.3+rke2r1", "Starting etcd for new cluster, cluster-reset=true");
        assert!(gives_up_on(&[start, &not_a_member]));
        assert!(
            !gives_up_on(&[start, reset, &not_a_member, &not_a_member]),
            "a cluster reset corrects a changed address"
        );
        assert!(gives_up_on(&[start, reset, "boom"]), "other texts count during the exception");
        assert!(
            gives_up_on(&[start, reset, &not_a_member, start, &not_a_member]),
            "a start without a reset ends the exception"
        );
    }
}
