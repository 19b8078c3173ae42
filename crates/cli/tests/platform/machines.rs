//! Inspection and repair of a node's machine, leftovers of an app on it, and reset and re-enrollment of machines.

use std::{
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use gpuaas_api_types::{EnrollNode, FixNode, Node, PreflightFinding, RegisterNode};
use gpuaas_client::{AuditQuery, Client, ClientError, GiveUp};

use crate::{
    fleet::Fleet,
    world::{GPUAAS, PROJECT, Platform, eventually},
};

fn code(error: ClientError) -> String {
    match error {
        ClientError::Problem(problem) => problem.code,
        other => other.to_string(),
    }
}

fn find_finding<'a>(node: &'a Node, check: &str) -> Option<&'a PreflightFinding> {
    node.preflight.iter().flat_map(|preflight| &preflight.findings).find(|finding| finding.check == check)
}

async fn inspected(client: &Client, name: &str) -> Node {
    eventually("the node is not inspected", async || {
        client.get_node(name).await.is_ok_and(|node| node.inspected_at.is_some())
    })
    .await;
    client.get_node(name).await.expect("a node")
}

/// Returns the kinds of the platform's events about a node, in order.
async fn event_kinds(client: &Client, node: &Node) -> Vec<String> {
    let events = client.list_events(None, 0).await.expect("events").items;
    events.into_iter().filter(|event| event.subject_id == node.id).map(|event| event.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn node_is_inspected_once_automatically_and_on_request() {
    let platform = Platform::start(1);
    let client = platform.client();
    let node = inspected(&client, "demo-1").await;
    let facts = node.facts.clone().expect("facts");
    let machine = facts.machine.expect("facts of the machine");
    assert!(machine.cpu_cores > 0 && facts.sandbox && machine.gpus.is_empty() && machine.default_route.is_none());
    let disk = machine.data_disk.expect("the disk of its data");
    assert!(disk.file_system.size_bytes > 0 && disk.writes.is_none(), "the disk was measured without a request");
    assert!(node.preflight.as_ref().is_some_and(|preflight| preflight.passed > 15), "{:?}", node.preflight);

    let again = client.inspect_node("demo-1").await.expect("inspected");
    let disk = again.facts.and_then(|facts| facts.machine).and_then(|machine| machine.data_disk).expect("a disk");
    let writes = disk.writes.expect("a measured latency");
    assert!(writes.writes > 0 && writes.p50_us <= writes.p99_us && writes.p99_us <= writes.max_us);
    let left = std::fs::read_dir(platform.node_file(1, "var/lib")).expect("a folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(left.iter().all(|name| !name.contains("latency")), "the measurement left files: {left:?}");

    let words = platform.gpuaas(&["node", "show", "demo-1"]);
    let words = String::from_utf8(words.stdout).expect("text");
    assert!(
        words.contains("connected ") && words.contains("\nmachine     Linux") && words.contains("\ndisk        /var")
    );
    assert!(words.contains("\npreflight   ✓ "), "{words}");
    let kinds = event_kinds(&client, &node).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "node.inspected").count(), 2, "{kinds:?}");
    let audit = client
        .list_audit(&AuditQuery { target: Some("node/demo-1".into()), ..AuditQuery::default() })
        .await
        .expect("records")
        .items;
    assert_eq!(audit.iter().filter(|record| record.action == "node.inspect").count(), 1);
    assert_eq!(client.inspect_node("nobody").await.map_err(code).expect_err("no such node"), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn finding_is_shown_with_its_fix_and_the_fix_removes_it() {
    let platform = Platform::start(1);
    let client = platform.client();
    inspected(&client, "demo-1").await;
    // Changes the sandbox's own kernel parameter; the host's parameter stays unchanged.
    let parameter = "proc/sys/fs/inotify/max_user_instances";
    let of_machine = std::fs::read_to_string(format!("/{parameter}")).expect("a parameter");
    let own = platform.node_file(1, parameter);
    std::fs::create_dir_all(own.parent().expect("a folder")).expect("made");
    std::fs::write(&own, "128\n").expect("written");
    let node = client.inspect_node("demo-1").await.expect("inspected");
    let finding = find_finding(&node, "inotify_low").expect("it is low");
    assert_eq!(finding.severity, "warning");
    assert!(finding.detail.contains("RKE2 needs inotify.max_user_instances = 8192 (now 128)"), "{finding:?}");
    assert!(finding.evidence.as_deref().is_some_and(|seen| seen.contains("max_user_instances: 128")), "{finding:?}");
    assert_eq!(finding.command.as_deref(), Some("gpuaas node fix demo-1 inotify"));
    let shown = platform.gpuaas(&["node", "show", "demo-1"]);
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("Fix: gpuaas node fix demo-1 inotify"), "{shown}");

    let output = platform.gpuaas(&["node", "fix", "demo-1", "inotify"]);
    let words = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && words.contains("max_user_instances: 128 → 8192"), "{words}");
    let kept = platform.node_file(1, "etc/sysctl.d/60-gpuaas-inotify.conf");
    assert!(std::fs::read_to_string(kept).expect("its file").contains("fs.inotify.max_user_instances = 8192"));
    let node = client.get_node("demo-1").await.expect("a node");
    assert!(find_finding(&node, "inotify_low").is_none(), "{:?}", node.preflight);
    assert_eq!(std::fs::read_to_string(format!("/{parameter}")).expect("a parameter"), of_machine);

    let ask = |finding: &str| FixNode { finding: finding.to_owned() };
    let again = client.fix_node("demo-1", &ask("inotify_low")).await.expect("fixed");
    assert!(!again.changed && again.applied.is_empty() && again.fix == "inotify");
    for unknown in ["firewall_active", "everything"] {
        let refused = client.fix_node("demo-1", &ask(unknown)).await.map_err(code);
        assert_eq!(refused.expect_err(unknown), "fix_unknown");
    }
    let kinds = event_kinds(&client, &node).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "node.fixed").count(), 2, "{kinds:?}");
    let audit = client
        .list_audit(&AuditQuery { target: Some("node/demo-1".into()), ..AuditQuery::default() })
        .await
        .expect("records")
        .items;
    let fixes: Vec<_> =
        audit.iter().filter(|record| record.action == "node.fix").map(|record| &record.result).collect();
    assert_eq!(fixes, ["accepted", "accepted", "refused", "refused"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn finding_that_blocks_a_deployment_is_shown_with_its_node_until_the_next_check() {
    let platform = Platform::with_release(1, &[]).await;
    let client = platform.client();
    let listening = Listening::at(&platform, 1, 9_345);
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    let fault = platform.await_end(&started).await.operation.fault.expect("a fault");
    assert_eq!(fault.code, "rke2_preflight_blocked");
    assert!(
        fault.next.starts_with("ask the operator to follow this advice of the agent on demo-1: \"find the process"),
        "{fault:?}"
    );
    let node = client.get_node("demo-1").await.expect("a node");
    let finding = find_finding(&node, "port_taken").expect("the node shows it");
    assert_eq!((finding.workload.as_deref(), &finding.operation), (Some("train"), &Some(started.operation.id)));
    assert!(finding.found_at > node.inspected_at, "{finding:?}");
    let held = node.allocation.expect("an allocation");
    assert_eq!((held.project_name.as_str(), held.workload.as_deref()), (PROJECT, Some("train")));
    assert_eq!((held.member.as_deref(), held.component.as_deref()), (Some("server-1"), Some("server")));
    let listed = client.list_nodes(None, None).await.expect("nodes").items.remove(0).allocation.expect("the same");
    assert_eq!((listed.id, listed.workload, listed.member), (held.id, held.workload, held.member));
    let shown = String::from_utf8(platform.gpuaas(&["node", "show", "demo-1"]).stdout).expect("text");
    for part in ["project research · workload train, member server-1 ·", "ago by the preflight of workload train"] {
        assert!(shown.contains(part), "{shown}");
    }
    drop(listening);
    let node = client.inspect_node("demo-1").await.expect("inspected");
    assert!(find_finding(&node, "port_taken").is_none(), "{:?}", node.preflight);
}

#[tokio::test(flavor = "multi_thread")]
async fn known_blocking_finding_refuses_a_deployment_until_the_node_is_inspected_again() {
    let platform = Platform::with_release(2, &[]).await;
    let client = platform.client();
    let listening = Listening::at(&platform, 1, 9_345);
    let node = client.inspect_node("demo-1").await.expect("inspected");
    assert!(find_finding(&node, "port_taken").is_some(), "{:?}", node.preflight);
    let reasons = async || {
        let options = client.placement_options(Some(PROJECT.to_owned()), "rke2").await.expect("options").items;
        options.into_iter().flat_map(|option| option.reasons).map(|reason| reason.code).collect::<Vec<_>>()
    };
    assert_eq!(reasons().await, ["allocation_blocked"]);
    let refused = client.deploy_workload(&platform.deployment("train", &[]).await).await.map_err(code);
    assert_eq!(refused.expect_err("blocked"), "placement_invalid");
    let dry_run = ["workload", "deploy", "rke2", "--name", "train", "--server", "demo-1", "--dry-run"];
    let dry_run = || platform.gpuaas(&[&dry_run[..], &["--project", PROJECT]].concat());
    let output = dry_run();
    let words = String::from_utf8(output.stderr).expect("text");
    for part in ["demo-1 has findings that block a deployment: port_taken", "gpuaas node inspect demo-1"] {
        assert!(!output.status.success() && words.contains(part), "{words}");
    }
    let as_agent =
        ["workload", "deploy", "rke2", "--name", "train", "--server", "demo-2", "--agent", "demo-1", "--dry-run"];
    let output = platform.gpuaas(&[&as_agent[..], &["--project", PROJECT]].concat());
    assert!(output.status.success(), "an agent does not use the port: {}", String::from_utf8_lossy(&output.stderr));
    drop(listening);
    client.inspect_node("demo-1").await.expect("inspected");
    assert_eq!(reasons().await, [""; 0]);
    let output = dry_run();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_node_is_neither_pinged_nor_inspected_nor_fixed() {
    let platform = Platform::start(1);
    let client = platform.client();
    inspected(&client, "demo-1").await;
    platform.signal_agent(1, "STOP");
    let silent = Instant::now();
    eventually("the node does not become unreachable", async || {
        client.get_node("demo-1").await.is_ok_and(|node| node.connectivity == "unreachable")
    })
    .await;
    // 15 s after it was last heard. If the time from its last answer to the end of its connection did not count, it would take 20 s.
    assert!(silent.elapsed() < Duration::from_secs(18), "it took {:?}", silent.elapsed());
    assert_eq!(client.inspect_node("demo-1").await.map_err(code).expect_err("unreachable"), "node_unreachable");
    let ping = client.ping_node("demo-1").await.expect_err("unreachable");
    assert!(ping.to_string().contains("demo-1 has been unreachable since"), "{ping}");
    let ask = FixNode { finding: "inotify".to_owned() };
    assert_eq!(client.fix_node("demo-1", &ask).await.map_err(code).expect_err("unreachable"), "node_unreachable");
    platform.signal_agent(1, "CONT");
}

/// A process of the sandbox that listens at the node's address on one of RKE2's ports.
struct Listening(Child);

impl Listening {
    fn at(platform: &Platform, node: u8, port: u16) -> Self {
        let root = std::fs::canonicalize(platform.node_file(node, "")).expect("a root");
        let address =
            platform.ready()["nodes"][usize::from(node) - 1]["address"].as_str().expect("an address").to_owned();
        let mut server = Command::new(GPUAAS);
        server.args(["server", "--lifeline", "--listen", &format!("{address}:{port}"), "--channel-listen"]);
        server.arg(format!("{address}:0")).arg("--data-dir").arg(platform.file("stranger"));
        server.arg("--ready-file").arg(platform.file("stranger-ready"));
        server.env("GPUAAS_SANDBOX_ROOT", root).stdin(Stdio::piped()).stderr(Stdio::null());
        let listening = Self(server.spawn().expect("it starts"));
        crate::world::until("nothing listens", || platform.file("stranger-ready").exists());
        listening
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn platform_removes_its_own_residue_and_names_the_operator_for_the_rest() {
    let platform = Platform::with_release(1, &[]).await;
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    assert_eq!(platform.await_end(&started).await.operation.state, "succeeded");
    // An uninstall that leaves a folder, and a unit that overrides the release's own.
    let script = platform.node_file(1, "usr/local/bin/rke2-uninstall.sh");
    let text = std::fs::read_to_string(&script).expect("a script");
    let plants = "mkdir -p \"$ROOT/var/lib/kubelet/kept\"\nprintf '[Service]\\nExecStart=/bin/true\\n' > \"$ROOT/etc/systemd/system/rke2-agent.service\"\n";
    std::fs::write(&script, text + plants).expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("still a program");
    // The port of the cloud controller, which the stand-in does not use.
    let listening = Listening::at(&platform, 1, 10_258);
    // A folder that does not belong to RKE2.
    std::fs::create_dir_all(platform.node_file(1, "var/lib/others")).expect("made");

    let decommission = ["workload", "decommission", "train", "--project", PROJECT];
    let plan = platform.json(&[&decommission[..], &["--dry-run"]].concat());
    assert_eq!((&plan["kind"], &plan["members"][0]["node_name"]), (&"decommission".into(), &"demo-1".into()), "{plan}");
    assert_eq!(plan["steps"][1]["after"], serde_json::json!(["server-1/stop"]), "{plan}");
    assert_eq!(platform.gpuaas(&decommission).status.code(), Some(2), "it asks for --yes");
    let workload = client.get_workload(None, &started.workload.id).await.expect("a workload").workload;
    assert_eq!(workload.lifecycle, "running", "nothing has changed");
    let reset = client.reset_node("demo-1", &forced()).await.map_err(code);
    assert_eq!(reset.expect_err("a workload runs there"), "allocation_in_use");

    let project = || Some(PROJECT.to_owned());
    let output = platform.gpuaas(&[&decommission[..], &["--yes", "--wait"]].concat());
    let shown = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("RESIDUE\n  demo-1: listener 10258/tcp at 127."), "{shown}");
    let detail = client.get_workload(None, &started.workload.id).await.expect("a workload");
    let ended = client.get_operation(&detail.operation.expect("an operation")).await.expect("an operation");
    assert_eq!(ended.operation.state, "needs_attention");
    let fault = ended.operation.fault.expect("a fault");
    assert_eq!(fault.code, "rke2_residue");
    let evidence = fault.evidence.expect("what is left");
    let items: Vec<&str> = evidence.split(", ").filter(|part| part.contains(' ')).collect();
    assert!(items.len() == 1 && items[0].starts_with("listener 10258/tcp at 127."), "unexpected residue: {evidence}");
    assert!(
        fault.next.contains("ask the operator to reset and reimage demo-1 (gpuaas node reset demo-1"),
        "{}",
        fault.next
    );
    let dry = client.clone().with_dry_run().reset_node("demo-1", &forced()).await.expect("it may be reset now");
    assert_eq!((dry.node.state.as_str(), dry.enrollment.string.as_str()), ("registered", ""));
    assert_eq!(client.get_node("demo-1").await.expect("a node").state, "active", "the dry run changed nothing");
    assert_eq!(fault.command.as_deref(), Some("gpuaas workload resume train"));
    let allocation = platform.allocation(1).await;
    assert_eq!(client.release_allocation(&allocation).await.map_err(code).expect_err("not clean"), "allocation_in_use");

    // Left while the script no longer exists.
    std::fs::create_dir_all(platform.node_file(1, "var/lib/kubelet/late")).expect("made");
    let still = platform.await_end(&client.resume_workload(project(), "train").await.expect("accepted")).await;
    assert_eq!(still.operation.state, "needs_attention", "the residue is still there");
    assert!(!platform.node_file(1, "var/lib/kubelet").exists(), "resuming removes what the platform can remove");
    drop(listening);
    let resumed = platform.await_end(&client.resume_workload(project(), "train").await.expect("accepted")).await;
    assert_eq!(resumed.operation.state, "succeeded", "{:?}", resumed.operation.fault);
    assert!(platform.node_file(1, "var/lib/others").exists());
    for show in [["operation", "show", &resumed.operation.id], ["workload", "show", &started.workload.id]] {
        let shown = String::from_utf8(platform.gpuaas(&show).stdout).expect("text");
        assert!(shown.contains("RESIDUE\n  demo-1: nothing left"), "{shown}");
    }

    client.release_allocation(&allocation).await.expect("released");
    let node = client.get_node("demo-1").await.expect("a node");
    assert_eq!(node.state, "needs_reimage");
    eventually("its connection does not end", async || {
        client.get_node("demo-1").await.is_ok_and(|node| node.connectivity != "connected")
    })
    .await;
    assert_eq!(client.inspect_node("demo-1").await.map_err(code).expect_err("it needs a reimage"), "state_conflict");
    assert_eq!(client.reset_node("demo-1", &EnrollNode::default()).await.expect("reset").node.state, "registered");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_was_given_up_is_not_clean_while_a_file_is_left_in_a_folder_of_the_app() {
    let platform = Platform::with_release(1, &[]).await;
    let (client, project) = (platform.client(), || Some(PROJECT.to_owned()));
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    assert_eq!(platform.await_end(&started).await.operation.state, "succeeded");
    let listening = Listening::at(&platform, 1, 10_258);
    let ended = platform.await_end(&client.decommission_workload(project(), "train").await.expect("accepted")).await;
    assert_eq!(ended.operation.state, "needs_attention");
    drop(listening);
    // Nothing that a new cluster would fail with, so that the inspection of a new node does not look for it.
    let left = platform.node_file(1, "var/lib/rancher/rke2/agent/kept");
    std::fs::create_dir_all(left.parent().expect("a folder")).expect("made");
    std::fs::write(&left, "").expect("written");
    let give_up = GiveUp { nodes: Vec::new(), force: true, reason: Some("it cannot be removed".to_owned()) };
    let given_up = client.decommission_giving_up(project(), "train", &give_up).await.expect("accepted");
    assert_eq!(platform.await_end(&given_up).await.operation.state, "succeeded");

    let node = client.inspect_node("demo-1").await.expect("inspected");
    let found = find_finding(&node, "leftover").expect("it is left");
    assert!(found.severity == "blocking" && found.detail.starts_with("/var/lib/rancher/rke2 is left"), "{found:?}");
    assert!(find_finding(&node, "removal_unproven").is_some(), "{:?}", node.preflight);
    std::fs::remove_dir_all(platform.node_file(1, "var/lib/rancher")).expect("removed");
    let node = client.inspect_node("demo-1").await.expect("inspected");
    assert!(find_finding(&node, "removal_unproven").is_none(), "{:?}", node.preflight);
    client.release_allocation(&platform.allocation(1).await).await.expect("it is clean");
}

fn forced() -> EnrollNode {
    EnrollNode { force: true, reason: Some("its disk was replaced".to_owned()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_is_reset_by_force_and_a_changed_machine_is_reported() {
    let fleet = Fleet::start(1).await;
    let client = fleet.client();
    let before = inspected(&client, "gpu-1").await;
    let refused = client.reset_node("gpu-1", &EnrollNode::default()).await.map_err(code);
    assert_eq!(refused.expect_err("it is in use"), "state_conflict");
    // The same machine enrolls again: no change of machine is reported.
    let reset = client.reset_node("gpu-1", &forced()).await.expect("forced");
    assert_eq!((reset.node.state.as_str(), reset.node.facts.is_none()), ("registered", true));
    eventually("its old certificate is still accepted", async || {
        client.get_node("gpu-1").await.is_ok_and(|node| node.connectivity != "connected")
    })
    .await;
    fleet.enroll_again(1, &reset.enrollment.string);
    let same = inspected(&client, "gpu-1").await;
    assert_eq!(
        (same.state.as_str(), &same.machine_id, same.machine_changed.is_none()),
        ("active", &before.machine_id, true)
    );

    let reset = client.reset_node("gpu-1", &forced()).await.expect("forced");
    std::fs::write(fleet.node_file(1, "etc/machine-id"), format!("{}\n", "cd".repeat(16))).expect("written");
    fleet.enroll_again(1, &reset.enrollment.string);
    let other = inspected(&client, "gpu-1").await;
    assert_eq!(other.machine_id, Some("cd".repeat(16)));
    assert_eq!(other.machine_changed.map(|change| Some(change.before)), Some(before.machine_id.clone()));
    let events = client.list_events(None, 0).await.expect("events").items;
    let changes: Vec<_> = events.iter().filter(|event| event.kind == "node.machine_changed").collect();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].data["now"].as_str(), Some("cd".repeat(16).as_str()));
    let records = client
        .list_audit(&AuditQuery { target: Some("node/gpu-1".into()), ..AuditQuery::default() })
        .await
        .expect("records")
        .items;
    let resets = records.iter().filter(|record| record.action == "node.reset" && record.result == "accepted");
    assert!(
        resets.clone().count() == 2
            && resets.clone().all(|record| record.metadata["forced"] == "its disk was replaced")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn useless_enrollment_string_does_not_disconnect_an_enrolled_node() {
    let fleet = Fleet::start(1).await;
    let client = fleet.client();
    let before = inspected(&client, "gpu-1").await;
    let other = RegisterNode { name: "gpu-2".to_owned(), ..RegisterNode::default() };
    let of_other = client.register_node(&other).await.expect("registered").enrollment.string;
    let newer = client.issue_enrollment("gpu-2", &EnrollNode::default()).await.expect("issued").enrollment.string;
    for string in ["nonsense", &of_other, &newer] {
        fleet.enroll_again(1, string);
        eventually("the node no longer executes tasks", async || client.ping_node("gpu-1").await.is_ok()).await;
    }
    assert_eq!(client.get_node("gpu-2").await.expect("a node").state, "registered", "no token was used");
    let after = client.get_node("gpu-1").await.expect("a node");
    assert_eq!((after.state, after.machine_id), (before.state, before.machine_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn allocated_node_cannot_be_reset_by_force() {
    let platform = Platform::with_release(1, &[]).await;
    let client = platform.client();
    let refused = client.reset_node("demo-1", &forced()).await.expect_err("a project holds it");
    assert!(refused.to_string().contains("allocation"), "{refused}");
    assert_eq!(code(refused), "allocation_in_use");
}
