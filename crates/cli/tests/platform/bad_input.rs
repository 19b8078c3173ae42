//! Malformed requests that none of our clients sends: each is answered with a problem document, and nothing is lost.

use gpuaas_trust::{EnrollmentString, NodeKey};
use http::Method;
use serde_json::{Value, json};

use crate::{
    raw::{HttpResponse, bearer, send, write_then_read, write_then_wait},
    world::Platform,
};

const JSON: (&str, &str) = ("content-type", "application/json");

fn assert_problem(answer: &HttpResponse, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code()), (status, code), "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    assert_eq!(answer.headers["correlation-id"], answer.body["correlation_id"].as_str().expect("an id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn framework_refusals_are_problem_documents() {
    let platform = Platform::start(0);
    let token = bearer(&platform);
    let authorization = ("authorization", token.as_str());
    let nowhere = send(&platform, Method::GET, "/api/v1/nonsense", &[authorization], "").await;
    assert_problem(&nowhere, 404, "not_found");
    let method = send(&platform, Method::PATCH, "/api/v1/projects", &[authorization], "").await;
    assert_problem(&method, 405, "method_not_allowed");
    let anonymous = send(&platform, Method::GET, "/api/v1/projects", &[], "").await;
    assert_problem(&anonymous, 401, "unauthenticated");
    let empty = send(&platform, Method::POST, "/api/v1/projects", &[authorization, JSON], "").await;
    assert_problem(&empty, 400, "body_invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_body_is_refused_without_a_broken_pipe() {
    let platform = Platform::start(0);
    let long = vec![b' '; 11 * 1_024 * 1_024];
    let token = bearer(&platform);
    for (authorization, status, code) in
        [(format!("authorization: {token}\r\n"), 413, "body_too_large"), (String::new(), 401, "unauthenticated")]
    {
        let head = format!("POST /api/v1/projects HTTP/1.1\r\n{authorization}content-type: application/json\r\n");
        let answer = write_then_read(&platform, &head, &long).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_under_one_key_is_replayed_and_another_one_refused() {
    let platform = Platform::start(0);
    let token = bearer(&platform);
    let headers = [("authorization", token.as_str()), JSON, ("idempotency-key", "k-1")];
    let ask = || json!({ "name": "tenant", "role": "platform-admin" }).to_string();
    let (one, other) = tokio::join!(
        send(&platform, Method::POST, "/api/v1/tokens", &headers, ask()),
        send(&platform, Method::POST, "/api/v1/tokens", &headers, ask()),
    );
    assert_eq!((one.status, other.status), (201, 201));
    assert_eq!(one.body, other.body, "two concurrent requests create one token");
    let again = send(&platform, Method::POST, "/api/v1/tokens", &headers, ask()).await;
    assert_eq!((again.status, &again.body), (201, &one.body));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let body = json!({ "name": "another", "role": "platform-admin" }).to_string();
    assert_problem(
        &send(&platform, Method::POST, "/api/v1/tokens", &headers, body).await,
        422,
        "idempotency_key_reused",
    );
    // Another operation is refused even with the same body.
    let elsewhere = send(&platform, Method::POST, "/api/v1/projects", &headers, ask()).await;
    assert_problem(&elsewhere, 422, "idempotency_key_reused");
    let tokens = platform.client().list_tokens(None).await.expect("tokens").items;
    assert_eq!(tokens.iter().filter(|token| token.name == "tenant").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_enrollment_tokens_get_distinct_codes() {
    let platform = Platform::start(0);
    let register = |name: &str| platform.json(&["node", "register", name]);
    let string = |registered: &Value| {
        let text = registered["enrollment"]["string"].as_str().expect("a string");
        EnrollmentString::decode(text).expect("an enrollment string")
    };
    let (first, other) = (string(&register("gpu-01")), string(&register("gpu-02")));
    let newer = string(&platform.json(&["node", "enroll", "gpu-01"]));
    let key = NodeKey::generate().expect("a key");
    let ask = |node: String, token: &str| {
        let body = json!({
            "node": node, "token": token, "csr": key.request_pem().expect("a request"),
            "machine_id": "0123456789abcdef0123456789abcdef", "agent_version": "0.1.0",
        });
        send(&platform, Method::POST, "/api/v1/enroll", &[JSON], body.to_string())
    };
    let foreign = ask(other.node.to_string(), newer.token.expose()).await;
    assert_problem(&foreign, 403, "enrollment_token_mismatch");
    let superseded = ask(first.node.to_string(), first.token.expose()).await;
    assert_problem(&superseded, 410, "enrollment_expired");
    let garbage = ask(first.node.to_string(), "gpuaas-enroll_garbage").await;
    assert_problem(&garbage, 400, "enrollment_invalid");
    let taken = ask(newer.node.to_string(), newer.token.expose()).await;
    assert_eq!(taken.status, 200, "an attempt for another node does not use up the token: {taken:?}");
    let used = ask(newer.node.to_string(), newer.token.expose()).await;
    assert_problem(&used, 410, "enrollment_used");
    assert!(used.body["next"].as_str().is_some_and(|next| next.contains("gpuaas node enroll")), "{used:?}");
    assert_eq!(platform.json(&["node", "show", "gpu-02"])["state"], "registered");
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limited_client_gets_retry_after_and_health_still_answers() {
    let platform = Platform::start_with(0, &[("GPUAAS_REQUESTS_PER_TOKEN", "5")]);
    let token = bearer(&platform);
    let mut refused = None;
    for _ in 0..60 {
        let answer = send(&platform, Method::GET, "/api/v1/whoami", &[("authorization", &token)], "").await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("60 requests within a second or two are more than 5 a second");
    assert_problem(&refused, 429, "rate_limited");
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(send(&platform, Method::GET, "/livez", &[], "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_headers_close_the_connection() {
    let platform = Platform::start(0);
    let began = std::time::Instant::now();
    let answer = write_then_wait(&platform, "GET /api/v1/whoami HTTP/1.1\r\nhost: x\r\n").await;
    assert!(!answer.contains(" 200 "), "{answer}");
    assert!(began.elapsed() < crate::world::WAIT_MAX, "{:?}", began.elapsed());
    let long = format!("GET /api/v1/whoami HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "a".repeat(200 * 1_024));
    let answer = write_then_wait(&platform, &long).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}
