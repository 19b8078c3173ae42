use gpuaas_model::{MemberState, SecretId, Timestamp};
use gpuaas_planner::{ReleaseView, SecretView, drift::is_correctable, test_views};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::names;

fn member(component: &str) -> MemberView {
    test_views::member(&format!("{component}-1"), 1, MemberState::Ready { since: Timestamp::from_millis(5) })
}

fn workload(member: &MemberView) -> WorkloadView {
    let secret = |name: &str| {
        let of = SecretView { id: SecretId::from_uuid(Uuid::from_u128(6)), sha256: format!("digest of {name}") };
        (name.to_owned(), of)
    };
    WorkloadView {
        config: json!({}),
        release: ReleaseView { version: "v1.36.3+rke2r1".to_owned(), artifacts: Vec::new() },
        secrets: [names::SERVER_TOKEN, names::AGENT_TOKEN].map(secret).into(),
        ..test_views::workload(vec![member.clone()])
    }
}

#[test]
fn observation_expects_the_files_that_the_platform_writes() {
    let server = member(names::SERVER);
    let of = workload(&server);
    let observe = observation(&server, &of).expect("a server has files");
    let files = configure(&server, &of).expect("a server has files");
    let expected = observe.expected.expect("digests");
    assert_eq!(observe.role, Rke2Role::Server);
    assert_eq!(expected.config_sha256, hex::encode(Sha256::digest(files.config)));
    assert_eq!(expected.token_sha256, "digest of server-token");
    assert_eq!(expected.agent_token_sha256.as_deref(), Some("digest of agent-token"));
    let agent = member(names::AGENT);
    assert_eq!(observation(&agent, &workload(&agent)), None, "without a server, nothing is known of its files");
}

#[test]
fn each_deviation_names_what_corrects_it() {
    use DeviationKind as K;
    let kinds = [
        K::ConfigChanged,
        K::ConfigMissing,
        K::TokenChanged,
        K::TokenMissing,
        K::UnitDisabled,
        K::UnitMasked,
        K::UnitFileMissing,
        K::ProgramMissing,
        K::KubeconfigMissing,
        K::ForeignConfig,
    ];
    let server = member(names::SERVER);
    let of = workload(&server);
    let deviations: Vec<_> = kinds.map(|kind| Deviation { kind, text: "it differs".to_owned() }).into();
    let result = json!({
        "unit": null, "version_line": null, "listening": [], "journal": [], "deviations": deviations,
    });
    let found = differences(&server, &of, &result).expect("it is readable");
    assert_eq!(found.iter().filter(|found| is_correctable(found, &of.name)).count(), 6, "files and enablement");
    let commands: Vec<&str> = found.iter().filter_map(|found| found.action.command.as_deref()).collect();
    assert_eq!(commands[..6], ["gpuaas workload reconcile train"; 6]);
    assert_eq!(commands[6..9], ["gpuaas workload repair train --scope control-plane"; 3]);
    assert_eq!(commands[9..], ["gpuaas workload diff train"]);
    let agent = member(names::AGENT);
    let result = json!({
        "unit": null, "version_line": null, "listening": [], "journal": [],
        "deviations": [{ "kind": "program_missing", "text": "rke2 does not exist" }],
    });
    let found = differences(&agent, &workload(&agent), &result).expect("it is readable");
    let repair = "gpuaas workload repair train --scope member --member agent-1";
    assert_eq!(found[0].action.command.as_deref(), Some(repair));
    assert!(differences(&agent, &workload(&agent), &json!({ "deviations": 1 })).is_err());
}
