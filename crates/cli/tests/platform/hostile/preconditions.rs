//! `ETag`, `If-None-Match`, `If-Match`: those that hold, those that no longer do, and those that were never ours.

use gpuaas_api_types::RegisterNode;
use http::Method;
use serde_json::Value;

use super::{JSON, Target, must_be_documented};
use crate::{operations::operations, raw::Answer};

const NODE: &str = "/api/v1/nodes/gpu-01";
const ENROLLMENT: &str = "/api/v1/nodes/gpu-01/enrollment";

async fn tag(target: &Target, path: &str) -> String {
    let answer = target.send(&Method::GET, path, &[], "").await;
    answer.headers["etag"].to_str().expect("a text").to_owned()
}

fn must_have_failed(answer: &Answer, case: &str) {
    assert_eq!((answer.status, answer.code()), (412, "precondition_failed"), "{case}: {answer:?}");
    assert_eq!(answer.body["field"], "If-Match", "{case}");
    assert!(answer.body["next"].is_string(), "{case}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_holds_is_not_sent_again_until_it_changes() {
    let target = Target::start().await;
    let present = tag(&target, NODE).await;
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
    // A node that connects changes.
    let busy = tag(&target, "/api/v1/nodes/demo-1").await;
    let allocation = format!("/api/v1/allocations/{}/release", target.allocation);
    assert_eq!(target.send(&Method::POST, &allocation, &[], "").await.status, 200);
    let answer = target.send(&Method::GET, "/api/v1/nodes/demo-1", &[("if-none-match", &busy)], "").await;
    assert_eq!((answer.status, &answer.body["state"]), (200, &Value::from("needs_reimage")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_under_a_tag_happens_only_while_the_object_is_as_it_was_seen() {
    let target = Target::start().await;
    let present = tag(&target, NODE).await;
    let other = RegisterNode { name: "gpu-02".to_owned(), ..RegisterNode::default() };
    target.platform.client().register_node(&other).await.expect("registered");
    let before = target.holds().await;
    let (revision, digest) = present.trim_matches('"').split_once('-').expect("of ours");
    let later = revision.parse::<u64>().expect("a number") + 1;
    for stale in [
        format!("\"{later}-{digest}\""),
        format!("\"-{later}-{digest}\""),
        format!("W/{present}"),
        "\"never ours\"".replace(' ', "-"),
        "\"\"".to_owned(),
        format!("\"{revision}\""),
        format!("\"99999999999999999999-{digest}\""),
        format!("W/\"a\", \"{later}-{digest}\""),
    ] {
        for path in [ENROLLMENT, "/api/v1/nodes/gpu-01/reset"] {
            let answer = target.send(&Method::POST, path, &[("if-match", &stale)], "").await;
            must_have_failed(&answer, &stale);
        }
    }
    for bad in ["never ours", "\"open", "*, *", ""] {
        let answer = target.send(&Method::POST, ENROLLMENT, &[("if-match", bad)], "").await;
        assert_eq!((answer.status, answer.code()), (400, "query_invalid"), "{bad}: {answer:?}");
    }
    assert_eq!(target.holds().await, before, "nothing was done");
    for held in [present.clone(), "*".to_owned(), format!("\"other\", {present}")] {
        let answer = target.send(&Method::POST, ENROLLMENT, &[("if-match", &held)], "").await;
        assert_eq!(answer.status, 201, "{held}: {answer:?}");
    }
    let nobody = target.send(&Method::POST, "/api/v1/nodes/nobody/reset", &[("if-match", "*")], "").await;
    assert_eq!(nobody.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_compares_nothing_refuses_a_tag_instead_of_ignoring_it() {
    let target = Target::start().await;
    let before = target.holds().await;
    let mut tried = 0;
    for operation in operations().iter().filter(|operation| operation.mutates() && !operation.compares) {
        let body = Value::Object(operation.sound_body()).to_string();
        let headers = [JSON, ("if-match", "\"7-0123456789abcdef\"")];
        let answer = target.send(&operation.method, &target.path(operation), &headers, body).await;
        must_have_failed(&answer, &operation.name);
        must_be_documented(&answer, operation, "If-Match");
        tried += 1;
    }
    assert!(tried >= 10, "{tried}");
    assert_eq!(target.holds().await, before);
}
