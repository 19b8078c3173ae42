use gpuaas_model::{Coded as _, Entropy, Timestamp};
use gpuaas_trust::{Authority, SealingKey, TokenKey};

use super::*;

struct Sevens;

impl Entropy for Sevens {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

fn keys() -> Keys {
    let authority = Authority::generate("cp", Timestamp::from_millis(1_800_000_000_000)).unwrap();
    Keys::new("cp".to_owned(), authority, SealingKey::new(&[7; 32]).unwrap(), TokenKey::new(&[7; 32]))
}

fn headers(of: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in of {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap());
    }
    headers
}

fn code(result: Result<impl Sized, ApiProblem>) -> Option<Code> {
    result.err().map(|refused| refused.cause().code())
}

#[test]
fn cookie_counts_alone_once_and_only_if_it_was_issued() {
    let keys = keys();
    let text = keys.tokens().generate("gpuaas-session", &Sevens).text;
    let token = format!("Bearer {}", keys.tokens().generate("gpuaas", &Sevens).text.expose());
    let cookie = format!("{COOKIE}={}", text.expose());
    let (token, cookie) = (token.as_str(), cookie.as_str());
    let of = |lines: &[(&str, &str)]| Credential::of(&headers(lines), &keys);
    let both_lines = of(&[("cookie", "theme=dark"), ("cookie", cookie)]).unwrap();
    assert_eq!(both_lines.sha256(), text.sha256());
    assert!(matches!(of(&[("cookie", &format!("a=b; {cookie}; c=d"))]), Ok(Credential::Session { .. })));
    assert!(matches!(of(&[("authorization", token), ("cookie", "theme=dark")]), Ok(Credential::Token { .. })));
    for (lines, expected) in [
        (vec![("authorization", token), ("cookie", cookie)], Code::HeadersInvalid),
        (vec![("cookie", cookie), ("cookie", cookie)], Code::HeadersInvalid),
        (vec![("cookie", &cookie[..cookie.len() - 1])], Code::Unauthenticated),
        (vec![("cookie", "theme=dark")], Code::Unauthenticated),
        (vec![], Code::Unauthenticated),
    ] {
        assert_eq!(code(of(&lines)), Some(expected), "{lines:?}");
    }
    let in_header = format!("Bearer {}", text.expose());
    assert_eq!(code(of(&[("authorization", &in_header)])), Some(Code::Unauthenticated), "a cookie is no token");
}

#[test]
fn request_caused_by_another_site_is_refused() {
    let site = |value: &str| code(check_site(&headers(&[("sec-fetch-site", value)])));
    assert_eq!((site("same-origin"), site("none"), code(check_site(&HeaderMap::new()))), (None, None, None));
    for other in ["cross-site", "same-site", "", "Same-Origin"] {
        assert_eq!(site(other), Some(Code::CrossSite), "{other:?}");
    }
    let twice = headers(&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]);
    assert_eq!(code(check_site(&twice)), Some(Code::CrossSite));
}

#[test]
fn change_needs_the_value_of_its_own_session_once() {
    let (own, other) = (csrf_of("one"), csrf_of("other"));
    let (own, other) = (own.as_str(), other.as_str());
    assert_ne!(own, sha256_hex(b"one"), "it is not the digest that the database stores");
    let sent = |values: &[&str]| {
        let lines: Vec<_> = values.iter().map(|value| ("x-gpuaas-csrf", *value)).collect();
        code(check_csrf(&headers(&lines), own))
    };
    assert_eq!(sent(&[own]), None);
    for wrong in [&[][..], &[""], &[other], &[&own[..own.len() - 1]], &[own, own]] {
        assert_eq!(sent(wrong), Some(Code::CsrfMissing), "{wrong:?}");
    }
}

#[test]
fn request_of_an_idle_page_is_no_use() {
    assert_eq!(sender(&headers(&[("x-gpuaas-idle", "1")])), Sender::IdlePage);
    assert_eq!(sender(&HeaderMap::new()), Sender::User);
}

#[test]
fn cookie_is_kept_from_scripts_other_sites_and_plain_connections() {
    let stored = stored_cookie("text", 43_200).unwrap();
    let text = stored.to_str().unwrap();
    assert!(text.starts_with("__Host-gpuaas-session=text; "), "{text}");
    for attribute in ["HttpOnly", "Secure", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(text.split("; ").any(|part| part == attribute), "{attribute} is missing: {text}");
    }
    assert!(!text.contains("Domain"), "{text}");
    assert!(removed_cookie().unwrap().to_str().unwrap().contains("Max-Age=0"));
}
