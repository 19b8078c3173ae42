//! Refuses requests that repeat a header that decides how the request is handled.
//!
//! If such a header is repeated, one parser uses the first value and another the last: a proxy and this server would see different
//! requests. The same holds for a request that names no host, or two.
//!
//! Also adds the headers that every response has.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue, StatusCode, Version, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_model::Code;

use crate::{correlation, idempotency, problem::ApiProblem};

/// Headers that a request may contain once. RFC 9110 allows repeating `If-Match`; this server accepts one line of it, because the
/// comparison decides whether a change happens.
const SINGLE: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::IF_MATCH,
    idempotency::KEY,
    correlation::HEADER,
    HeaderName::from_static("last-event-id"),
];

/// Longest request line and headers together, in bytes.
pub const HEADERS_BYTES_MAX: u32 = 64 * 1_024;

/// Refuses a request whose headers are too long or ambiguous.
pub(crate) async fn middleware(request: Request, next: Next) -> Response {
    if bytes_of(&request) > HEADERS_BYTES_MAX as usize {
        // Without a body, like hyper's own response. hyper's limit accepts somewhat more than the configured bytes.
        return StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response();
    }
    match check(&request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// Keeps a response out of caches unless it says how it may be stored: unlike `Authorization`, a cookie does not keep it out of shared ones.
/// No browser takes a body for another media type than the declared one.
pub(crate) async fn restrict(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn bytes_of(request: &Request) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    request.headers().iter().fold(target, |bytes, (name, value)| bytes + name.as_str().len() + value.len())
}

fn check(request: &Request) -> Result<(), ApiProblem> {
    let headers = request.headers();
    if let Some(repeated) = SINGLE.iter().find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
        return Err(refuse(repeated, format!("{repeated} is sent more than once"), "send it once"));
    }
    // The parser drops a Content-Length next to a Transfer-Encoding, as RFC 9112 allows.
    if let Some(coding) = headers.get(header::TRANSFER_ENCODING) {
        let is_single = headers.get_all(header::TRANSFER_ENCODING).iter().count() == 1;
        if !is_single || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            let detail = "the only supported Transfer-Encoding is chunked".to_owned();
            return Err(refuse(&header::TRANSFER_ENCODING, detail, "send the body chunked, or with Content-Length"));
        }
    }
    let refuse_host =
        |detail: &str| Err(refuse(&header::HOST, detail.to_owned(), "send the name of the control plane"));
    let (host, authority) = (headers.get(header::HOST), request.uri().authority());
    let named = host.map(|host| Authority::try_from(host.as_bytes()).ok());
    if named.iter().any(|named| !named.as_ref().is_some_and(is_host)) || authority.is_some_and(|of| !is_host(of)) {
        return refuse_host("the host is not a name or address with an optional port");
    }
    match request.version() {
        Version::HTTP_09 | Version::HTTP_10 => Ok(()),
        Version::HTTP_11 if host.is_none() => refuse_host("the request names no host"),
        _ if host.is_none() && authority.is_none() => refuse_host("the request names no host"),
        _ => match (host, authority) {
            (Some(host), Some(authority)) if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {
                refuse_host("the request names two hosts")
            }
            _ => Ok(()),
        },
    }
}

/// Returns whether `authority` is a name or address with an optional port and without user information (RFC 9110, section 7.2, and RFC
/// 9113, section 8.3.1).
fn is_host(authority: &Authority) -> bool {
    let (host, text) = (authority.host(), authority.as_str());
    let port = text.strip_prefix(host);
    let is_port = port.is_some_and(|port| matches!(port, "" | ":") || authority.port_u16().is_some());
    !host.is_empty() && is_port
}

fn refuse(name: &HeaderName, detail: String, next: &str) -> ApiProblem {
    ApiProblem::new(Code::HeadersInvalid, detail).about(name.as_str()).then(next)
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::request::Builder};

    use super::*;

    fn refused(request: Builder) -> Option<String> {
        let request = request.body(Body::empty()).unwrap();
        check(&request).err().and_then(|refused| gpuaas_model::Coded::field(refused.cause()))
    }

    fn request(version: Version, uri: &str) -> Builder {
        Request::builder().version(version).uri(uri)
    }

    #[test]
    fn repeated_deciding_header_is_refused() {
        let once = SINGLE.iter().fold(request(Version::HTTP_11, "/"), |request, name| request.header(name, "x"));
        assert_eq!(refused(once), None);
        for name in &SINGLE {
            let twice = request(Version::HTTP_11, "/").header("host", "x").header(name, "x").header(name, "x");
            let expected = if *name == header::HOST { "host" } else { name.as_str() };
            assert_eq!(refused(twice).as_deref(), Some(expected), "{name}");
        }
        let listed = request(Version::HTTP_11, "/").header("host", "x").header("if-none-match", "a");
        assert_eq!(refused(listed.header("if-none-match", "b")), None, "a list may have several lines");
    }

    #[tokio::test]
    async fn response_is_not_stored_unless_it_says_how() {
        for (own, expected) in [(None, "no-store"), (Some("private, no-cache"), "private, no-cache")] {
            let mut response = StatusCode::OK.into_response();
            if let Some(own) = own {
                response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(own));
            }
            let restricted = restrict(response).await;
            assert_eq!(restricted.headers()[header::CACHE_CONTROL], expected);
            assert_eq!(restricted.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        }
    }

    #[test]
    fn only_chunked_transfer_encoding_is_accepted() {
        let request = |lines: &[(&str, &str)]| {
            let request = request(Version::HTTP_11, "/").header("host", "x");
            refused(lines.iter().fold(request, |request, (name, value)| request.header(*name, *value)))
        };
        assert_eq!(request(&[("transfer-encoding", "Chunked")]), None);
        let chunked = ("transfer-encoding", "chunked");
        for bad in [&[chunked, chunked][..], &[("transfer-encoding", "gzip, chunked")]] {
            assert_eq!(request(bad).as_deref(), Some("transfer-encoding"), "{bad:?}");
        }
    }

    #[test]
    fn request_must_name_exactly_one_host() {
        let (one, two) = (Version::HTTP_11, Version::HTTP_2);
        assert_eq!(refused(request(Version::HTTP_10, "/")), None);
        for good in ["x:1", "x:", "10.0.0.1", "[::1]:7443", "[::1]", "A_b.example."] {
            assert_eq!(refused(request(one, "/").header("host", good)), None, "{good}");
        }
        assert_eq!(refused(request(two, "https://x:1/")), None);
        assert_eq!(refused(request(two, "https://x:1/").header("host", "X:1")), None);
        for bad in [
            request(one, "/"),
            request(one, "https://x/"),
            request(two, "/"),
            request(two, "https://x/").header("host", "y"),
            request(one, "https://x/").header("host", "y"),
            request(one, "/").header("host", ""),
            request(one, "/").header("host", "a b"),
            request(one, "/").header("host", "user@x"),
            request(one, "/").header("host", "x/y"),
            request(one, "/").header("host", ":7443"),
            request(one, "/").header("host", "x:abc"),
            request(one, "/").header("host", "x:99999"),
            request(two, "https://user@x/"),
        ] {
            assert_eq!(refused(bad).as_deref(), Some("host"));
        }
    }
}
