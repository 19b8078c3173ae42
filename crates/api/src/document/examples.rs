//! Examples of request bodies and responses. A test validates each one against its schema.

use serde_json::{Map, Value, json};

const ID: &str = "0198c0de-7a3b-7c11-9b54-0242ac120002";
const NODE: &str = "0198c0de-7a3b-7c11-9b54-0242ac120003";
const ALLOCATION: &str = "0198c0de-7a3b-7c11-9b54-0242ac120006";
const PROJECT: &str = "0198c0de-7a3b-7c11-9b54-0242ac120009";
const WORKLOAD: &str = "0198c0de-7a3b-7c11-9b54-0242ac12000a";
const OPERATION: &str = "0198c0de-7a3b-7c11-9b54-0242ac12000b";
const SHA256: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const AT: &str = "2026-07-01T12:00:00.000Z";
const LATER: &str = "2026-07-01T13:00:00.000Z";

/// Adds an example to the schema of every request body and response, and to lists the example of their entries.
pub(super) fn add(schemas: &mut Map<String, Value>) {
    let all = requests().into_iter().chain(workloads()).chain(nodes()).chain(sessions()).chain(platform());
    for (name, example) in all {
        let list = format!("List_{name}");
        if let Some(list) = schemas.get_mut(&list) {
            list["examples"] = json!([{ "items": [example] }]);
        }
        if let Some(schema) = schemas.get_mut(name) {
            schema["examples"] = json!([example]);
        }
    }
}

