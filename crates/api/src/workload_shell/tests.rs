use axum::body::to_bytes;

use super::*;

const BUILT: &[File] = &[
    File { path: "/index.html", content: b"<p>shell", br: Some(b"br-page"), gzip: None },
    File { path: "/assets/index-1a2b.js", content: b"code()", br: Some(b"br"), gzip: Some(b"gzip") },
    File { path: "/favicon.svg", content: b"<svg/>", br: None, gzip: None },
];

fn get(files: &[File], path: &str, headers: &[(HeaderName, &str)]) -> Response {
    let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
    respond(files, &Method::GET, path, &headers)
}

fn header_of(response: &Response, name: HeaderName) -> &str {
    response.headers().get(&name).map_or("", |value| value.to_str().unwrap())
}

async fn body(response: Response) -> Vec<u8> {
    to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()
}

#[tokio::test]
async fn page_is_served_at_every_path_of_the_shell_and_at_none_of_the_api() {
    for path in ["/", "/index.html", "/workloads", "/workloads/train", "/apis", "/documents"] {
        let page = get(BUILT, path, &[]);
        assert_eq!((page.status(), header_of(&page, header::CACHE_CONTROL)), (StatusCode::OK, "no-cache"), "{path}");
        assert_eq!(header_of(&page, header::CONTENT_TYPE), "text/html; charset=utf-8", "{path}");
        assert_eq!(body(page).await, b"<p>shell", "{path}");
    }
    for path in ["/api", "/api/v1/none", "/docs/none", "/install/none", "/metrics/none", "/assets/none.js"] {
        let refused = get(BUILT, path, &[]);
        assert_eq!(refused.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(header_of(&refused, header::CONTENT_TYPE), "application/problem+json", "{path}");
    }
    let posted = respond(BUILT, &Method::POST, "/workloads", &HeaderMap::new());
    assert_eq!(posted.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn every_page_and_file_restricts_what_runs() {
    for path in ["/", "/assets/index-1a2b.js", "/favicon.svg"] {
        for files in [BUILT, &[]] {
            let response = get(files, path, &[]);
            if response.status() == StatusCode::NOT_FOUND && path.starts_with(ASSETS) {
                continue;
            }
            let policy = header_of(&response, header::CONTENT_SECURITY_POLICY);
            assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}");
            assert!(!policy.contains("unsafe"), "{path}: {policy}");
            assert_eq!(header_of(&response, header::X_CONTENT_TYPE_OPTIONS), "nosniff", "{path}");
            assert_eq!(header_of(&response, header::REFERRER_POLICY), "no-referrer", "{path}");
            let opener = HeaderName::from_static("cross-origin-opener-policy");
            assert_eq!(header_of(&response, opener), "same-origin", "{path}");
        }
    }
}

#[tokio::test]
async fn asset_is_cached_forever_in_the_smallest_accepted_form() {
    let coding = header::ACCEPT_ENCODING;
    for (accepted, expected, content) in [
        ("gzip, deflate, br", "br", &b"br"[..]),
        ("gzip;q=0.5", "gzip", b"gzip"),
        ("br;q=0, gzip", "gzip", b"gzip"),
        ("identity", "", b"code()"),
        ("brotli", "", b"code()"),
    ] {
        let asset = get(BUILT, "/assets/index-1a2b.js", &[(coding.clone(), accepted)]);
        assert_eq!(header_of(&asset, header::CONTENT_ENCODING), expected, "{accepted}");
        assert!(header_of(&asset, header::CACHE_CONTROL).contains("immutable"), "{accepted}");
        assert_eq!(header_of(&asset, header::VARY), "accept-encoding", "{accepted}");
        assert_eq!(header_of(&asset, header::CONTENT_TYPE), "text/javascript; charset=utf-8", "{accepted}");
        assert_eq!(body(asset).await, content, "{accepted}");
    }
}

#[tokio::test]
async fn known_page_is_not_sent_again() {
    let first = get(BUILT, "/workloads", &[]);
    let tag = header_of(&first, header::ETAG).to_owned();
    let coded = get(BUILT, "/", &[(header::ACCEPT_ENCODING, "br")]);
    assert_ne!(header_of(&coded, header::ETAG), tag, "each form has its own tag");
    for known in [tag.clone(), format!("\"other\", W/{tag}")] {
        let again = get(BUILT, "/nodes", &[(header::IF_NONE_MATCH, &known)]);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
        assert_eq!(body(again).await, b"", "{known}");
    }
    assert_eq!(get(BUILT, "/", &[(header::IF_NONE_MATCH, "\"other\"")]).status(), StatusCode::OK);
}

#[tokio::test]
async fn head_has_the_length_of_the_page_and_no_body() {
    let head = respond(BUILT, &Method::HEAD, "/", &HeaderMap::new());
    assert_eq!((head.status(), header_of(&head, header::CONTENT_LENGTH)), (StatusCode::OK, "8"));
    assert_eq!(body(head).await, b"");
}

#[tokio::test]
async fn program_without_the_shell_says_how_to_build_it() {
    for path in ["/", "/workloads"] {
        let page = get(&[], path, &[]);
        assert_eq!((page.status(), header_of(&page, header::CACHE_CONTROL)), (StatusCode::OK, "no-store"));
        let text = String::from_utf8(body(page).await).unwrap();
        assert!(text.contains("was not built into this program") && text.contains("cargo xtask ui"), "{text}");
    }
    assert_eq!(header_of(&get(&[], "/api/none", &[]), header::CONTENT_TYPE), "application/problem+json");
}
