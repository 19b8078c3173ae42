//! `ETag`, `If-None-Match` and `If-Match` with tags that match, tags that are stale, and tags that the control plane never issued.

use gpuaas_api_types::RegisterNode;
use http::Method;
use serde_json::Value;

use super::{JSON, Target, assert_documented};
use crate::{
    operations::{UNUSED_ID, operations},
    raw::{HttpResponse, bearer, send},
    world::Platform,
};

const NODE: &str = "/api/v1/nodes/gpu-01";
const ENROLLMENT: &str = "/api/v1/nodes/gpu-01/enrollment";

async fn etag(target: &Target, path: &str) -> String {
    let answer = target.send(&Method::GET, path, &[], "").await;
    answer.headers["etag"].to_str().expect("a text").to_owned()
}

fn assert_precondition_failed(answer: &HttpResponse, case: &str) {
    assert_eq!((answer.status, answer.code()), (412, "precondition_failed"), "{case}: {answer:?}");
    assert_eq!(answer.body["field"], "If-Match", "{case}");
    assert!(answer.body["next"].is_string(), "{case}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_resource_is_not_sent_again() {
    let target = Target::start().await;
    let present = etag(&target, NODE).await;
    for held in [present.clone(), format!("W/{present}"), format!("\"other\", {present}"), "*".to_owned()] {
        let answer = target.send(&Method::GET, NODE, &[("if-none-match", &held)], "").await;
        assert_eq!((answer.status, answer.body.as_str()), (304, Some("")), "{held}: {answer:?}");
        assert_eq!(answer.headers["etag"], present.as_str());
    }
    for other in ["\"other\"", "\"1-0123456789abcdef\"", "W/\"\""] {
        let answer = target.send(&Method::GET, NODE, &[("if-none-match", other)], "").await;
        assert_eq!((answer.status, &answer.body["name"]), (200, &Value::from("gpu-01")), "{other}");
    }
    for bad in ["other", "\"open", "\"a\" \"b\"", "*, \"a\"", "\"a b\"", ""] {
        let answer = target.send(&Method::GET, NODE, &[("if-none-match", bad)], "").await;
        assert_eq!((answer.status, answer.code()), (400, "query_invalid"), "{bad}: {answer:?}");
        assert_eq!(answer.body["field"], "If-None-Match");
    }
    // Releasing the node's allocation changes the node, so that its earlier tag no longer matches.
    let busy = etag(&target, "/api/v1/nodes/demo-1").await;
    let allocation = format!("/api/v1/allocations/{}", target.allocation);
    assert_eq!(target.send(&Method::DELETE, &allocation, &[], "").await.status, 200);
    let answer = target.send(&Method::GET, "/api/v1/nodes/demo-1", &[("if-none-match", &busy)], "").await;
    assert_eq!((answer.status, &answer.body["state"]), (200, &Value::from("needs_reimage")));
}

#[tokio::test(flavor = "multi_thread")]
async fn mutation_with_if_match_needs_the_current_etag() {
    let target = Target::start().await;
    let present = etag(&target, NODE).await;
    let other = RegisterNode { name: "gpu-02".to_owned(), ..RegisterNode::default() };
    target.platform.client().register_node(&other).await.expect("registered");
    // The tag of another node at the same revision, as when the name was given to another node after the tag was read.
    let of_another = etag(&target, "/api/v1/nodes/gpu-02").await;
    let before = target.snapshot().await;
    let (id, rest) = present.trim_matches('"').split_once('.').expect("our ETag format");
    let (revision, digest) = rest.split_once('-').expect("our ETag format");
    assert_eq!(of_another.split(['.', '-']).nth(5), Some(revision));
    let later = revision.parse::<u64>().expect("a number") + 1;
    for stale in [
        of_another,
        format!("\"{id}.{later}-{digest}\""),
        format!("\"{id}.-{later}-{digest}\""),
        format!("\"{revision}-{digest}\""),
        format!("W/{present}"),
        "\"never ours\"".replace(' ', "-"),
        "\"\"".to_owned(),
        format!("\"{id}.{revision}\""),
        format!("\"{id}.99999999999999999999-{digest}\""),
        format!("W/\"a\", \"{id}.{later}-{digest}\""),
    ] {
        for path in [ENROLLMENT, "/api/v1/nodes/gpu-01/reset"] {
            let answer = target.send(&Method::POST, path, &[JSON, ("if-match", &stale)], "{}").await;
            assert_precondition_failed(&answer, &stale);
        }
    }
    for bad in ["never ours", "\"open", "*, *", ""] {
        let answer = target.send(&Method::POST, ENROLLMENT, &[JSON, ("if-match", bad)], "{}").await;
        assert_eq!((answer.status, answer.code()), (400, "query_invalid"), "{bad}: {answer:?}");
    }
    assert_eq!(target.snapshot().await, before, "nothing was done");
    let issue = async |held: &str| target.send(&Method::POST, ENROLLMENT, &[JSON, ("if-match", held)], "{}").await;
    assert_eq!(issue(&present).await.status, 201);
    assert_precondition_failed(&issue(&present).await, "a newer string was issued");
    assert_eq!(issue("*").await.status, 201);
    let present = etag(&target, NODE).await;
    assert_eq!(issue(&format!("\"other\", {present}")).await.status, 201);
    let nobody = target.send(&Method::POST, "/api/v1/nodes/nobody/reset", &[JSON, ("if-match", "*")], "{}").await;
    assert_eq!(nobody.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_without_if_match_support_refuses_the_header() {
    let target = Target::start().await;
    let before = target.snapshot().await;
    let mut tried = 0;
    for operation in operations().iter().filter(|operation| operation.mutates() && !operation.supports_if_match) {
        let body = Value::Object(operation.valid_body()).to_string();
        let ask = async |etag: &str| {
            let headers = [JSON, ("if-match", etag)];
            target.send(&operation.method, &target.path(operation), &headers, body.clone()).await
        };
        let answer = ask("\"7-0123456789abcdef\"").await;
        assert_precondition_failed(&answer, &operation.name);
        assert_documented(&answer, operation, "If-Match");
        let answer = ask("never ours").await;
        assert_eq!((answer.status, answer.code()), (400, "query_invalid"), "{}: {answer:?}", operation.name);
        assert_documented(&answer, operation, "an If-Match that is no list of tags");
        tried += 1;
    }
    assert!(tried >= 10, "{tried}");
    assert_eq!(target.snapshot().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_match_is_part_of_an_idempotent_request() {
    let target = Target::start().await;
    let present = etag(&target, NODE).await;
    let ask = async |key: &str, etag: &str| {
        let answer =
            target.send(&Method::POST, ENROLLMENT, &[JSON, ("idempotency-key", key), ("if-match", etag)], "{}").await;
        (answer.status, answer.code().to_owned())
    };
    assert_eq!(ask("k-1", &present).await.0, 201);
    assert_eq!(ask("k-1", &present).await.0, 201, "the response is replayed");
    assert_eq!(ask("k-1", "*").await, (422, "idempotency_key_reused".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_prints_etags_and_sends_if_match() {
    let target = Target::start().await;
    let shown = |noun: &str, object: &str| {
        let ended = target.platform.gpuaas(&[noun, "show", object, "--etag"]);
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).expect("a text").trim().to_owned()
    };
    let ended = |arguments: &[&str]| target.platform.gpuaas(arguments).status.code();
    let (node, other) = (shown("node", "gpu-01"), shown("node", "demo-1"));
    assert_eq!(node, etag(&target, NODE).await);
    assert_eq!(ended(&["node", "enroll", "gpu-01", "--if-match", &other]), Some(5));
    assert_eq!(ended(&["node", "enroll", "gpu-01", "--if-match", &node]), Some(0));
    let allocation = shown("allocation", &target.allocation);
    assert_eq!(target.platform.json(&["allocation", "show", &target.allocation])["state"], "active");
    assert_eq!(ended(&["allocation", "release", &target.allocation, "--yes", "--if-match", &node]), Some(5));
    assert_eq!(ended(&["allocation", "release", &target.allocation, "--yes", "--if-match", &allocation]), Some(0));
    assert_eq!(ended(&["allocation", "release", &target.allocation, "--yes", "--if-match", &allocation]), Some(5));
    assert_eq!(target.platform.json(&["allocation", "show", &target.allocation])["state"], "released");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_with_if_match_refuses_a_stale_etag() {
    let platform = Platform::with_release(1, &[]).await;
    let client = platform.client();
    let registered = RegisterNode { name: "gpu-01".to_owned(), ..RegisterNode::default() };
    client.register_node(&registered).await.expect("registered");
    let workload =
        client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted").workload.id;
    let (token, allocation) = (bearer(&platform), platform.allocation(1).await);
    let mut tried = 0;
    for operation in operations().iter().filter(|operation| operation.supports_if_match) {
        assert!(operation.mutates(), "{} changes nothing", operation.name);
        let path = operation.path(|part| match part {
            "node" => "gpu-01".to_owned(),
            "workload" => workload.clone(),
            "id" if operation.template.starts_with("/api/v1/allocations") => allocation.clone(),
            other => panic!("{}: unexpected path parameter {other}", operation.name),
        });
        let body = operation.body.as_ref().map(|_| Value::Object(operation.valid_body()).to_string());
        let stale = format!("\"{UNUSED_ID}.1-0123456789abcdef\"");
        let headers = [JSON, ("authorization", token.as_str()), ("if-match", stale.as_str())];
        let answer = send(&platform, operation.method.clone(), &path, &headers, body.unwrap_or_default()).await;
        assert_precondition_failed(&answer, &operation.name);
        assert_documented(&answer, operation, "If-Match");
        tried += 1;
    }
    assert!(tried >= 7, "{tried}");
}
