//! Conditional requests: `ETag`, `If-None-Match` and `If-Match`.
//!
//! A tag is `"ID.REVISION-DIGEST"`, opaque to clients. `ID` is the object's id, because another object may have taken its name; `REVISION`
//! is the number that every change of its row raises. `If-Match` compares these two in the transaction of the mutation; of a workload it also
//! accepts revisions since which only a reconciliation by the platform has changed it. `DIGEST` covers the response body. `If-None-Match` compares it too, because the body also contains rows other than the object's own (members, operations).
//! `If-Match` uses strong comparison (RFC 9110): a weak tag never matches.
//!
//! A mutation that compares nothing refuses `If-Match` instead of ignoring it.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_engine::{Precondition, Revision};
use gpuaas_model::Code;
use serde::Serialize;
use uuid::Uuid;

use crate::{declared::operation_of, problem::ApiProblem};

/// Hex digits of the digest in a tag.
const DIGEST_LENGTH: usize = 16;

/// The headers of a request, for `If-None-Match`.
pub(crate) struct IfNoneMatch(HeaderMap);

impl<S: Sync> FromRequestParts<S> for IfNoneMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.headers.clone()))
    }
}

impl IfNoneMatch {
    /// Responds with the object, or with 304 if the client already has this version.
    pub(crate) fn respond(&self, revision: Revision, shown: &impl Serialize) -> Result<Response, ApiProblem> {
        let body = serde_json::to_vec(shown).map_err(|error| {
            tracing::error!(%error, "a response could not be serialized");
            ApiProblem::new(Code::Internal, "the control plane failed on this request")
        })?;
        let digest = gpuaas_trust::sha256_hex(&body);
        let tag = format!("\"{}.{}-{}\"", revision.object, revision.number, &digest[..DIGEST_LENGTH]);
        let is_unchanged = match tags(&self.0, &header::IF_NONE_MATCH)? {
            None => false,
            Some(Tags::Any) => true,
            // Weak comparison: 304 only promises that the response would have the same content.
            Some(Tags::OneOf(known)) => known.iter().any(|known| known.strip_prefix("W/").unwrap_or(known) == tag),
        };
        let present =
            HeaderValue::try_from(tag).map_err(|_| ApiProblem::new(Code::Internal, "an ETag is no header"))?;
        let headers = [(header::ETAG, present), (header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"))];
        if is_unchanged {
            return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
        }
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        Ok((headers, kind, body).into_response())
    }
}

/// Precondition of a mutation, from `If-Match`.
pub(crate) struct IfMatch(pub(crate) Precondition);

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        Ok(Self(match tags(&parts.headers, &header::IF_MATCH)? {
            None | Some(Tags::Any) => Precondition::Any,
            Some(Tags::OneOf(seen)) => Precondition::Revisions(seen.iter().filter_map(|tag| revision(tag)).collect()),
        }))
    }
}

/// Returns the revision in a strong tag that this control plane issued.
fn revision(tag: &str) -> Option<Revision> {
    let (object, rest) = tag.strip_prefix('"')?.strip_suffix('"')?.split_once('.')?;
    let (number, digest) = rest.split_once('-')?;
    let is_valid = object.len() == uuid::fmt::Hyphenated::LENGTH
        && digest.len() == DIGEST_LENGTH
        && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
        && number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_valid {
        return None;
    }
    Some(Revision { object: Uuid::try_parse(object).ok()?, number: number.parse().ok()? })
}

