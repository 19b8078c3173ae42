//! Shows plans: what an operation would do, on which node, in which order, and what it interrupts.

use gpuaas_api_types::{PlannedStep, Preview};
use gpuaas_model::OperationKind;

use super::confirm::Loss;
use crate::{table::table, text::Text};

/// Formats the plan of an operation, and for a deployment what the app promises.
pub(super) fn preview(preview: &Preview) -> Text {
    let members: Vec<String> = preview.members.iter().map(|of| format!("{} on {}", of.name, of.node_name)).collect();
    let members = if members.is_empty() { String::new() } else { format!(" for {}", members.join(", ")) };
    let mut text = Text::from(format!("{}: {}{members}\n", verb(&preview.kind), count(preview.steps.len())));
    text.push(&plan(preview));
    if preview.kind == OperationKind::Deploy.as_str() {
        let (promised, not_promised) = (preview.promises.join("; "), preview.not_promised.join("; "));
        text.push_str(&format!("\npromised      {promised}\nnot promised  {not_promised}"));
    }
    text
}

/// Returns the verb that requests operations of a kind, for example `drain-member`.
pub(super) fn verb(kind: &str) -> String {
    kind.replace('_', "-")
}

fn count(steps: usize) -> String {
    if steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") }
}

/// Formats the steps of a plan, what it interrupts and its digest.
pub(super) fn plan(preview: &Preview) -> Text {
    let mut text = steps(&preview.steps);
    if !preview.interrupts.is_empty() {
        text.push_str(&format!("\ninterrupts{}", interrupted(preview)));
    }
    if !preview.digest.is_empty() {
        text.push_str(&format!("\ndigest  {0}   (run exactly this plan: --plan-digest {0})", preview.digest));
    }
    text
}

fn interrupted(preview: &Preview) -> String {
    preview.interrupts.iter().map(|interrupted| format!("\n  - {interrupted}")).collect()
}

fn steps(steps: &[PlannedStep]) -> Text {
    let rows = steps.iter().map(|step| {
        vec![
            format!("  {}", step.key),
            step.node_name.clone().unwrap_or_default(),
            // A control plane of an earlier version describes a step by its phase only.
            if step.does.is_empty() { step.phase.clone() } else { step.does.clone() },
            step.interrupts.clone().unwrap_or_default(),
            format!("{} s", step.deadline_ms / 1_000),
            [step.needs.as_slice(), &step.after].concat().join(", "),
        ]
    });
    table(&["  STEP", "NODE", "DOES", "INTERRUPTS", "DEADLINE", "AFTER"], rows)
}

/// Returns what an operation would interrupt: `lost` and then what its plan says.
pub(super) fn loss(act: String, lost: &str, preview: &Preview) -> Loss {
    let lost = format!("{lost}{}", interrupted(preview));
    Loss { details: steps_and_digest(preview), ..Loss::new(act, lost) }
}

/// The plan without what it interrupts, which the loss has said.
fn steps_and_digest(preview: &Preview) -> Text {
    plan(&Preview { interrupts: Vec::new(), ..preview.clone() })
}

/// Returns what a decommission would destroy.
pub(super) fn removal(preview: &Preview, workload: &str, project: Option<&str>) -> Loss {
    let nodes: Vec<&str> = preview.members.iter().map(|member| member.node_name.as_str()).collect();
    let lost = match nodes.as_slice() {
        [] => "It has no members.".to_owned(),
        nodes => format!("Its cluster and all data in it are deleted from {}.", nodes.join(", ")),
    };
    loss(format!("decommission {}", of_project(workload, project)), &lost, preview)
}

