//! Query parameters, pages of lists among them.

use std::borrow::Cow;

use axum::{
    extract::{FromRequestParts, Request},
    http::request::Parts,
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_engine::{Caller, commands::workload};
use gpuaas_model::{Code, Line, Timestamp};
use gpuaas_store::Page;
use gpuaas_trust::is_sha256_hex;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use utoipa::IntoParams;

use crate::{declared::operation_of, json::bounded, problem::ApiProblem, state::ApiState};

/// Query parameters. A refusal names the parameter at fault.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<ApiState> for Params<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiProblem> {
        let pairs = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs)).map(Self).map_err(|error| {
            let field = error.path().to_string();
            let refused = ApiProblem::new(Code::QueryInvalid, bounded(&error.into_inner().to_string()));
            // A dot stands for the query as a whole.
            if field == "." { refused } else { refused.about(bounded(&field)) }
        })
    }
}

/// Refuses parameters that the operation does not declare.
pub(crate) async fn refuse_unknown_parameters(request: Request, next: Next) -> Response {
    let declared = operation_of(&request);
    let mut names = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).map(|(name, _)| name);
    let unknown = declared.and_then(|declared| names.find(|name| !declared.takes(name)));
    let Some(unknown) = unknown.map(Cow::into_owned) else { return next.run(request).await };
    let detail = format!("this operation has no parameter {:?}", bounded(&unknown));
    ApiProblem::new(Code::QueryInvalid, detail).about(bounded(&unknown)).into_response()
}

/// Dry run.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DryRunParams {
    /// Change nothing, and return what the request would return, or the reason against it.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    pub(crate) dry_run: bool,
}

/// Project, and dry run.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectDryRunParams {
    /// Name or id of the project in which a name is looked up. Defaults to the caller's project.
    pub(crate) project: Option<String>,
    /// Change nothing, and return what the request would do, or every reason against it.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    pub(crate) dry_run: bool,
}

/// Project, dry run, and the plan that the caller has seen.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectPlanParams {
    /// Name or id of the project in which a name is looked up. Defaults to the caller's project.
    pub(crate) project: Option<String>,
    /// Change nothing, and return the plan, or every reason against it.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    pub(crate) dry_run: bool,
    /// `digest` of the plan that a dry run returned. If another plan would run, the request is refused and changes nothing.
    #[param(pattern = "^plan-[0-9a-f]{32}$", example = "plan-9f86d081884c7d659a2feaa0c55ad015")]
    plan_digest: Option<String>,
}

impl ProjectPlanParams {
    /// Returns the caller with the plan that it has seen. Refuses a digest that no plan has.
    pub(crate) fn caller(&self, caller: Caller) -> Result<Caller, ApiProblem> {
        expecting(caller, self.plan_digest.as_deref())
    }
}

/// Returns the caller with the plan that it has seen. Refuses a digest that no plan has.
pub(crate) fn expecting(caller: Caller, plan_digest: Option<&str>) -> Result<Caller, ApiProblem> {
    let digest = plan_digest.map(workload::parse_digest).transpose()?;
    Ok(caller.expecting(digest))
}

/// Selects a page of a list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParams {
    /// `next_cursor` of the previous page.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    pub(crate) cursor: Option<String>,
    /// Number of entries per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    pub(crate) limit: Option<u32>,
}

impl PageParams {
    pub(crate) fn page(&self) -> Page {
        Page { after: self.cursor.clone(), limit: self.limit }
    }

    /// Returns the page of a complete list and the cursor of the next page. `id` returns the cursor value of an item.
    pub(crate) fn page_of<T>(&self, items: Vec<T>, id: impl Fn(&T) -> String) -> (Vec<T>, Option<String>) {
        let limit = self.limit.unwrap_or(Page::LIMIT_MAX).clamp(1, Page::LIMIT_MAX) as usize;
        let begin = self.cursor.as_ref().map_or(0, |cursor| {
            let named = items.iter().position(|item| id(item) == *cursor).map(|at| at + 1);
            named.unwrap_or_else(|| items.iter().position(|item| id(item) > *cursor).unwrap_or(items.len()))
        });
        let page: Vec<T> = items.into_iter().skip(begin).take(limit).collect();
        let next_cursor = self.next_cursor(&page, id);
        (page, next_cursor)
    }

    /// Returns the cursor of the next page, if this one is full.
    pub(crate) fn next_cursor<T>(&self, items: &[T], id: impl Fn(&T) -> String) -> Option<String> {
        let limit = self.limit.unwrap_or(Page::LIMIT_MAX).clamp(1, Page::LIMIT_MAX);
        let full = u32::try_from(items.len()).is_ok_and(|length| length >= limit);
        items.last().filter(|_| full).map(id)
    }
}

/// Selects a page of a project's list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectPageParams {
    /// Name or id of the project. Defaults to the caller's project.
    pub(crate) project: Option<String>,
    /// `next_cursor` of the previous page.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
    /// Number of entries per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

impl ProjectPageParams {
    /// Returns the page parameters.
    pub(crate) fn page_params(&self) -> PageParams {
        PageParams { cursor: self.cursor.clone(), limit: self.limit }
    }
}

/// Returns true if the newest entries of a list come first; by default, the oldest do.
pub(crate) fn is_newest_first(order: Option<&str>) -> Result<bool, ApiProblem> {
    match order {
        None | Some("oldest") => Ok(false),
        Some("newest") => Ok(true),
        Some(_) => Err(ApiProblem::new(Code::QueryInvalid, "the order is oldest or newest").about("order")),
    }
}