/// Refuses `If-Match` for operations that compare nothing.
pub(crate) async fn refuse_unsupported(request: Request, next: Next) -> Response {
    let declared = operation_of(&request);
    let is_ignored = declared.is_some_and(|declared| declared.mutates && !declared.checks_if_match());
    match tags(request.headers(), &header::IF_MATCH) {
        Ok(Some(Tags::OneOf(_))) if is_ignored => {
            ApiProblem::new(Code::PreconditionFailed, "this operation does not support If-Match")
                .about("If-Match")
                .then("send the request without If-Match")
                .into_response()
        }
        Err(refused) if declared.is_some_and(|declared| declared.mutates) => refused.into_response(),
        Ok(_) | Err(_) => next.run(request).await,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Tags {
    /// `*`
    Any,
    /// Tags as sent, with their quotes.
    OneOf(Vec<String>),
}

/// Returns the tags of all lines of a header.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, ApiProblem> {
    let mut lines = headers.get_all(name).iter().peekable();
    if lines.peek().is_none() {
        return Ok(None);
    }
    let text: Option<Vec<&str>> = lines.map(|line| line.to_str().ok()).collect();
    let read = text.map(|lines| lines.join(",")).and_then(|text| parsed(&text));
    read.map(Some).ok_or_else(|| {
        ApiProblem::new(Code::QueryInvalid, format!("{name} is neither * nor a list of ETags in quotes"))
            .about(if *name == header::IF_MATCH { "If-Match" } else { "If-None-Match" })
            .then("send an ETag as received, with its quotes: --if-match takes what `show --etag` prints")
    })
}

fn parsed(text: &str) -> Option<Tags> {
    if text.trim() == "*" {
        return Some(Tags::Any);
    }
    let (mut rest, mut found) = (text.trim(), Vec::new());
    while !rest.is_empty() {
        let open = if rest.starts_with("W/") { 2 } else { 0 };
        let inside = rest[open..].strip_prefix('"')?;
        let length = open + inside.find('"')? + 2;
        let tag = &rest[..length];
        // Every visible character is allowed between the quotes, commas included.
        if tag[open + 1..length - 1].bytes().any(|byte| !(b'!'..=b'~').contains(&byte)) {
            return None;
        }
        found.push(tag.to_owned());
        rest = rest[length..].trim_start();
        // Empty list elements are ignored.
        let remaining = rest.trim_start_matches([',', ' ', '\t']);
        if remaining.len() == rest.len() && !rest.is_empty() {
            return None;
        }
        rest = remaining;
    }
    if found.is_empty() { None } else { Some(Tags::OneOf(found)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_parsed_as_any_or_a_list_of_tags() {
        let of = |tags: &[&str]| Some(Tags::OneOf(tags.iter().map(|tag| (*tag).to_owned()).collect()));
        assert_eq!(parsed(" * "), Some(Tags::Any));
        assert_eq!(parsed(r#""a""#), of(&[r#""a""#]));
        assert_eq!(parsed(r#"W/"a,b" , "c","#), of(&[r#"W/"a,b""#, r#""c""#]));
        assert_eq!(parsed(r#""""#), of(&[r#""""#]));
        for bad in
            ["", ",", "a", "\"a", "a\"", r#""a""b""#, r#""a" b"#, r#"w/"a""#, "*,*", r#"*, "a""#, "\"a b\"", "\"ä\""]
        {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn changed_body_is_sent_again_although_its_row_is_unchanged() {
        let row = Revision { object: Uuid::from_u128(1), number: 7 };
        let first = IfNoneMatch(HeaderMap::new()).respond(row, &"one member").expect("a response");
        let if_none_match =
            IfNoneMatch(HeaderMap::from_iter([(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone())]));
        for (shown, status) in [("one member", StatusCode::NOT_MODIFIED), ("two members", StatusCode::OK)] {
            assert_eq!(if_none_match.respond(row, &shown).expect("a response").status(), status, "{shown}");
        }
    }

    #[test]
    fn only_strong_tags_of_this_server_contain_a_revision() {
        let object = "0198c0de-7a3b-7c11-9b54-0242ac120002";
        let ours = format!("\"{object}.7-0123456789abcdef\"");
        let known = Revision { object: object.parse().unwrap(), number: 7 };
        assert_eq!(revision(&ours), Some(known));
        assert_eq!(revision(&format!("W/{ours}")), None);
        for invalid in [
            "7-0123456789abcdef",
            "0198c0de-7a3b-7c11-9b54-0242ac120002.7",
            "0198c0de-7a3b-7c11-9b54-0242ac120002.7-0123",
            "0198c0de-7a3b-7c11-9b54-0242ac120002.-7-0123456789abcdef",
            "0198c0de-7a3b-7c11-9b54-0242ac120002.+7-0123456789abcdef",
            "0198c0de-7a3b-7c11-9b54-0242ac120002.99999999999999999999-0123456789abcdef",
            "0198c0de-7a3b-7c11-9b54-0242ac120002.7-0123456789abcdeg",
            "0198c0de7a3b7c119b540242ac120002.7-0123456789abcdef",
            "0198c0de-7a3b-7c11-9b54-0242ac12000x.7-0123456789abcdef",
        ] {
            assert_eq!(revision(&format!("\"{invalid}\"")), None, "{invalid}");
        }
    }
}
