//! The transition tables, printed into `docs/states.md`. `GPUAAS_UPDATE_GOLDEN=1` writes it.

use std::fmt::{Display, Write};

use gpuaas_model::{
    AllocationEvent, AllocationState, Connectivity, Fault, FaultClass, Health, KeyEvent, KeyState, Lifecycle,
    MemberEvent, MemberState, NextAction, NodeEvent, NodeState, OperationKind, OperationState, Recovery, StepState,
    TaskState, Timestamp,
};

/// States down, events across, the state after it in the cell.
fn table<S: Copy + Display, E: Copy + Display, T: Display>(
    title: &str,
    states: &[S],
    events: &[E],
    on: impl Fn(S, E) -> Option<T>,
) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("\n## {title}\n\n");
    text += &row([String::from("state")].into_iter().chain(events.iter().map(|event| format!("`{event}`"))).collect());
    text += &row(vec!["---".to_owned(); events.len() + 1]);
    for &state in states {
        let cells = events.iter().map(|&event| on(state, event).map_or_else(String::new, |to| to.to_string()));
        text += &row([format!("`{state}`")].into_iter().chain(cells).collect());
    }
    text
}

fn value_list<T: Display>(title: &str, all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(|value| format!("`{value}`")).collect();
    format!("- {title}: {}\n", all.join(", "))
}

fn members() -> String {
    use {MemberEvent as E, MemberState as S};
    let since = Timestamp::from_millis(0);
    let fault = Fault {
        code: "code".into(),
        class: FaultClass::Manual,
        summary: String::new(),
        evidence: None,
        next: NextAction::text(""),
    };
    let states = [
        S::Pending,
        S::Preparing { since },
        S::Bootstrapping { since },
        S::Joining { since },
        S::Ready { since },
        S::Stopped { since },
        S::Draining { since },
        S::Drained { since },
        S::Removing { since },
        S::Removed,
        S::Failed { since, fault: fault.clone() },
    ];
    let events = [
        ("prepare", E::Prepare),
        ("bootstrap", E::Bootstrap),
        ("join", E::Join),
        ("became_ready", E::BecameReady),
        ("stopped", E::Stopped),
        ("drain", E::Drain),
        ("drained", E::Drained),
        ("remove", E::Remove),
        ("removed", E::Removed),
        ("fail", E::Fail { fault }),
    ];
    let names: Vec<_> = states.iter().map(MemberState::name).collect();
    let event_names: Vec<&str> = events.iter().map(|(name, _)| *name).collect();
    table("Members", &names, &event_names, |name, event| {
        let state = states.iter().find(|state| state.name() == name)?;
        let (_, event) = events.iter().find(|(known, _)| *known == event)?;
        state.on(event.clone(), since).ok().map(|after| after.name())
    })
}

#[test]
fn golden_transition_tables_match_the_code() {
    let mut text = String::from(
        "# States\n\nGenerated from the code; update it with `GPUAAS_UPDATE_GOLDEN=1 cargo test -p gpuaas-model`. An empty cell is a transition \
         that does not exist.\n",
    );
    text += &table("Nodes", NodeState::ALL, NodeEvent::ALL, |state, event| state.on(event).ok());
    text += &table("Allocations", AllocationState::ALL, AllocationEvent::ALL, |state, event| state.on(event).ok());
    text += &members();
    text += &table("Task-signing keys", KeyState::ALL, KeyEvent::ALL, |state, event| state.on(event).ok());
    text +=
        "\n## Values without transitions\n\nA workload's fields follow from its members and its newest operation.\n\n";
    text += &value_list("workload, lifecycle", Lifecycle::ALL);
    text += &value_list("workload and member, health", Health::ALL);
    text += &value_list("workload, recovery", Recovery::ALL);
    text += &value_list("operation, kind", OperationKind::ALL);
    text += &value_list("operation, state", OperationState::ALL);
    text += &value_list("step, state", StepState::ALL);
    text += &value_list("task, state", TaskState::ALL);
    text += &value_list("node, connectivity", Connectivity::ALL);
    writeln!(text).expect("writing to a String succeeds");
    let text = text.trim_end().to_owned() + "\n";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/states.md");
    if std::env::var_os("GPUAAS_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("the golden file can be written");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "docs/states.md differs from the code");
}
