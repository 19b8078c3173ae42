//! The operations on a running workload: drain, uncordon, remove, replace, stop, start, reconcile and repair.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{Preview, StartOperation};
use gpuaas_client::Client;
use gpuaas_model::OperationKind;
use serde_json::{Map, Value, json};

use super::{
    if_match::IfMatch,
    named_nodes::allocation_of,
    plan_args::{ConfirmedPlan, PlanArgs},
    plan_shown::{self, of_project},
    watching,
};
use crate::{completion, output, target::Target};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Move the work of an agent to others, and keep new work away from it
    DrainMember(DrainArgs),
    /// Let a drained agent accept work again
    UncordonMember(UncordonArgs),
    /// Remove an agent from a workload: move its work, stop it, and clean its node
    RemoveMember(RemoveArgs),
    /// Replace an agent: add one on another node, then remove the old one
    ReplaceMember(ReplaceArgs),
    /// Stop a workload on all of its nodes; its data and allocations stay
    Stop(InterruptingArgs),
    /// Start a stopped workload again
    Start(PlainArgs),
    /// Correct what deviates from the desired state, without restarting anything
    Reconcile(PlainArgs),
    /// Restart and reinstall what does not work, within a scope
    Repair(RepairArgs),
    /// Explain why there is no restart, and what to use instead: reconcile, repair, or stop and start
    Restart {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
    },
}

/// A member of a workload.
#[derive(Debug, Args)]
pub(crate) struct Subject {
    /// Name or id of the workload
    #[arg(add = ArgValueCandidates::new(completion::workloads))]
    workload: String,
    /// Name of the member, for example agent-2
    #[arg(add = ArgValueCandidates::new(completion::present_members))]
    member: String,
}

/// What a drain may evict.
#[derive(Debug, Args)]
pub(crate) struct Eviction {
    /// Also evict pods that no controller replaces, and drain the last ready agent
    #[arg(long)]
    force: bool,
    /// Also evict pods with emptyDir volumes; the data in these volumes is lost
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Longest time for the drain, for example 30m; at most 1 day; default: 10m
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse_timeout)]
    drain_timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    eviction: Eviction,
    #[command(flatten)]
    plan: ConfirmedPlan,
    #[command(flatten)]
    seen: IfMatch,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    drain: DrainArgs,
    /// Give up the member: remove it although its node is unreachable or could not be cleaned; the node accepts no deployment until it is clean
    #[arg(long, requires = "reason")]
    give_up: bool,
    /// Reason for --give-up, in one line; the audit keeps it
    #[arg(long, value_name = "TEXT", requires = "give_up")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UncordonArgs {
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    seen: IfMatch,
}

#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    #[command(flatten)]
    subject: Subject,
    /// Node for the new agent, by node name or allocation id
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(completion::usable_nodes))]
    by: String,
    #[command(flatten)]
    eviction: Eviction,
    #[command(flatten)]
    plan: ConfirmedPlan,
    #[command(flatten)]
    seen: IfMatch,
}

#[derive(Debug, Args)]
pub(crate) struct InterruptingArgs {
    /// Name or id of the workload
    #[arg(add = ArgValueCandidates::new(completion::workloads))]
    workload: String,
    #[command(flatten)]
    plan: ConfirmedPlan,
    #[command(flatten)]
    seen: IfMatch,
}

#[derive(Debug, Args)]
pub(crate) struct PlainArgs {
    /// Name or id of the workload
    #[arg(add = ArgValueCandidates::new(completion::workloads))]
    workload: String,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    seen: IfMatch,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Name or id of the workload
    #[arg(add = ArgValueCandidates::new(completion::workloads))]
    workload: String,
    /// What may be restarted and reinstalled: one member, the control plane, or everything
    #[arg(long, value_enum)]
    scope: Scope,
    /// With --scope member: name of the member, for example agent-2
    #[arg(long, required_if_eq("scope", "member"), add = ArgValueCandidates::new(completion::present_members))]
    member: Option<String>,
    #[command(flatten)]
    plan: ConfirmedPlan,
    #[command(flatten)]
    seen: IfMatch,
}

