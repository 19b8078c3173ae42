//! Sessions of browsers: sign-in, the cookie with its protection against other sites, sign-out, and the files of the workload shell.

use gpuaas_api_types::{BrowserSession, CreateProject};
use gpuaas_client::{AuditQuery, ClientError};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    raw::{HttpResponse, bearer, connect, send},
    world::{Platform, WAIT_MAX, token_request},
};

const JSON: (&str, &str) = ("content-type", "application/json");
const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");

/// A browser that is signed in.
struct Browser {
    cookie: String,
    csrf: String,
    session: String,
}

impl Browser {
    /// Signs in with a code or a token.
    async fn sign_in(platform: &Platform, with: Value) -> Self {
        let answer = sign_in(platform, with, &[SAME_ORIGIN, ("user-agent", "Test/1")]).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let stored = answer.headers["set-cookie"].to_str().expect("a cookie").to_owned();
        for attribute in ["HttpOnly", "Secure", "SameSite=Strict", "Path=/"] {
            assert!(stored.contains(attribute), "{attribute} is missing: {stored}");
        }
        assert_eq!(answer.headers["cache-control"], "no-store");
        let text = |name: &str| answer.body[name].as_str().expect("a text").to_owned();
        let cookie = stored.split(';').next().expect("a value").to_owned();
        Self { cookie, csrf: text("csrf"), session: text("id") }
    }

    async fn get(&self, platform: &Platform, path: &str) -> HttpResponse {
        send(platform, Method::GET, path, &[("cookie", &self.cookie), SAME_ORIGIN], "").await
    }

    async fn post(&self, platform: &Platform, path: &str, more: &[(&str, &str)], body: &Value) -> HttpResponse {
        let headers = [&[("cookie", self.cookie.as_str()), JSON], more].concat();
        send(platform, Method::POST, path, &headers, body.to_string()).await
    }

    /// Creates a project, and returns the code of the refusal; empty if there is none.
    async fn create_project(&self, platform: &Platform, name: &str, more: &[(&str, &str)]) -> String {
        let answer = self.post(platform, "/api/v1/projects", more, &json!({ "name": name })).await;
        answer.code().to_owned()
    }

    fn csrf(&self) -> (&str, &str) {
        ("x-gpuaas-csrf", &self.csrf)
    }
}

async fn sign_in(platform: &Platform, with: Value, headers: &[(&str, &str)]) -> HttpResponse {
    let headers = [&[JSON], headers].concat();
    send(platform, Method::POST, "/api/v1/sessions", &headers, with.to_string()).await
}

