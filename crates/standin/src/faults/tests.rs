use std::collections::HashSet;

use super::switch::{Cure, Roles};
use super::*;
use crate::settings::Role;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stand-in.md");
const FROM: &str = "<!-- faults: written by the tests of crates/standin -->\n";
const UNTIL: &str = "<!-- end of faults -->\n";

fn facts(role: Role) -> Facts {
    Facts {
        role,
        node_name: "n1".to_owned(),
        address: "127.1.2.3".to_owned(),
        server: "127.9.9.9:9345".to_owned(),
        data_dir: "/var/lib/rancher/rke2".into(),
        ca_hash: "ab".repeat(32),
    }
}

fn script(name: &str, role: Role) -> Script {
    let switch = SWITCHES.iter().find(|switch| switch.name == name).expect("a switch");
    (switch.script)(&facts(role))
}

/// `GPUAAS_UPDATE_GOLDEN=1` writes the table into the document.
#[test]
fn document_lists_every_switch() {
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = text.split_once(FROM).expect("the document has the table's first mark");
    let (shown, after) = rest.split_once(UNTIL).expect("the document has the table's last mark");
    if std::env::var_os("GPUAAS_UPDATE_GOLDEN").is_some() {
        std::fs::write(DOCUMENT, format!("{before}{FROM}\n{}\n{UNTIL}{after}", table())).unwrap();
        return;
    }
    assert_eq!(shown.trim(), table().trim(), "docs/stand-in.md differs from the table of switches");
}

#[test]
fn every_row_of_the_survey_has_a_switch_or_a_reason() {
    for row in 1..=25 {
        let is_switched = SWITCHES.iter().any(|switch| switch.row == Some(row));
        let is_explained = WITHOUT_SWITCH.iter().any(|(without, _)| *without == row);
        assert!(is_switched != is_explained, "row {row}");
    }
}

#[test]
fn every_switch_has_a_name_of_its_own_and_a_script_of_its_stage() {
    let names: HashSet<&str> = SWITCHES.iter().map(|switch| switch.name).collect();
    assert_eq!(names.len(), SWITCHES.len());
    for switch in SWITCHES {
        for role in [Role::Server, Role::Agent].into_iter().filter(|role| switch.roles.include(*role)) {
            let fits = match (switch.stage, (switch.script)(&facts(role))) {
                (Stage::Start, Script::Exits { fatal, .. }) => !fatal.is_empty(),
                (Stage::Validate | Stage::Unstable | Stage::Retrieve, Script::Refuses(reason)) => !reason.is_empty(),
                (Stage::ControlPlane | Stage::Joined | Stage::Network | Stage::Later, Script::Repeats(lines)) => {
                    !lines.is_empty()
                }
                (stage, Script::Silent) => stage == Stage::Silent,
                (_, Script::Exits { .. } | Script::Refuses(_) | Script::Repeats(_)) => false,
            };
            assert!(fits, "{} as {}", switch.name, role.name());
        }
        // Only an agent validates a server, and only a server starts a control plane.
        match switch.stage {
            Stage::Validate | Stage::Unstable => assert_eq!(switch.roles, Roles::Agent, "{}", switch.name),
            Stage::ControlPlane => assert_eq!(switch.roles, Roles::Server, "{}", switch.name),
            Stage::Start | Stage::Retrieve | Stage::Joined | Stage::Silent | Stage::Network | Stage::Later => {}
        }
    }
    assert!(SWITCHES.iter().any(|switch| switch.name == IMAGES_COLLECTED));
    for stage in Stage::ALL {
        assert!(SWITCHES.iter().any(|switch| switch.stage == stage), "{stage:?} has no switch");
    }
}

#[test]
fn names_stand_one_per_line_with_comments() {
    let named = parse("# none yet\nnever-ready\n  ca-mismatch # both\n\n").unwrap();
    assert_eq!(named.iter().map(|switch| switch.name).collect::<Vec<_>>(), ["never-ready", "ca-mismatch"]);
}

#[test]
fn unknown_name_is_refused() {
    let refused = parse("never-redy").err().expect("refused").to_string();
    assert!(refused.contains("\"never-redy\"") && refused.contains("rke2 stand-in-faults"), "{refused}");
}

#[test]
fn cause_of_an_exited_kubelet_is_in_its_own_log_only() {
    let Script::Repeats(lines) = script("kubelet-exited", Role::Agent) else { panic!("repeats") };
    for line in lines {
        let is_kubelets = matches!(line, Line::Kubelet { .. });
        assert_eq!(line.text().contains("command failed"), is_kubelets, "{line:?}");
    }
}

#[test]
fn lines_of_rows_7_and_9_have_the_level_info() {
    for (name, text) in [("second-server-never-ready", "Container for etcd"), ("not-a-member", "is a not a member of")]
    {
        let Script::Repeats(lines) = script(name, Role::Server) else { panic!("repeats") };
        let line = lines.iter().map(Line::text).find(|line| line.contains(text)).expect("the line");
        assert!(line.starts_with("level=info"), "{line}");
    }
}

/// An action that no reader of the table can take would be worse than none.
#[test]
fn every_cure_names_an_action() {
    for switch in SWITCHES {
        assert!(!switch.cure.text().is_empty());
        if let Cure::Operator(what) = switch.cure {
            assert!(!what.is_empty(), "{}", switch.name);
        }
    }
}