/// Returns `workload NAME`, with its project if the command line names one.
pub(super) fn of_project(workload: &str, project: Option<&str>) -> String {
    let project = project.map(|project| format!(" of project {project}")).unwrap_or_default();
    format!("workload {workload}{project}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drain() -> Preview {
        let step = |key: &str, does: &str, needs: &[&str], interrupts: Option<&str>| {
            json!({
                "key": key, "phase": "member_draining", "needs": needs, "deadline_ms": 60_000, "member": "agent-2",
                "node_name": "gpu-2", "does": does, "interrupts": interrupts,
            })
        };
        let preview = json!({
            "kind": "drain_member", "members": [], "promises": ["node placement"], "not_promised": [],
            "digest": "plan-0123456789abcdef", "interrupts": ["the pods on gpu-2 end and start again on other nodes"],
            "steps": [
                step("agent-2/cordon", "keep new pods away", &[], None),
                step("agent-2/drain", "evict its pods", &["agent-2/cordon"], Some("its pods")),
            ],
        });
        serde_json::from_value(preview).expect("a preview")
    }

    #[test]
    fn plan_has_each_step_with_node_words_interruption_deadline_and_digest() {
        insta::assert_snapshot!(preview(&drain()).as_str(), @r"
        drain-member: 2 steps
          STEP            NODE   DOES                INTERRUPTS  DEADLINE  AFTER
          agent-2/cordon  gpu-2  keep new pods away              60 s
          agent-2/drain   gpu-2  evict its pods      its pods    60 s      agent-2/cordon
        interrupts
          - the pods on gpu-2 end and start again on other nodes
        digest  plan-0123456789abcdef   (run exactly this plan: --plan-digest plan-0123456789abcdef)
        ");
    }

    #[test]
    fn plan_names_the_nodes_of_its_members_and_a_deployment_what_is_promised() {
        let member = json!({ "name": "agent-3", "allocation": "a", "node": "n", "node_name": "gpu-5" });
        let members = vec![serde_json::from_value(member).expect("a member")];
        let added = Preview { kind: "add_member".to_owned(), members, ..drain() };
        let shown = preview(&added).as_str().to_owned();
        assert!(
            shown.starts_with("add-member: 2 steps for agent-3 on gpu-5\n") && !shown.contains("promised"),
            "{shown}"
        );
        let shown = preview(&Preview { kind: "deploy".to_owned(), ..added }).as_str().to_owned();
        assert!(shown.contains("promised      node placement"), "{shown}");
    }

    #[test]
    fn question_says_what_the_plan_interrupts() {
        let loss = loss("drain agent-2".to_owned(), "Its work moves.", &drain());
        assert_eq!(loss.lost, "Its work moves.\n  - the pods on gpu-2 end and start again on other nodes");
        assert!(loss.details.as_str().contains("agent-2/drain") && !loss.details.as_str().contains("\ninterrupts"));
    }

    #[test]
    fn decommission_names_the_nodes_that_lose_data_and_the_order_of_its_steps() {
        let preview: Preview = serde_json::from_value(json!({
            "kind": "decommission", "promises": [], "not_promised": [],
            "members": [{ "name": "server-1", "allocation": "a", "node": "n", "node_name": "gpu-1" }],
            "steps": [
                { "key": "server-1/stop", "phase": "server_removing", "needs": [], "deadline_ms": 180_000 },
                { "key": "server-1/uninstall", "phase": "server_removing", "needs": [], "after": ["server-1/stop"], "deadline_ms": 180_000 },
            ],
        }))
        .expect("a preview");
        assert_eq!(removal(&preview, "train", None).act, "decommission workload train");
        let loss = removal(&preview, "train", Some("other"));
        assert_eq!(loss.act, "decommission workload train of project other");
        assert_eq!(loss.lost, "Its cluster and all data in it are deleted from gpu-1.");
        insta::assert_snapshot!(format!("plan\n{}", loss.details.as_str()), @r"
        plan
          STEP                NODE  DOES             INTERRUPTS  DEADLINE  AFTER
          server-1/stop             server_removing              180 s
          server-1/uninstall        server_removing              180 s     server-1/stop
        ");
    }
}
