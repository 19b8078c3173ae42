//! Which part of a list is asked for.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use gpuaas_model::Code;
use gpuaas_store::Page;
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::IntoParams;

use crate::{problem::ApiProblem, state::ApiState};

/// Query parameters, refused with a sentence.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<ApiState> for Params<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiProblem> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(value)| Self(value)).map_err(|error| ApiProblem::new(Code::QueryInvalid, error.body_text()))
    }
}

/// Which part of a list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParams {
    /// `next_cursor` of the page before.
    pub(crate) cursor: Option<String>,
    /// At most so many, up to 1,000.
    pub(crate) limit: Option<u32>,
}

impl PageParams {
    pub(crate) fn page(&self) -> Page {
        Page { after: self.cursor.clone(), limit: self.limit }
    }

    /// Where the next page begins, if this one is full.
    pub(crate) fn next_cursor<T>(&self, items: &[T], id: impl Fn(&T) -> String) -> Option<String> {
        let limit = self.limit.unwrap_or(Page::LIMIT_MAX).clamp(1, Page::LIMIT_MAX);
        let full = u32::try_from(items.len()).is_ok_and(|length| length >= limit);
        items.last().filter(|_| full).map(id)
    }
}
