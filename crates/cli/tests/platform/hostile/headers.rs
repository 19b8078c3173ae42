//! Repeated headers, which some readers take from the first line and others from the last, and requests without a host.

use http::Method;
use serde_json::json;

use super::{JSON, Target, assert_documented};
use crate::{
    operations::operations,
    raw::{bearer, write_then_wait},
    world::Platform,
};

/// Sends a request of these lines; returns the status line of the answer, and `true` if the answer's code is `headers_invalid`.
async fn answer(platform: &Platform, lines: &[&str]) -> (String, bool) {
    let text = format!("{}\r\nconnection: close\r\n\r\n", lines.join("\r\n"));
    let answer = write_then_wait(platform, &text).await;
    (answer.lines().next().unwrap_or_default().to_owned(), answer.contains("\"code\":\"headers_invalid\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_header_is_refused_and_changes_nothing() {
    let target = Target::start().await;
    let before = target.snapshot().await;
    for operation in operations().iter().filter(|operation| operation.mutates()) {
        let body = json!(operation.valid_body()).to_string();
        for name in ["authorization", "content-type", "idempotency-key", "if-match"] {
            let value = if name == "content-type" { JSON.1 } else { target.bearer.as_str() };
            let value = if name == "if-match" { "*" } else { value };
            let headers = [JSON, (name, value), (name, value)];
            let headers = if name == "content-type" { &headers[1..] } else { &headers[..] };
            let answer = target.send(&operation.method, &target.path(operation), headers, body.clone()).await;
            assert_eq!((answer.status, answer.code()), (400, "headers_invalid"), "{} {name}", operation.name);
            assert_eq!(answer.body["field"], name);
            assert_documented(&answer, operation, name);
        }
    }
    for path in ["/livez", "/readyz", "/metrics", "/api/v1/openapi.json", "/nowhere"] {
        let twice = [("content-type", "a"), ("content-type", "b")];
        assert_eq!(target.send(&Method::GET, path, &twice, "").await.code(), "headers_invalid", "{path}");
    }
    assert_eq!(target.snapshot().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_needs_exactly_one_host_and_one_length() {
    let platform = Platform::start(0);
    let authorization = format!("authorization: {}", bearer(&platform));
    let get = ["GET /api/v1/whoami HTTP/1.1", &authorization];
    let refused = ("HTTP/1.1 400 Bad Request".to_owned(), true);
    assert_eq!(answer(&platform, &get).await, refused, "no host");
    assert_eq!(answer(&platform, &[&get[..], &["host: x", "host: x"]].concat()).await, refused, "two hosts");
    assert_eq!(answer(&platform, &[&get[..], &["host: x"]].concat()).await.0, "HTTP/1.1 200 OK");
    let without_host = ["GET /livez HTTP/1.0"];
    assert_eq!(answer(&platform, &without_host).await.0, "HTTP/1.0 200 OK", "HTTP/1.0 needs no Host header");
    let post = ["POST /api/v1/projects HTTP/1.1", &authorization, "host: x", "content-type: application/json"];
    // The lengths differ, because equal ones would count as one (RFC 9110, section 8.6).
    let first = answer(&platform, &[&post[..], &["content-length: 2", "content-length: 3"]].concat()).await.0;
    assert_eq!(first, "HTTP/1.1 400 Bad Request");
    let codings = [&["transfer-encoding: chunked"; 2][..], &["transfer-encoding: gzip, chunked"]];
    for codings in codings {
        assert_eq!(answer(&platform, &[&post[..], codings].concat()).await, refused, "{codings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn authorization_scheme_ignores_case_and_headers_have_a_size_limit() {
    let platform = Platform::start(0);
    let bearer = bearer(&platform);
    let get = ["GET /api/v1/whoami HTTP/1.1", "host: x"];
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let authorization = format!("authorization: {}", bearer.replacen("Bearer", scheme, 1));
        assert_eq!(answer(&platform, &[&get[..], &[&authorization]].concat()).await.0, "HTTP/1.1 200 OK", "{scheme}");
    }
    let authorization = format!("authorization: {}", bearer.replacen("Bearer", "Basic", 1));
    assert_eq!(answer(&platform, &[&get[..], &[&authorization]].concat()).await.0, "HTTP/1.1 401 Unauthorized");
    let authorization = format!("authorization: {bearer}");
    for (bytes, status) in [(60_000, "200 OK"), (66_000, "431 Request Header Fields Too Large")] {
        let long = format!("x: {}", "a".repeat(bytes));
        let answer = answer(&platform, &[&get[..], &[&authorization, &long]].concat()).await.0;
        assert_eq!(answer, format!("HTTP/1.1 {status}"), "{bytes}");
    }
}
