//! Implements `gpuaas workload report`: a script with the token of a service account can be the controller of a workload.

use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{ReportAccepted, ReportWorkload, ReportedMember, ReportedProgress};
use gpuaas_client::Client;

use crate::{completion, output, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// Name or id of the workload
    #[arg(add = ArgValueCandidates::new(completion::workloads))]
    workload: String,
    /// Generation of the workload that you looked at, as `workload show -o json` prints it
    #[arg(long, value_name = "NUMBER")]
    generation: u64,
    /// Number of this report within its generation; a lower one than before is refused
    #[arg(long, value_name = "NUMBER")]
    sequence: Option<u64>,
    /// One of the app's phases
    #[arg(long)]
    phase: Option<String>,
    /// Progress of the app's own work, for example 3/5
    #[arg(long, value_name = "COMPLETED/TOTAL", value_parser = progress)]
    progress: Option<ReportedProgress>,
    /// Health of a member: progressing, healthy, degraded or failed, with a code and a message of your own; repeatable
    #[arg(long = "member", value_name = "MEMBER=HEALTH[:CODE[:MESSAGE]]", value_parser = member)]
    members: Vec<ReportedMember>,
}

pub(super) async fn run(client: &Client, target: &Target, ask: Report) -> anyhow::Result<()> {
    let Report { workload, generation, sequence, phase, progress, members } = ask;
    let report = ReportWorkload { generation, sequence, phase, progress, members };
    let accepted = client.report_workload(target.project.clone(), &workload, &report).await?;
    let words = |accepted: &ReportAccepted| {
        let changed = if accepted.changed { "is reported" } else { "is reported again, without a change" };
        let not_applied = accepted.not_applied.iter().map(|what| format!("\nNOT YET  {what}"));
        format!("Generation {generation} of {workload} {changed}.{}", not_applied.collect::<String>())
    };
    output::one(target.output, &accepted, words, &workload)
}

fn progress(text: &str) -> Result<ReportedProgress, String> {
    let wrong = || format!("{text:?} is not like 3/5");
    let (completed, total) = text.split_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse().map_err(|_| wrong());
    Ok(ReportedProgress { completed: number(completed)?, total: number(total)? })
}

/// Parses `MEMBER=HEALTH[:CODE[:MESSAGE]]`. The message may contain colons; an empty code is none.
fn member(text: &str) -> Result<ReportedMember, String> {
    let (member, said) = text.split_once('=').ok_or_else(|| format!("{text:?} is not like agent-1=degraded"))?;
    let mut parts = said.splitn(3, ':');
    let health = parts.next().unwrap_or_default().to_owned();
    let mut next = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
    let (code, message) = (next(), next());
    Ok(ReportedMember { member: member.to_owned(), health, code, message, evidence: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_has_a_health_and_maybe_a_code_and_a_message_with_colons() {
        let parts = |text: &str| {
            let of = member(text).expect(text);
            (of.member, of.health, of.code, of.message)
        };
        let some = |text: &str| Some(text.to_owned());
        let named = |health: &str| ("agent-1".to_owned(), health.to_owned());
        let of = |health: &str, code: Option<String>, message: Option<String>| {
            let (member, health) = named(health);
            (member, health, code, message)
        };
        assert_eq!(parts("agent-1=healthy"), of("healthy", None, None));
        assert_eq!(parts("agent-1=degraded:gpu_lost"), of("degraded", some("gpu_lost"), None));
        let full = parts("agent-1=failed:gpu_lost:Xid 79: GPU 3=gone");
        assert_eq!(full, of("failed", some("gpu_lost"), some("Xid 79: GPU 3=gone")));
        assert_eq!(parts("agent-1=degraded::slow"), of("degraded", None, some("slow")));
        assert!(member("agent-1").is_err());
    }

    #[test]
    fn progress_is_two_numbers() {
        let of = progress("3/5").expect("it is");
        assert_eq!((of.completed, of.total), (3, 5));
        for wrong in ["3", "3/", "/5", "-1/5", "3/5/7", "a/b", "4294967296/5"] {
            assert!(progress(wrong).is_err(), "{wrong}");
        }
    }
}
