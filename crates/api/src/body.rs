//! JSON bodies, refused with the field that is wrong.

use axum::{
    Json,
    extract::{FromRequest, Request, rejection::JsonRejection},
};
use gpuaas_model::Code;
use serde::de::DeserializeOwned;

use crate::{problem::ApiProblem, state::ApiState};

/// Longest body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 1_024 * 1_024;

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<ApiState> for Body<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiProblem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            Err(JsonRejection::MissingJsonContentType(_)) => {
                Err(ApiProblem::new(Code::MediaTypeUnsupported, "the body is not declared as JSON")
                    .then("send it with `Content-Type: application/json`"))
            }
            Err(JsonRejection::BytesRejection(_)) => {
                let detail = format!("the body is longer than {BODY_BYTES_MAX} bytes, or broke off");
                Err(ApiProblem::new(Code::BodyTooLarge, detail))
            }
            Err(error) => Err(ApiProblem::new(Code::BodyInvalid, error.body_text())
                .then("compare it with the operation's schema: /api/docs")),
        }
    }
}
