//! The credential of a request: a bearer token, or the cookie of a browser's session.
//!
//! Guarantees: a request with both is refused, because a proxy and this server could take different ones. A cookie counts only if no other
//! site caused the request ([`check_site`]), and for a change only with the header that no other site can set ([`check_csrf`]).
//!
//! The value of that header is derived from the cookie's text, so it needs no row and ends with the session. A script that knows it cannot
//! compute the cookie from it.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use cookie::{Cookie, SameSite};
use gpuaas_engine::{
    Keys,
    commands::{
        session::{self, Sender},
        token,
    },
};
use gpuaas_model::Code;
use gpuaas_trust::{constant_time_eq, sha256_hex};

use crate::problem::ApiProblem;

/// Name of the cookie. With this prefix, a browser accepts it only with `Secure`, for this host alone, and for every path.
const COOKIE: &str = "__Host-gpuaas-session";
/// Header of changes with the value from `GET /api/v1/session`.
const CSRF: HeaderName = HeaderName::from_static("x-gpuaas-csrf");
/// Header of requests that the shell sends by itself while nobody uses its page. It can only shorten a session.
const IDLE: HeaderName = HeaderName::from_static("x-gpuaas-idle");
/// Header in which a browser says which site caused the request. Scripts cannot set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A credential, by the digest with which it is looked up.
pub(crate) enum Credential {
    /// A bearer token that this control plane issued, valid or not.
    Token {
        /// SHA-256 of the token.
        sha256: String,
    },
    /// The cookie of a session that this control plane began, valid or not.
    Session {
        /// SHA-256 of the cookie's text.
        sha256: String,
        /// The value that changes must repeat.
        csrf: String,
    },
}

impl Credential {
    /// Returns the request's credential. Refuses one that this control plane did not issue, without a look-up or a penalty.
    pub(crate) fn of(headers: &HeaderMap, keys: &Keys) -> Result<Self, ApiProblem> {
        match (headers.contains_key(header::AUTHORIZATION), session_cookie(headers)?) {
            (true, Some(_)) => Err(ApiProblem::new(
                Code::HeadersInvalid,
                "the request has the cookie of a session and an Authorization header",
            )
            .about(header::COOKIE.as_str())
            .then("send one of them")),
            (true, None) => Ok(Self::Token { sha256: digest_of_token(headers, keys)? }),
            (false, Some(text)) => {
                check_site(headers)?;
                if !session::is_issued(keys, &text) {
                    return Err(ApiProblem::new(Code::Unauthenticated, "this control plane did not begin the session")
                        .then("sign in again"));
                }
                Ok(Self::Session { sha256: sha256_hex(text.as_bytes()), csrf: csrf_of(&text) })
            }
            (false, None) => Err(refuse("no token was sent")),
        }
    }

    /// Returns the digest with which the credential is looked up.
    pub(crate) fn sha256(&self) -> &str {
        match self {
            Self::Token { sha256 } | Self::Session { sha256, .. } => sha256,
        }
    }
}

/// Returns the digest of the request's bearer token.
pub(crate) fn digest_of_token(headers: &HeaderMap, keys: &Keys) -> Result<String, ApiProblem> {
    let header = headers.get(header::AUTHORIZATION).ok_or_else(|| refuse("no token was sent"))?;
    let (scheme, secret) = header.to_str().ok().and_then(|header| header.split_once(' ')).unwrap_or_default();
    // RFC 9110: the scheme name is case-insensitive.
    let secret = Some(secret).filter(|_| scheme.eq_ignore_ascii_case("Bearer"));
    let secret = secret.ok_or_else(|| refuse("the Authorization header contains no bearer token"))?.trim();
    if !token::is_issued(keys, secret) {
        let detail = "this control plane did not issue the token, or the token is incomplete";
        return Err(ApiProblem::new(Code::Unauthenticated, detail)
            .then("copy the whole token again, or ask an admin of the project or the platform for a new one"));
    }
    Ok(sha256_hex(secret.as_bytes()))
}

