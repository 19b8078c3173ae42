//! Malformed requests that none of our clients sends, tried on every operation of the OpenAPI document: each is answered with a problem
//! that the operation documents, changes nothing, and leaves the control plane serving.

mod bodies;
mod crowds;
mod headers;
mod lines;
mod lists;
mod memory;
mod preconditions;
mod readers;
mod slow;

use gpuaas_api_types::{CreateAllocation, CreateProject, RegisterNode};
use http::Method;
use serde_json::Value;

use crate::{
    operations::{Operation, UNUSED_ID},
    raw::{HttpResponse, bearer, send},
    world::{Platform, eventually, token_request},
};

const JSON: (&str, &str) = ("content-type", "application/json");

/// A control plane with one object of each kind that needs no cluster.
struct Target {
    platform: Platform,
    bearer: String,
    allocation: String,
    token: String,
}

impl Target {
    async fn start() -> Self {
        let platform = tokio::task::block_in_place(|| Platform::start(1));
        let client = platform.client();
        client.create_project(&CreateProject { name: "ours".to_owned() }).await.expect("made");
        let registered = RegisterNode { name: "gpu-01".to_owned(), ..RegisterNode::default() };
        client.register_node(&registered).await.expect("registered");
        let ask = CreateAllocation { project: "ours".to_owned(), node: "demo-1".to_owned() };
        let allocation = client.create_allocation(&ask).await.expect("made").id;
        eventually("the allocation does not become active", async || {
            let list = client.list_allocations(None, None).await.expect("listed");
            list.items.iter().all(|allocation| allocation.state == "active")
        })
        .await;
        let ask = token_request("robot", "viewer", Some("ours"));
        let token = client.create_token(&ask).await.expect("made").token.id;
        let bearer = bearer(&platform);
        Self { platform, bearer, allocation, token }
    }

    /// Returns the operation's path, with the id of an existing object where there is one.
    fn path(&self, operation: &Operation) -> String {
        let of_allocation = operation.template.starts_with("/api/v1/allocations");
        let of_token = operation.template.starts_with("/api/v1/tokens");
        operation.path(|part| match part {
            "node" => "gpu-01".to_owned(),
            "slug" => "rke2".to_owned(),
            "id" if of_allocation => self.allocation.clone(),
            "id" if of_token => self.token.clone(),
            _ => UNUSED_ID.to_owned(),
        })
    }

    async fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> HttpResponse {
        let headers = [&[("authorization", self.bearer.as_str())], headers].concat();
        send(&self.platform, method.clone(), path, &headers, body.into()).await
    }

    /// Returns all state that a mutation would change. A refusal leaves only an audit record, so only accepted audit records are counted.
    async fn snapshot(&self) -> Vec<Value> {
        let mut held = Vec::new();
        for path in [
            "/api/v1/events?limit=1000",
            "/api/v1/events?project=ours",
            "/api/v1/nodes",
            "/api/v1/projects",
            "/api/v1/tokens",
            "/api/v1/allocations",
            "/api/v1/artifacts",
            "/api/v1/workloads",
            "/api/v1/operations",
        ] {
            let answer = self.send(&Method::GET, path, &[], "").await;
            assert_eq!(answer.status, 200, "the control plane no longer answers: {answer:?}");
            held.push(answer.body);
        }
        let audit = self.send(&Method::GET, "/api/v1/audit", &[], "").await.body["items"].clone();
        let accepted = audit.as_array().expect("a list").iter().filter(|record| record["result"] == "accepted").count();
        held.push(accepted.into());
        held
    }
}

/// Checks that the answer is a problem document with a next action and a code that the operation documents.
fn assert_documented(answer: &HttpResponse, operation: &Operation, case: &str) {
    let case = format!("{} {case}: {answer:?}", operation.name);
    assert_eq!(answer.headers["content-type"], "application/problem+json", "{case}");
    assert!(operation.errors.contains(answer.code()), "{} is not documented; {case}", answer.code());
    assert_eq!(answer.body["status"], answer.status, "{case}");
    assert!(answer.body["next"].as_str().is_some_and(|next| !next.is_empty()), "{case}");
    assert_eq!(answer.headers["correlation-id"], answer.body["correlation_id"].as_str().expect("an id"), "{case}");
}