type Examples = Vec<(&'static str, Value)>;

/// Bodies whose shape does not depend on the app; the manifests have examples of the others.
fn requests() -> Examples {
    vec![
        ("Bootstrap", json!({ "name": "ann" })),
        ("SignIn", json!({ "code": format!("gpuaas-link_{}", "A".repeat(55)) })),
        (
            "CreateToken",
            json!({ "name": "ci", "role": "project-member", "project": "research", "ttl_seconds": 86_400 }),
        ),
        ("CreateProject", json!({ "name": "research" })),
        ("CreateServiceAccount", json!({ "name": "ci", "role": "project-member", "project": "research" })),
        ("CreateServiceAccountToken", json!({ "ttl_seconds": 3_600 })),
        (
            "ReportWorkload",
            json!({
                "generation": 1, "sequence": 7, "phase": "ready", "progress": { "completed": 3, "total": 5 },
                "members": [{
                    "member": "agent-1", "health": "degraded", "code": "gpu_lost", "message": "1 of 8 GPUs is gone",
                    "evidence": "NVRM: Xid (PCI:0000:3b:00): 79",
                }],
            }),
        ),
        ("RegisterNode", json!({ "name": "gpu-1", "region": "eu-1", "labels": { "rack": "b12" } })),
        ("EnrollNode", json!({ "force": true, "reason": "reinstalled by hand" })),
        ("FixNode", json!({ "finding": "inotify_low" })),
        ("CreateAllocation", json!({ "project": "research", "node": "gpu-1" })),
        ("ImportRelease", json!({ "app": "rke2", "source": "/srv/releases/v1.37.1+rke2r1", "sums_sha256": SHA256 })),
        ("RequestAccess", json!({ "kind": "direct", "role": "cluster-admin", "ttl_seconds": 86_400 })),
        ("VerifyAudit", json!({ "expected_head": { "seal": 412, "digest": SHA256 } })),
        ("ForceAuthority", json!({ "authority": SHA256, "state": "staged", "reason": "gpu-7 is scrapped" })),
        (
            "EnrollmentRequest",
            json!({
                "node": NODE, "token": "8b1f…", "csr": "-----BEGIN CERTIFICATE REQUEST-----\n…", "agent_version": "0.1.0",
                "machine_id": "5f1c3b0e9d2a4c7f8e6b1a0d3c5e7f90", "clock": 1_782_907_200_000_i64,
            }),
        ),
    ]
}

fn workloads() -> Examples {
    let workload = json!({
        "id": WORKLOAD, "name": "train", "project": PROJECT, "app": "rke2", "version": "v1.37.1+rke2r1",
        "lifecycle": "running", "phase": "ready", "completed": 24, "total": 24, "health": "healthy", "usable": true,
        "recovery": "none", "endpoint": "https://10.0.0.7:6443", "section": "active", "members_ready": 2,
        "endpoints": [{ "purpose": "api", "address": "https://10.0.0.7:6443" }], "members_total": 2, "stand_in": false,
        "generation": 1, "observed_generation": 1, "created_at": AT,
    });
    let operation = json!({
        "id": OPERATION, "workload": WORKLOAD, "workload_name": "train", "project_name": "research", "kind": "deploy", "parameters": {},
        "state": "running", "requested_by": "ann", "correlation_id": ID, "cancel_requested": false, "created_at": AT,
    });
    let step = json!({
        "key": "server-1/start", "phase": "server_bootstrapping", "state": "running", "attempts": 1, "awaits": "node",
        "task": ID, "started_at": AT,
    });
    let member = json!({
        "name": "server-1", "node": NODE, "node_name": "gpu-1", "state": "ready", "health": "healthy",
    });
    let planned = json!({ "name": "server-1", "allocation": ALLOCATION, "node": NODE, "node_name": "gpu-1" });
    let preview = json!({
        "kind": "deploy", "members": [planned], "promises": ["node placement"], "not_promised": ["storage classes"],
        "steps": [{
            "key": "server-1/preflight", "phase": "placement_validated", "needs": [], "deadline_ms": 60_000,
            "member": "server-1", "node_name": "gpu-1", "does": "check whether RKE2 can run",
        }],
        "digest": "plan-9f86d081884c7d659a2feaa0c55ad015", "interrupts": [],
    });
    let diff = json!({
        "workload": WORKLOAD, "workload_name": "train", "lifecycle": "running", "compared_at": AT, "unknown": [],
        "differences": [{
            "member": "agent-1", "field": "labels.rack", "desired": "b12", "observed": "absent",
            "next": "reconcile: it sets the labels again", "command": "gpuaas workload reconcile train",
        }],
        "not_compared": ["configuration files: gpuaas workload reconcile corrects them"],
    });
    let grant = json!({
        "id": ID, "workload": WORKLOAD, "kind": "direct", "role": "cluster-admin", "requested_by": "ann",
        "created_at": AT, "expires_at": LATER,
    });
    let kind = json!({
        "name": "direct", "default": true, "ttl_seconds": 86_400, "ttl_seconds_max": 2_592_000,
        "roles": ["cluster-admin", "cluster-view"], "note": "a ServiceAccount's token",
        "offered_roles": [{
            "name": "cluster-view", "permission": "access.view", "check": "kubectl --kubeconfig FILE get pods",
            "check_merged": "kubectl get pods",
        }],
    });
    let access = json!({
        "endpoint": "https://10.0.0.7:6443", "reachability": "node-network", "notes": [], "kinds": [kind],
        "grants": [grant],
    });
    let granted = json!({
        "grant": ID, "kind": "direct", "role": "cluster-admin", "expires_at": LATER,
        "kubeconfig": "apiVersion: v1\nkind: Config\n…",
    });
    let app = json!({
        "slug": "rke2", "name": "Self-managed Kubernetes (RKE2)", "summary": "One server, any number of agents.",
        "status": "published", "versions": ["v1.37.1+rke2r1"], "stand_ins": [], "promises": ["node placement"],
        "not_promised": ["storage classes"], "placement_schema": { "type": "object" },
        "added_members_schema": { "type": "object" }, "config_schema": { "type": "object" },
        "operations": [{ "kind": "deploy", "parameters_schema": { "type": "object" }, "available": true }],
    });
    let artifact = json!({
        "app": "rke2", "version": "v1.37.1+rke2r1", "name": "rke2.linux-amd64.tar.gz", "sha256": SHA256,
        "size_bytes": 73_400_320, "stand_in": false, "imported_at": AT,
    });
    vec![
        ("ReportAccepted", json!({ "report": report(), "changed": true, "not_applied": [] })),
        (
            "WorkloadDetail",
            json!({
                "workload": workload, "config": { "node_labels": { "rack": "b12" } }, "members": [member],
                "operation": OPERATION,
            }),
        ),
        ("Started", json!({ "workload": workload, "operation": operation })),
        ("OperationDetail", json!({ "operation": operation, "steps": [step] })),
        ("Workload", workload),
        ("Operation", operation),
        ("Member", member),
        ("Preview", preview),
        ("WorkloadDiff", diff),
        ("AccessAnswer", access),
        ("AccessGranted", granted),
        ("AccessGrant", grant),
        ("App", app),
        ("Artifact", artifact),
    ]
}

fn report() -> Value {
    json!({
        "by": "service-account/watcher", "generation": 1, "current": true, "sequence": 7, "phase": "ready",
        "progress": { "completed": 3, "total": 5 }, "since": AT, "reported_at": LATER,
    })
}

fn nodes() -> Examples {
    let node = json!({
        "id": NODE, "name": "gpu-1", "region": "eu-1", "labels": { "rack": "b12" }, "state": "active",
        "connectivity": "connected", "connectivity_since": AT, "agent_version": "0.1.0", "created_at": AT,
        "preflight": { "passed": 41, "findings": [] }, "inspected_at": AT,
    });
    let enrollment = json!({ "string": "gpuaas1.…", "command": "curl … | GPUAAS_ENROLL=gpuaas1.… sh" });
    let allocation = json!({
        "id": ALLOCATION, "project": PROJECT, "project_name": "research", "node": NODE, "node_name": "gpu-1",
        "state": "active", "created_at": AT,
    });
    let task = json!({
        "id": ID, "node": NODE, "node_name": "gpu-1", "type": "host.noop", "schema": 1, "attempt": 1, "state": "succeeded",
        "key_id": "k1", "envelope_sha256": SHA256, "fence": 1, "created_at": AT, "ended_at": AT,
    });
    let fixed = json!({
        "node": node, "fix": "inotify", "path": "/etc/sysctl.d/90-gpuaas.conf", "changed": true,
        "applied": [{ "name": "fs.inotify.max_user_instances", "before": "128", "now": "8192" }],
    });
    let identity = json!({
        "certificate": "-----BEGIN CERTIFICATE-----\n…", "authority": "-----BEGIN CERTIFICATE-----\n…",
        "channels": ["cp.example:7444"], "control_plane": ID, "epoch": 1, "key_set": {},
    });
    vec![
        ("RegisteredNode", json!({ "node": node, "enrollment": enrollment })),
        ("Enrollment", enrollment),
        ("Ping", json!({ "task": task, "round_trip_us": 2_400 })),
        ("Task", task),
        ("FixedNode", fixed),
        ("Node", node),
        ("PlacementOption", json!({ "allocation": allocation, "usable": true, "reasons": [] })),
        ("Allocation", allocation),
        ("EnrollmentResponse", identity),
    ]
}

fn sessions() -> Examples {
    let session = json!({
        "user": "ann", "role": "viewer", "token": ID, "project": PROJECT,
        "projects": [{ "id": PROJECT, "name": "research", "created_at": AT }],
        "permissions": ["project.read", "workloads.read", "logs.read", "access.view"],
        "control_plane_version": "0.1.0", "at": AT, "id": ID, "proof": "sign_in_link", "csrf": SHA256,
        "created_at": AT, "expires_at": LATER, "idle_expires_at": LATER,
    });
    let browser = json!({
        "id": ID, "proof": "sign_in_link", "created_at": AT, "last_used_at": AT, "idle_expires_at": LATER,
        "expires_at": LATER, "user_agent": "Mozilla/5.0", "current": true,
    });
    vec![
        ("CurrentSession", session),
        ("BrowserSession", browser),
        ("SignInLink", json!({ "url": "https://cp.example:7443/#sign-in=gpuaas-link_…", "expires_at": LATER })),
    ]
}

fn platform() -> Examples {
    let token = json!({
        "id": ID, "name": "ci", "role": "project-member", "project": PROJECT, "project_name": "research",
        "created_at": AT, "expires_at": LATER,
    });
    let replica = json!({
        "id": ID, "state": "alive", "answers": true, "api_url": "https://cp.example:7443", "channel": "cp.example:7444",
        "nodes": 12, "operations": 1, "version": "0.1.0", "started_at": AT,
    });
    let archive = json!({
        "id": ID, "kind": "events", "from": AT, "until": LATER, "entries": 5_000, "sha256": SHA256,
        "size_bytes": 120_000, "created_at": LATER,
    });
    let account = json!({ "id": ID, "name": "ci", "project": PROJECT, "role": "project-member", "created_at": AT });
    let key = json!({
        "id": "k1", "state": "active", "public": "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", "version": 1,
        "created_at": AT, "changed_at": AT,
    });
    let authority = json!({
        "id": SHA256, "state": "active", "certificate": "-----BEGIN CERTIFICATE-----\n…", "version": 1,
        "created_at": AT, "changed_at": AT,
    });
    let event = json!({
        "stream": format!("project/{PROJECT}"), "sequence": 42, "at": AT, "kind": "workload.changed",
        "subject_kind": "workload", "subject_id": WORKLOAD, "correlation_id": ID, "data": {},
    });
    let audit = json!({
        "sequence": 7, "at": AT, "actor": "ann", "actor_type": "principal", "actor_id": ID, "action": "workload.deploy",
        "target": "workload/train", "project": PROJECT, "workload": WORKLOAD, "result": "accepted",
        "correlation_id": ID, "metadata": {},
    });
    let chain = json!({
        "records": 38_114, "sealed_until": 38_112, "unsealed": 2, "unsealed_since": LATER,
        "last_seal": { "number": 412, "at": AT, "digest": SHA256, "key": "ed25519-9f86d081884c7d65" },
    });
    let verification = json!({
        "result": "intact", "records": 38_114, "archived": 20_000, "unsealed": 2, "seals": 412,
        "head": { "seal": 412, "digest": SHA256 }, "sealed_at": AT, "defects": [], "defects_found": 0,
    });
    let problem = json!({
        "type": "/docs/errors/forbidden", "title": "Forbidden", "status": 403, "code": "forbidden",
        "detail": "the role viewer does not have the permission workloads.write", "correlation_id": ID,
        "next": "these roles have it: platform-admin, project-admin, project-member",
    });
    vec![
        (
            "WhoAmI",
            json!({ "name": "ann", "role": "viewer", "project": PROJECT, "token": ID, "permissions": ["project.read", "workloads.read", "logs.read", "access.view"] }),
        ),
        ("Project", json!({ "id": PROJECT, "name": "research", "created_at": AT })),
        ("CreatedToken", json!({ "token": token, "secret": "gpuaas_…" })),
        ("Token", token),
        ("Replica", replica),
        ("Archive", archive),
        ("ServiceAccount", account),
        ("SigningKey", key),
        ("SealingKey", json!({ "id": "9f86d081884c7d65", "state": "settled", "rows_left": 0, "since": AT })),
        ("Authority", authority),
        ("Event", event),
        ("AuditEntry", audit),
        ("AuditChain", chain),
        ("AuditVerification", verification),
        ("Problem", problem),
    ]
}