/// Has a link issued with the platform admin's token, and returns its code.
async fn code(platform: &Platform) -> String {
    let url = platform.client().create_sign_in_link().await.expect("a link").url;
    let (page, code) = url.split_once("/#sign-in=").expect("the code is in the fragment");
    assert_eq!(page, platform.ready()["url"]);
    code.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_signs_in_by_link_once_or_by_token_and_has_the_rights_of_the_token() {
    let platform = Platform::start(0);
    let admin = platform.client();
    admin.create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let code = code(&platform).await;
    let browser = Browser::sign_in(&platform, json!({ "code": code })).await;
    // The operation `get_session`.
    let current = browser.get(&platform, "/api/v1/session").await;
    assert_eq!(current.status, 200, "{current:?}");
    for path in ["/api/v1/projects", "/api/v1/none"] {
        let answer = browser.get(&platform, path).await;
        assert_eq!(
            answer.headers["cache-control"], "no-store",
            "a shared cache must not keep what a cookie got: {path}"
        );
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
    }
    assert_eq!((&current.body["user"], &current.body["role"]), (&json!("developer"), &json!("platform-admin")));
    assert_eq!((&current.body["csrf"], &current.body["proof"]), (&json!(browser.csrf), &json!("sign_in_link")));
    assert_eq!(current.body["projects"][0]["name"], "ours");
    let again = sign_in(&platform, json!({ "code": code }), &[SAME_ORIGIN]).await;
    assert_eq!((again.status, again.code()), (401, "sign_in_invalid"), "{again:?}");
    assert!(again.body["next"].as_str().is_some_and(|next| next.contains("gpuaas login --browser")), "{again:?}");

    let made = admin.create_token(&token_request("eve", "viewer", Some("ours"))).await.expect("made");
    let viewer = Browser::sign_in(&platform, json!({ "token": made.secret })).await;
    assert_eq!(viewer.get(&platform, "/api/v1/session").await.body["proof"], "token");
    assert_eq!(viewer.create_project(&platform, "more", &[viewer.csrf()]).await, "forbidden");
    assert_eq!(viewer.get(&platform, "/api/v1/nodes").await.code(), "forbidden");
    assert_eq!(browser.create_project(&platform, "more", &[browser.csrf()]).await, "");

    let metrics = admin.create_token(&token_request("scraper", "platform-metrics", None)).await.expect("made");
    let refused = sign_in(&platform, json!({ "token": metrics.secret }), &[]).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"), "a program needs no browser");
    for (with, expected) in [
        (json!({ "code": "gpuaas-link_x" }), (401, "sign_in_invalid")),
        (json!({ "token": "x" }), (401, "sign_in_invalid")),
        (json!({ "token": code }), (401, "sign_in_invalid")),
        (json!({ "code": "x", "token": "y" }), (400, "body_invalid")),
        (json!({ "password": "x" }), (400, "body_invalid")),
    ] {
        let answer = sign_in(&platform, with.clone(), &[SAME_ORIGIN]).await;
        assert_eq!((answer.status, answer.code()), expected, "{with}: {answer:?}");
        assert!(!answer.headers.contains_key("set-cookie"), "{with}");
    }
    let audit = admin.list_audit(&AuditQuery::default()).await.expect("records").items;
    let results = |action: &str| {
        let of = audit.iter().filter(|record| record.action == action);
        of.map(|record| record.result.as_str()).collect::<Vec<_>>()
    };
    assert!(results("session.create").iter().filter(|result| **result == "accepted").count() == 2, "{audit:?}");
    assert!(results("session.create").iter().filter(|result| **result == "refused").count() >= 2, "{audit:?}");
    assert!(results("sign_in_link.create").contains(&"accepted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn change_with_a_cookie_needs_the_csrf_header_and_no_other_site() {
    let platform = Platform::start(0);
    let browser = Browser::sign_in(&platform, json!({ "code": code(&platform).await })).await;
    let other = Browser::sign_in(&platform, json!({ "code": code(&platform).await })).await;
    let create = async |more: &[(&str, &str)]| browser.create_project(&platform, "ours", more).await;
    assert_eq!(create(&[]).await, "csrf_missing");
    assert_eq!(create(&[("x-gpuaas-csrf", "")]).await, "csrf_missing");
    assert_eq!(create(&[other.csrf()]).await, "csrf_missing");
    for site in ["cross-site", "same-site"] {
        assert_eq!(create(&[browser.csrf(), ("sec-fetch-site", site)]).await, "cross_site");
        let headers = [("cookie", browser.cookie.as_str()), ("sec-fetch-site", site)];
        let read = send(&platform, Method::GET, "/api/v1/session", &headers, "").await;
        assert_eq!(read.code(), "cross_site");
        let signed = sign_in(&platform, json!({ "code": code(&platform).await }), &[("sec-fetch-site", site)]).await;
        assert_eq!(signed.code(), "cross_site");
    }
    let authorization = bearer(&platform);
    assert_eq!(create(&[browser.csrf(), ("authorization", &authorization)]).await, "headers_invalid");
    let links = "/api/v1/sign-in-links";
    let issued = browser.post(&platform, links, &[browser.csrf(), SAME_ORIGIN], &json!({})).await;
    assert_eq!(issued.code(), "forbidden", "the operation create_sign_in_link needs a token: {issued:?}");
    assert_eq!(create(&[browser.csrf(), SAME_ORIGIN]).await, "");
    let records = platform.client().list_audit(&AuditQuery::default()).await.expect("records").items;
    let of_result = |result: &str| {
        let of = records.iter().filter(|record| record.action == "project.create" && record.result == result);
        of.collect::<Vec<_>>()
    };
    assert!(of_result("refused").len() >= 3, "each refused change of a session is recorded");
    let accepted: Vec<_> = of_result("accepted").iter().map(|record| record.metadata["session"].clone()).collect();
    assert_eq!(accepted, [json!(browser.session)], "the audit names the session");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_and_revoked_by_their_own_token_alone() {
    let platform = Platform::start(0);
    let admin = platform.client();
    let made = admin.create_token(&token_request("bob", "platform-operator", None)).await.expect("made");
    let (bob, other) = (
        platform.client_with(&made.secret),
        Browser::sign_in(&platform, json!({ "code": code(&platform).await })).await,
    );
    let browser = Browser::sign_in(&platform, json!({ "token": made.secret })).await;
    let listed = bob.list_sessions().await.expect("listed").items;
    let ids: Vec<&str> = listed.iter().map(|session| session.id.as_str()).collect();
    assert_eq!((ids, listed[0].user_agent.as_deref()), (vec![browser.session.as_str()], Some("Test/1")));
    let shown = browser.get(&platform, "/api/v1/sessions").await;
    assert_eq!(shown.body["items"][0]["current"], true, "{shown:?}");
    let foreign = bob.revoke_session(&other.session).await.expect_err("another's session");
    assert!(matches!(&foreign, ClientError::Problem(problem) if problem.code == "not_found"), "{foreign}");

    let (host, mut events) = connect(&platform).await;
    let lines = ["GET /api/v1/events HTTP/1.1", "connection: close", "accept: text/event-stream"].join("\r\n");
    let request = format!("{lines}\r\nhost: {host}\r\ncookie: {}\r\n\r\n", browser.cookie);
    events.write_all(request.as_bytes()).await.expect("sent");
    let mut begun = [0; 15];
    events.read_exact(&mut begun).await.expect("a response");
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    // Signs out: `revoke_session` of the own session.
    let path = format!("/api/v1/sessions/{}", browser.session);
    let headers = [("cookie", browser.cookie.as_str()), browser.csrf()];
    let revoked = send(&platform, Method::DELETE, &path, &headers, "").await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
    assert!(revoked.headers["set-cookie"].to_str().expect("a cookie").contains("Max-Age=0"), "{revoked:?}");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(WAIT_MAX, events.read_to_end(&mut rest)).await;
    ended.expect("the stream ends").expect("it ends in order");
    assert_eq!(browser.get(&platform, "/api/v1/session").await.status, 401);
    let left: Vec<BrowserSession> = bob.list_sessions().await.expect("listed").items;
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(other.get(&platform, "/api/v1/session").await.status, 200, "other sessions stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_ends_the_session_that_the_browser_had() {
    let platform = Platform::start(0);
    let first = Browser::sign_in(&platform, json!({ "code": code(&platform).await })).await;
    let with = json!({ "code": code(&platform).await });
    let refused = sign_in(&platform, json!({ "code": "x" }), &[SAME_ORIGIN, ("cookie", first.cookie.as_str())]).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    assert_eq!(first.get(&platform, "/api/v1/session").await.status, 200, "a refused sign-in ends nothing");
    let again = sign_in(&platform, with, &[SAME_ORIGIN, ("cookie", first.cookie.as_str())]).await;
    assert_eq!(again.status, 201, "{again:?}");
    assert_eq!(first.get(&platform, "/api/v1/session").await.status, 401);
    let audit = platform.client().list_audit(&AuditQuery::default()).await.expect("records").items;
    assert!(audit.iter().any(|record| record.action == "session.revoke"), "{audit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_with_its_token() {
    let platform = Platform::start(0);
    let admin = platform.client();
    let made = admin.create_token(&token_request("bob", "platform-operator", None)).await.expect("made");
    let link = platform.client_with(&made.secret).create_sign_in_link().await.expect("a link").url;
    let browser = Browser::sign_in(&platform, json!({ "token": made.secret })).await;
    assert_eq!(browser.get(&platform, "/api/v1/session").await.status, 200);
    admin.revoke_token(&made.token.id).await.expect("revoked");
    let refused = browser.get(&platform, "/api/v1/session").await;
    assert_eq!((refused.status, refused.code()), (401, "unauthenticated"), "{refused:?}");
    let code = link.split_once("#sign-in=").expect("a code").1;
    let late = sign_in(&platform, json!({ "code": code }), &[SAME_ORIGIN]).await;
    assert_eq!(late.code(), "sign_in_invalid", "a link ends with its token, too: {late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_session_is_stored_logged_or_shown_again() {
    let platform = Platform::start(0);
    let (code, admin) = (code(&platform).await, platform.client());
    let browser = Browser::sign_in(&platform, json!({ "code": code })).await;
    browser.create_project(&platform, "ours", &[]).await;
    let again = sign_in(&platform, json!({ "code": code }), &[SAME_ORIGIN]).await;
    assert_eq!(again.status, 401);
    let cookie = browser.cookie.split_once('=').expect("a value").1.to_owned();
    let secrets = [("the code", code), ("the cookie", cookie), ("the CSRF value", browser.csrf.clone())];
    let mut places = vec![("the log", std::fs::read(platform.file("output.txt")).expect("a file"))];
    for name in ["gpuaas.db", "gpuaas.db-wal"] {
        places.push((name, std::fs::read(platform.file("data/server").join(name)).unwrap_or_default()));
    }
    assert!(places[1].1.len() + places[2].1.len() > 4_096, "the database was not found");
    let audit = admin.list_audit(&AuditQuery::default()).await.expect("records").items;
    places.push(("the audit", serde_json::to_vec(&audit).expect("JSON")));
    let events = browser.get(&platform, "/api/v1/events").await;
    assert!(events.body.to_string().contains("session.created"), "{events:?}");
    places.push(("the events", events.body.to_string().into_bytes()));
    places.push(("the list", browser.get(&platform, "/api/v1/sessions").await.body.to_string().into_bytes()));
    for (what, secret) in &secrets {
        for (place, bytes) in &places {
            assert!(memchr::memmem::find(bytes, secret.as_bytes()).is_none(), "{place} holds {what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_the_shell_is_restricted_and_unknown_routes_of_the_api_stay_problems() {
    let platform = Platform::start(0);
    let get = async |path: &str| send(&platform, Method::GET, path, &[], "").await;
    for path in ["/", "/workloads", "/workloads/train"] {
        let page = get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8", "{path}");
        let policy = page.headers["content-security-policy"].to_str().expect("a text");
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(page.headers[name], value, "{path}");
        }
    }
    for path in ["/assets/none.js", "/api/none", "/api/v1/none", "/install/none"] {
        let refused = get(path).await;
        assert_eq!((refused.status, refused.code()), (404, "not_found"), "{path}: {refused:?}");
    }
    let posted = send(&platform, Method::POST, "/workloads", &[JSON], "{}").await;
    assert_eq!((posted.status, posted.code()), (404, "not_found"), "{posted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_prints_a_link_and_manages_sessions() {
    let platform = Platform::start(0);
    let printed = platform.json(&["login", "--browser"]);
    let url = printed["url"].as_str().expect("a URL");
    let output = std::fs::read_to_string(platform.file("output.txt")).expect("a file");
    assert!(
        output.contains("/#sign-in=gpuaas-link_") && !output.contains(url),
        "gpuaas dev prints a link of its own: {output}"
    );
    let code = url.split_once("#sign-in=").expect("a code").1;
    let browser = Browser::sign_in(&platform, json!({ "code": code })).await;
    let listed = platform.json(&["session", "list"]);
    assert_eq!(listed[0]["id"], json!(browser.session), "{listed}");
    assert_eq!(platform.gpuaas(&["session", "revoke", &browser.session]).status.code(), Some(0));
    assert_eq!(platform.gpuaas(&["session", "revoke", &browser.session]).status.code(), Some(3));
    assert_eq!(platform.gpuaas(&["login"]).status.code(), Some(2), "it says how to sign in");
}
