//! What operations of one kind have in common.

use gpuaas_model::{Code, Role};
use utoipa::openapi::{RefOr, Response, path::Operation};

use crate::declared::Declared;

/// The properties of an operation that decide what its description shares with others.
pub(super) struct Kind {
    mutates: bool,
    pub(super) needs_token: bool,
    /// True if the operation declares a permission. It then refuses one-time tokens.
    needs_permission: bool,
    /// True if the operation compares its object with `If-Match`.
    pub(super) checks_if_match: bool,
    /// True if the response carries an ETag.
    pub(super) has_etag: bool,
    takes_body: bool,
    is_denied_to_some: bool,
}

impl Kind {
    pub(super) fn of(operation: &Operation, declared: &Declared) -> Self {
        let permission = declared.declaration.access.permission();
        let is_tagged = |response: &RefOr<Response>| matches!(response, RefOr::T(response) if response.headers.contains_key("ETag"));
        Self {
            mutates: declared.mutates,
            needs_token: operation.security.is_some(),
            needs_permission: permission.is_some(),
            checks_if_match: declared.checks_if_match(),
            has_etag: operation.responses.responses.get("200").is_some_and(is_tagged),
            takes_body: declared.takes_body,
            is_denied_to_some: permission
                .is_some_and(|permission| Role::ALL.iter().any(|role| !role.allows(permission))),
        }
    }

    /// Returns whether the operation accepts an idempotency key. It then reads the body, even if it declares none.
    pub(super) fn takes_key(&self) -> bool {
        self.mutates && self.needs_permission
    }

    /// Returns the operation's own codes and those of its kind.
    pub(super) fn codes(&self, own: &[Code]) -> Vec<Code> {
        let mut codes = own.to_vec();
        let finds_objects = codes.contains(&Code::NotFound);
        let mut add = |when: bool, code: Code| {
            if when && !codes.contains(&code) {
                codes.push(code);
            }
        };
        // An object may be named by the first characters of its id.
        add(finds_objects, Code::IdAmbiguous);
        add(self.needs_token, Code::Unauthenticated);
        add(self.needs_permission, Code::OneTimeTokenOnly);
        add(self.is_denied_to_some, Code::Forbidden);
        // Of browsers, whose session's cookie may replace the token.
        add(self.needs_permission, Code::CrossSite);
        add(self.needs_permission && self.mutates, Code::CsrfMissing);
        // Also for operations without parameters: they refuse unknown parameters.
        add(true, Code::QueryInvalid);
        // Also for operations without a body: they refuse a body with content.
        add(self.mutates, Code::BodyInvalid);
        add(self.mutates, Code::BodyTooLarge);
        add(self.mutates, Code::BodyTooSlow);
        add(self.takes_body, Code::MediaTypeUnsupported);
        add(self.takes_key(), Code::IdempotencyKeyReused);
        add(self.mutates, Code::PreconditionFailed);
        add(self.mutates, Code::DiskFull);
        add(true, Code::HeadersInvalid);
        add(true, Code::RateLimited);
        add(true, Code::Unavailable);
        add(true, Code::Internal);
        codes
    }
}