/// Refuses a request without a valid token.
pub(crate) fn refuse(why: &str) -> ApiProblem {
    let next = "set a valid token in GPUAAS_TOKEN or in the context (gpuaas context set NAME --token-file FILE); \
                requests send it as `Authorization: Bearer …`";
    ApiProblem::new(Code::Unauthenticated, why).then(next)
}

/// Returns the digest of the cookie that a browser has, if this control plane issued it. Other cookies do not prevent a sign-in.
pub(crate) fn digest_of_cookie(headers: &HeaderMap, keys: &Keys) -> Option<String> {
    let text = session_cookie(headers).ok()?.filter(|text| session::is_issued(keys, text))?;
    Some(sha256_hex(text.as_bytes()))
}

/// Returns the text of the session's cookie.
fn session_cookie(headers: &HeaderMap) -> Result<Option<String>, ApiProblem> {
    // HTTP/2 allows a line for each cookie.
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let cookies = lines.flat_map(Cookie::split_parse).filter_map(Result::ok);
    let mut of_session = cookies.filter(|cookie| cookie.name() == COOKIE).map(|cookie| cookie.value().to_owned());
    let first = of_session.next();
    if of_session.next().is_some() {
        let detail = format!("the request has several cookies with the name {COOKIE}");
        return Err(ApiProblem::new(Code::HeadersInvalid, detail).about(header::COOKIE.as_str()).then("send one"));
    }
    Ok(first)
}

/// Refuses a request that another site made the browser send. Programs other than browsers do not send the header.
pub(crate) fn check_site(headers: &HeaderMap) -> Result<(), ApiProblem> {
    // `none`: a person entered the address.
    let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
    if headers.get_all(FETCH_SITE).iter().all(is_own) {
        return Ok(());
    }
    Err(ApiProblem::new(Code::CrossSite, "another site made this browser send the request")
        .about(FETCH_SITE.as_str())
        .then("open the control plane itself and repeat the action there"))
}

/// Returns what sent a request with a session's cookie.
pub(crate) fn sender(headers: &HeaderMap) -> Sender {
    if headers.contains_key(IDLE) { Sender::IdlePage } else { Sender::User }
}

/// Refuses a change of a session without the header that proves that a page of this server sent it.
pub(crate) fn check_csrf(headers: &HeaderMap, expected: &str) -> Result<(), ApiProblem> {
    let mut sent = headers.get_all(CSRF).iter();
    let (first, second) = (sent.next(), sent.next());
    let why = match first {
        None => "the header is missing",
        Some(value) if second.is_none() && constant_time_eq(value.as_bytes(), expected.as_bytes()) => return Ok(()),
        Some(_) if second.is_some() => "the header is sent more than once",
        Some(_) => "the header has the value of another session",
    };
    let detail = format!("a change with a session's cookie needs the header {CSRF}: {why}");
    Err(ApiProblem::new(Code::CsrfMissing, detail)
        .about(CSRF.as_str())
        .then("send the value `csrf` of GET /api/v1/session; reload a page that was opened before the latest sign-in"))
}

/// Returns the value of the header that changes of the session with this cookie need.
pub(crate) fn csrf_of(cookie: &str) -> String {
    sha256_hex(format!("csrf of {cookie}").as_bytes())
}

/// Returns the `Set-Cookie` value that stores a session's cookie for this time.
pub(crate) fn stored_cookie(text: &str, seconds: u64) -> Result<HeaderValue, ApiProblem> {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let cookie = Cookie::build((COOKIE, text))
        .path("/")
        .secure(true)
        .http_only(true)
        .same_site(SameSite::Strict)
        .max_age(cookie::time::Duration::seconds(seconds))
        .build();
    let value = HeaderValue::try_from(cookie.to_string());
    let mut value = value.map_err(|_| ApiProblem::new(Code::Internal, "the cookie is no header"))?;
    // Keeps the value out of the HPACK tables and debug output.
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the `Set-Cookie` value that removes a session's cookie.
pub(crate) fn removed_cookie() -> Result<HeaderValue, ApiProblem> {
    stored_cookie("", 0)
}

#[cfg(test)]
mod tests;