/// Reads a limit between 1 and [`Page::LIMIT_MAX`].
pub(crate) fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let limit = Option::<u32>::deserialize(deserializer)?;
    match limit {
        Some(out) if !(1..=Page::LIMIT_MAX).contains(&out) => {
            Err(serde::de::Error::custom(format!("a page has 1 to {} items, not {out}", Page::LIMIT_MAX)))
        }
        within => Ok(within),
    }
}

/// Reads a cursor from an earlier page: the id of its last entry.
pub(crate) fn cursor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let cursor = Option::<String>::deserialize(deserializer)?;
    match cursor {
        Some(invalid) if uuid::Uuid::try_parse(&invalid).is_err() => {
            Err(serde::de::Error::custom("the cursor is not a next_cursor of this list"))
        }
        valid => Ok(valid),
    }
}

/// Reads a SHA-256 of 64 lower-case hex digits.
pub(crate) fn digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    if text.as_deref().is_none_or(is_sha256_hex) {
        return Ok(text);
    }
    Err(serde::de::Error::custom("a digest has 64 lower-case hex digits"))
}

/// Reads a search text.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    line(deserializer, Line::SEARCH_TEXT)
}

/// Reads the reason for an action.
pub(crate) fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    line(deserializer, Line::REASON)
}

fn line<'de, D: Deserializer<'de>>(deserializer: D, of: Line) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text {
        Some(text) => of.check(&text).map(|()| Some(text)).map_err(serde::de::Error::custom),
        None => Ok(None),
    }
}

/// Most values of a parameter that takes a list.
pub(crate) const LISTED_MAX: usize = 64;

/// Reads values that are separated by commas, at most [`LISTED_MAX`].
pub(crate) fn listed<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
    D: Deserializer<'de>,
{
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(Vec::new()) };
    let values: Result<Vec<T>, T::Err> = text.split(',').take(LISTED_MAX + 1).map(str::parse).collect();
    match values {
        Ok(values) if values.len() <= LISTED_MAX => Ok(values),
        Ok(_) => Err(serde::de::Error::custom(format!("at most {LISTED_MAX} values"))),
        Err(error) => Err(serde::de::Error::custom(error)),
    }
}

/// Reads a flag, which may have no value: `?dry_run`, `?dry_run=true`.
pub(crate) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Option::<String>::deserialize(deserializer)?;
    let is_set = |value: &str| is_set(value).ok_or_else(|| format!("{value:?} is neither true nor false"));
    value.as_deref().map_or(Ok(false), is_set).map_err(serde::de::Error::custom)
}

/// Returns the value of a flag; `None` if it is invalid.
fn is_set(value: &str) -> Option<bool> {
    match value {
        "" | "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Returns whether a query sets this flag exactly once.
pub(crate) fn sets(query: &str, flag: &str) -> bool {
    let mut values = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == flag);
    let is_set = values.next().and_then(|(_, value)| is_set(&value));
    is_set == Some(true) && values.next().is_none()
}

/// Returns the time `seconds` before `now`, but not before the Unix epoch.
pub(crate) fn seconds_ago(now: Timestamp, seconds: u64) -> Timestamp {
    let milliseconds = i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(milliseconds).max(0))
}

/// Parses a filter, if it is present.
pub(crate) fn parsed<T: std::str::FromStr<Err = String>>(
    text: Option<&str>,
    field: &str,
) -> Result<Option<T>, ApiProblem> {
    text.map(str::parse).transpose().map_err(|error| ApiProblem::new(Code::QueryInvalid, error).about(field))
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Coded, CorrelationId, Principal, Role, TokenId};

    use super::*;

    #[test]
    fn pages_contain_each_item_once_and_any_id_is_a_position() {
        let items = || ["b", "d", "f", "h", "j"].map(str::to_owned).to_vec();
        let part = |cursor: Option<&str>| {
            let params = PageParams { cursor: cursor.map(str::to_owned), limit: Some(2) };
            params.page_of(items(), Clone::clone)
        };
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let (items, next) = part(cursor.as_deref());
            seen.extend(items);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, items());
        assert_eq!(part(Some("e")).0, ["f", "h"]);
        assert_eq!(part(Some("x")), (Vec::new(), None));
    }

    #[test]
    fn digest_of_a_plan_is_read_and_another_text_is_a_field_at_fault() {
        let caller = || Caller {
            principal: Principal {
                token: TokenId::from_uuid(uuid::Uuid::nil()),
                name: "ada".to_owned(),
                role: Role::ProjectMember,
                project: None,
                service_account: None,
                workload: None,
            },
            correlation: CorrelationId::from_uuid(uuid::Uuid::nil()),
            is_dry_run: false,
            expected_plan: None,
            session: None,
        };
        let of = |digest: Option<&str>| {
            let params = ProjectPlanParams { plan_digest: digest.map(str::to_owned), ..ProjectPlanParams::default() };
            params.caller(caller())
        };
        let digest = format!("plan-{}", "0a".repeat(16));
        let expected = of(Some(&digest)).expect("a digest").expected_plan;
        assert_eq!(expected.map(|digest| digest.to_string()), Some(digest));
        assert_eq!(of(None).expect("none").expected_plan, None);
        let refused = of(Some("plan-1")).map(drop).expect_err("no plan has it");
        assert_eq!(refused.cause().code(), Code::FieldInvalid);
        assert_eq!(refused.cause().field().as_deref(), Some("plan_digest"));
    }
}