/// Scope of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    Member,
    ControlPlane,
    WholeRuntime,
}

impl Scope {
    /// Returns the scope as the API takes it.
    const fn as_parameter(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::ControlPlane => "control_plane",
            Self::WholeRuntime => "whole_runtime",
        }
    }

    /// Returns what the scope contains, as an object of a sentence.
    fn contents(self, member: Option<&str>) -> String {
        match self {
            Self::Member => member.unwrap_or("the member").to_owned(),
            Self::ControlPlane => "the control plane".to_owned(),
            Self::WholeRuntime => "every member".to_owned(),
        }
    }
}

impl Eviction {
    /// Returns the parameters of a drain of this member. What is not given keeps the app's default.
    fn parameters(&self, member: &str) -> Map<String, Value> {
        let mut parameters = object(json!({ "member": member }));
        if self.force {
            parameters.insert("force".to_owned(), true.into());
        }
        if self.delete_emptydir_data {
            parameters.insert("delete_empty_dir_data".to_owned(), true.into());
        }
        if let Some(longest) = self.drain_timeout {
            let seconds = u64::try_from(longest.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
            parameters.insert("timeout_seconds".to_owned(), seconds.into());
        }
        parameters
    }
}

/// An operation as a verb requests it.
struct Request {
    workload: String,
    /// Kind in the API's spelling; `restart` is none of its kinds.
    kind: &'static str,
    parameters: Map<String, Value>,
    /// Node for a new member, by node name or allocation id.
    by: Option<String>,
    seen: IfMatch,
    start: Start,
}

/// How a verb starts its operation.
enum Start {
    /// Without a question.
    Plain(PlanArgs),
    /// After a question: `act` with its object, and what is lost.
    Asked { plan: ConfirmedPlan, act: String, lost: String },
}

pub(super) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    let request = Request::of(verb, target.project.as_deref());
    if let Start::Asked { plan, .. } = &request.start {
        plan.check()?;
    }
    let client = request.seen.client(client);
    let (project, workload) = (&target.project, request.workload);
    let mut parameters = request.parameters;
    if let Some(node) = &request.by {
        let allocation = allocation_of(&client, target, "--by", node).await?;
        parameters.insert("by".to_owned(), allocation.into());
    }
    let app = client.get_workload(project.clone(), &workload).await?.workload.app;
    let operation = StartOperation { app, kind: request.kind.to_owned(), parameters };
    let preview = client.preview_operation(project.clone(), &workload, &operation);
    let plan_digest = match request.start {
        Start::Plain(PlanArgs { plan: true, .. }) => {
            output::one(target.output, &preview.await?, plan_shown::preview, &workload)?;
            return Ok(ExitCode::SUCCESS);
        }
        Start::Plain(PlanArgs { plan: false, plan_digest }) => plan_digest,
        Start::Asked { plan, act, lost } => {
            let loss = |preview: &Preview| plan_shown::loss(act, &lost, preview);
            match plan.permit(target, preview, loss, &workload).await? {
                Some(permit) => permit.plan_digest,
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    };
    let started = client.start_operation(project.clone(), &workload, &operation, plan_digest).await?;
    watching::report_and_follow(&client, target, started).await
}

impl Request {
    fn of(verb: Verb, project: Option<&str>) -> Self {
        match verb {
            Verb::DrainMember(of) => {
                let lost = "Its work moves to other members, and it accepts no new work until it is uncordoned.";
                Self::of_drain(of, OperationKind::DrainMember, ("drain", lost), project)
            }
            Verb::RemoveMember(of) => Self::of_removal(of, project),
            Verb::UncordonMember(UncordonArgs { subject: Subject { workload, member }, plan, seen }) => {
                let parameters = object(json!({ "member": member }));
                let kind = OperationKind::UncordonMember.as_str();
                Self { workload, kind, parameters, by: None, seen, start: Start::Plain(plan) }
            }
            Verb::ReplaceMember(of) => Self::of_replacement(of, project),
            Verb::Stop(of) => Self::of_stop(of, project),
            Verb::Start(of) => Self::plain(of, OperationKind::Start.as_str()),
            Verb::Reconcile(of) => Self::plain(of, OperationKind::Reconcile.as_str()),
            Verb::Repair(of) => Self::of_repair(of, project),
            Verb::Restart { workload } => {
                let (plan, seen) = (PlanArgs::default(), IfMatch::default());
                Self::plain(PlainArgs { workload, plan, seen }, "restart")
            }
        }
    }

    fn plain(of: PlainArgs, kind: &'static str) -> Self {
        let PlainArgs { workload, plan, seen } = of;
        Self { workload, kind, parameters: Map::new(), by: None, seen, start: Start::Plain(plan) }
    }

    fn of_drain(of: DrainArgs, kind: OperationKind, (act, lost): (&str, &str), project: Option<&str>) -> Self {
        let DrainArgs { subject: Subject { workload, member }, eviction, plan, seen } = of;
        let act = format!("{act} {member} of {}", of_project(&workload, project));
        let start = Start::Asked { plan, act, lost: lost.to_owned() };
        Self { parameters: eviction.parameters(&member), workload, kind: kind.as_str(), by: None, seen, start }
    }

    fn of_removal(RemoveArgs { drain, give_up, reason }: RemoveArgs, project: Option<&str>) -> Self {
        let lost = if give_up {
            "It is removed without its node: what is left there stays, and is unknown until the node is inspected."
        } else {
            "Its work moves to other members; then it is stopped, and its files are deleted from its node."
        };
        let mut request = Self::of_drain(drain, OperationKind::RemoveMember, ("remove", lost), project);
        if give_up {
            request.parameters.insert("give_up".to_owned(), true.into());
        }
        request.parameters.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
        request
    }

    fn of_replacement(of: ReplaceArgs, project: Option<&str>) -> Self {
        let ReplaceArgs { subject: Subject { workload, member }, by, eviction, plan, seen } = of;
        let act = format!("replace {member} of {}", of_project(&workload, project));
        let lost = format!(
            "A new member on {by} joins first. Then the work of {member} moves to other members, it is stopped, and its files are deleted \
             from its node."
        );
        let (parameters, start) = (eviction.parameters(&member), Start::Asked { plan, act, lost });
        Self { workload, kind: OperationKind::ReplaceMember.as_str(), parameters, by: Some(by), seen, start }
    }

    fn of_stop(of: InterruptingArgs, project: Option<&str>) -> Self {
        let InterruptingArgs { workload, plan, seen } = of;
        let act = format!("stop {}", of_project(&workload, project));
        let lost = "Everything that runs in it ends on every member. Its data and its allocations stay.".to_owned();
        let start = Start::Asked { plan, act, lost };
        Self { workload, kind: OperationKind::Stop.as_str(), parameters: Map::new(), by: None, seen, start }
    }

    fn of_repair(of: RepairArgs, project: Option<&str>) -> Self {
        let RepairArgs { workload, scope, member, plan, seen } = of;
        let contents = scope.contents(member.as_deref());
        let act = format!("repair {contents} of {}", of_project(&workload, project));
        let lost = format!("It stops and starts {contents}: what runs there ends and starts again. The data stays.");
        let mut parameters = object(json!({ "scope": scope.as_parameter() }));
        parameters.extend(member.map(|member| ("member".to_owned(), member.into())));
        let start = Start::Asked { plan, act, lost };
        Self { workload, kind: OperationKind::Repair.as_str(), parameters, by: None, seen, start }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser, error::ErrorKind};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        verb: Verb,
    }

    fn parsed(line: &str) -> Result<Verb, clap::Error> {
        Line::try_parse_from(std::iter::once("gpuaas").chain(line.split(' '))).map(|line| line.verb)
    }

    fn request(line: &str) -> Request {
        Request::of(parsed(line).expect(line), Some("ml"))
    }

    #[test]
    fn each_verb_requests_its_kind_with_the_parameters_that_are_given() {
        for (line, kind, parameters) in [
            ("drain-member train agent-2", "drain_member", json!({ "member": "agent-2" })),
            (
                "remove-member train agent-2 --force --delete-emptydir-data --drain-timeout 1500ms",
                "remove_member",
                json!({ "member": "agent-2", "force": true, "delete_empty_dir_data": true, "timeout_seconds": 2 }),
            ),
            (
                "remove-member train agent-2 --give-up --reason burnt",
                "remove_member",
                json!({ "member": "agent-2", "give_up": true, "reason": "burnt" }),
            ),
            ("uncordon-member train agent-2", "uncordon_member", json!({ "member": "agent-2" })),
            ("replace-member train agent-2 --by gpu-5", "replace_member", json!({ "member": "agent-2" })),
            ("stop train", "stop", json!({})),
            ("start train", "start", json!({})),
            ("reconcile train", "reconcile", json!({})),
            ("repair train --scope whole-runtime", "repair", json!({ "scope": "whole_runtime" })),
            (
                "repair train --scope member --member agent-2",
                "repair",
                json!({ "scope": "member", "member": "agent-2" }),
            ),
            ("restart train", "restart", json!({})),
        ] {
            let request = request(line);
            assert_eq!((request.kind, Value::from(request.parameters)), (kind, parameters), "{line}");
            assert_eq!(request.workload, "train");
        }
        assert_eq!(request("replace-member train agent-2 --by gpu-5").by.as_deref(), Some("gpu-5"));
    }

    #[test]
    fn verbs_that_interrupt_something_ask_and_name_their_object() {
        let question = |line: &str| match request(line).start {
            Start::Asked { act, lost, .. } => Some((act, lost)),
            Start::Plain(_) => None,
        };
        for (line, act, lost) in [
            ("drain-member train a", "drain a of workload train of project ml", "until it is uncordoned"),
            ("remove-member train a", "remove a of workload train of project ml", "deleted from its node"),
            ("remove-member train a --give-up --reason b", "remove a of workload train of project ml", "is unknown"),
            ("replace-member train a --by gpu-5", "replace a of workload train of project ml", "on gpu-5 joins first"),
            ("stop train", "stop workload train of project ml", "on every member"),
            ("repair train --scope control-plane", "repair the control plane of workload train", "The data stays"),
        ] {
            let (asked, shown) = question(line).expect(line);
            assert!(asked.starts_with(act) && shown.contains(lost), "{line}: {asked} {shown}");
        }
        for line in ["uncordon-member train a", "start train", "reconcile train", "restart train"] {
            assert_eq!(question(line), None, "{line}");
        }
    }

    #[test]
    fn incomplete_commands_are_mistakes_of_use() {
        for (line, kind) in [
            ("repair train", ErrorKind::MissingRequiredArgument),
            ("repair train --scope member", ErrorKind::MissingRequiredArgument),
            ("repair train --scope everything", ErrorKind::InvalidValue),
            ("replace-member train agent-2", ErrorKind::MissingRequiredArgument),
            ("drain-member train", ErrorKind::MissingRequiredArgument),
            ("remove-member train agent-2 --give-up", ErrorKind::MissingRequiredArgument),
            ("remove-member train agent-2 --reason burnt", ErrorKind::MissingRequiredArgument),
            ("drain-member train agent-2 --give-up", ErrorKind::UnknownArgument),
            ("drain-member train agent-2 --drain-timeout 0s", ErrorKind::ValueValidation),
            ("stop train --plan --plan-digest plan-1", ErrorKind::ArgumentConflict),
        ] {
            assert_eq!(parsed(line).expect_err(line).kind(), kind, "{line}");
        }
    }
}
