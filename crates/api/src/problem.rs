//! Error responses of the API.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{Problem, ProblemReason, error_pages};
use gpuaas_engine::CommandError;
use gpuaas_model::{Code, Coded, visible};
use gpuaas_store::StoreError;

use crate::correlation;

/// Default `Retry-After` of a 429 response, in seconds: as long as a call waits for earlier ones.
const RETRY_AFTER_SECONDS: u64 = 5;

/// Code of a refusal, in the extensions of its response.
#[derive(Clone, Copy)]
pub(crate) struct Refused(pub(crate) Code);

/// An error response. Its correlation id is that of the request.
#[derive(Debug)]
pub struct ApiProblem {
    error: CommandError,
    /// Seconds to wait before a retry.
    retry_after: Option<u64>,
}

impl ApiProblem {
    /// Creates an error with a detail of one sentence.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        CommandError::new(code, detail).into()
    }

    /// Returns the same error with a next action.
    #[must_use]
    pub fn then(self, next: impl Into<String>) -> Self {
        Self { error: self.error.then(next), ..self }
    }

    /// Returns whether it says that an object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.error.code() == Code::NotFound
    }

    /// Returns the underlying error.
    #[cfg(test)]
    pub(crate) fn cause(&self) -> &CommandError {
        &self.error
    }

    /// Returns the same error with the seconds to wait before a retry.
    #[must_use]
    pub(crate) fn after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Returns the same error with the field at fault.
    #[must_use]
    pub fn about(self, field: impl Into<String>) -> Self {
        Self { error: self.error.about(field), ..self }
    }
}

impl From<CommandError> for ApiProblem {
    fn from(error: CommandError) -> Self {
        Self { error, retry_after: None }
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        CommandError::from(error).into()
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let code = self.error.code();
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let problem = Problem {
            kind: error_pages::path(code.as_str()),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_string(),
            detail: shown(&self.error.to_string()),
            field: self.error.field().as_deref().map(shown),
            next: self.error.next().as_deref().or(default_next(code)).map(shown),
            correlation_id: correlation::current(),
            errors: self.error.reasons().iter().map(reason).collect(),
        };
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let media_type = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, media_type)], body).into_response();
        response.extensions_mut().insert(Refused(code));
        let wait = self.retry_after.or((status == StatusCode::TOO_MANY_REQUESTS).then_some(RETRY_AFTER_SECONDS));
        if let Some(seconds) = wait {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Returns a text that may contain input from the client, without what a terminal does not show.
fn shown(text: &str) -> String {
    visible(text).into_owned()
}

/// Converts one of several reasons.
pub(crate) fn reason(reason: &gpuaas_model::Reason) -> ProblemReason {
    ProblemReason {
        field: shown(&reason.field),
        code: reason.code.to_string(),
        detail: shown(&reason.detail),
        next: reason.next.as_deref().map(shown),
    }
}

/// Returns the next action for an error that names none.
const fn default_next(code: Code) -> Option<&'static str> {
    match code {
        Code::NotFound => Some("check the name or id"),
        Code::BodyInvalid | Code::FieldInvalid => Some("compare it with the operation's schema: /api/docs"),
        Code::QueryInvalid => Some("compare it with the operation's parameters: /api/docs"),
        Code::StateConflict => Some("check its present state"),
        Code::Forbidden => Some("ask an administrator for another token; gpuaas whoami shows the role of yours"),
        Code::Internal => Some("report it with the correlation id"),
        _ => None,
    }
}

/// Converts the framework's own error responses to problem documents.
pub(crate) async fn to_problem(response: Response) -> Response {
    let status = response.status();
    let is_problem =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    if is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (code, detail) = match status {
        StatusCode::NOT_FOUND => (Code::NotFound, "there is no such route"),
        StatusCode::METHOD_NOT_ALLOWED => (Code::MethodNotAllowed, "this route does not support the method"),
        StatusCode::PAYLOAD_TOO_LARGE => (Code::BodyTooLarge, "the body is too long"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => (Code::MediaTypeUnsupported, "the body is not declared as JSON"),
        status if status.is_client_error() => (Code::QueryInvalid, "the URL of the request is invalid"),
        _ => (Code::Internal, "the control plane failed on this request"),
    };
    ApiProblem::new(code, detail).then("see /api/v1/openapi.json").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn problem_escapes_invisible_characters() {
        let problem = ApiProblem::new(Code::NotFound, "no a\u{1b}[2J").about("b\u{202e}").then("c\u{200b}");
        let body = axum::body::to_bytes(problem.into_response().into_body(), usize::MAX).await.unwrap();
        let problem: Problem = serde_json::from_slice(&body).unwrap();
        let shown = (problem.detail.as_str(), problem.field.as_deref(), problem.next.as_deref());
        assert_eq!(shown, (r"no a\u{1b}[2J", Some(r"b\u{202e}"), Some(r"c\u{200b}")));
    }

    #[test]
    fn rate_limit_refusals_have_retry_after() {
        let after = |problem: ApiProblem| problem.into_response().headers().get(header::RETRY_AFTER).cloned();
        assert_eq!(after(ApiProblem::new(Code::RateLimited, "too often")).unwrap(), "5");
        assert_eq!(after(ApiProblem::new(Code::RateLimited, "too often").after(9)).unwrap(), "9");
        assert_eq!(after(ApiProblem::new(Code::NotFound, "none")), None);
    }
}
