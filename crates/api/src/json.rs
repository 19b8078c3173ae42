//! Parses JSON from clients. Duplicate keys are refused at every depth, because some parsers use the first value and others the last.
//! `serde_json` limits nesting to 128.

use std::{borrow::Cow, collections::HashSet, fmt};

use gpuaas_model::{Code, cut};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor},
};

use serde_path_to_error::{Path, Segment};

use crate::problem::ApiProblem;

/// Next action for a body that does not match the operation's schema.
const COMPARE: &str = "compare it with the operation's schema: /api/docs";

/// Parses an object, or returns a refusal that names the field at fault.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiProblem> {
    // serde would read a list as an object's fields in declaration order, which is no part of the API.
    if bytes.trim_ascii_start().first().is_some_and(|first| b"[\"-0123456789tfn".contains(first)) {
        return Err(ApiProblem::new(Code::BodyInvalid, "the body is not a JSON object").then(COMPARE));
    }
    parsed::<UniqueKeys>(bytes)?;
    parsed(bytes)
}

/// Accepts an empty body or an object without fields.
pub(crate) fn check_empty(bytes: &[u8]) -> Result<(), ApiProblem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Empty {}

    if bytes.is_empty() {
        return Ok(());
    }
    read::<Empty>(bytes).map(|_| ())
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiProblem> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = field(error.path());
        let refused = refused(error.into_inner());
        match field {
            Some(field) => refused.about(bounded(&field)),
            None => refused,
        }
    })?;
    reader.end().map_err(refused)?;
    Ok(value)
}

/// Returns the field at a path; `None` for the body as a whole and for a position after the end of the text.
fn field(path: &Path) -> Option<String> {
    let is_known = |segment: &Segment| !matches!(segment, Segment::Unknown);
    (path.iter().next().is_some() && path.iter().all(is_known)).then(|| path.to_string())
}

fn refused(error: serde_json::Error) -> ApiProblem {
    ApiProblem::new(Code::BodyInvalid, format!("the body cannot be read: {}", bounded(&error.to_string())))
        .then(COMPARE)
}

/// Truncates text from a client to 256 bytes before it is returned to it.
pub(crate) fn bounded(text: &str) -> Cow<'_, str> {
    cut(text, 256)
}

/// Any JSON value in which no object repeats a key.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueKeys, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<UniqueKeys>()?;
            if let Some(repeated) = keys.replace(key) {
                return Err(A::Error::custom(format_args!("duplicate field `{repeated}`")));
            }
        }
        Ok(UniqueKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueKeys, A::Error> {
        while items.next_element::<UniqueKeys>()?.is_some() {}
        Ok(UniqueKeys)
    }

    fn visit_unit<E: Error>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Coded;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        #[serde(rename = "name")]
        _name: String,
        #[serde(default, rename = "inner")]
        _inner: Value,
    }

    fn refusal(text: &str) -> (Option<String>, String) {
        let error = read::<Example>(text.as_bytes()).expect_err(text);
        let error = error.cause();
        assert_eq!(error.code(), Code::BodyInvalid);
        (error.field(), error.to_string())
    }

    #[test]
    fn duplicate_key_is_refused_at_any_depth() {
        for text in [r#"{"name":"a","name":"b"}"#, r#"{"name":"a","inner":[{"x":1,"y":2,"x":1}]}"#] {
            assert!(refusal(text).1.contains("duplicate field"), "{text}");
        }
        assert!(read::<Example>(br#"{"name":"a","inner":[{"x":1},{"x":1}]}"#).is_ok());
    }

    #[test]
    fn body_that_is_no_object_is_refused() {
        for text in [r#"["a", 1]"#, " [\"a\", 1]", "null", "7", "\"a\""] {
            assert!(refusal(text).1.contains("not a JSON object"), "{text}");
        }
    }

    #[test]
    fn refusal_names_the_field_at_fault() {
        assert_eq!(refusal(r#"{"name":7}"#).0.as_deref(), Some("name"));
        assert_eq!(refusal(r#"{"name":"a","id":"b"}"#).0.as_deref(), Some("id"));
        for text in ["[]", "{", "{\"name\"", "{7}"] {
            assert_eq!(refusal(text).0, None, "{text}");
        }
        assert!(refusal(&format!(r#"{{"{}":1}}"#, "a".repeat(10_000))).0.is_some_and(|field| field.len() == 256));
    }

    #[test]
    fn deep_nesting_is_refused_without_a_crash() {
        let deep = "[".repeat(10_000);
        assert!(refusal(&format!(r#"{{"name":"a","inner":{deep}"#)).1.contains("recursion limit"));
        assert!(read::<Value>(json!({ "a": [[[[]]]] }).to_string().as_bytes()).is_ok());
    }

    #[test]
    fn check_empty_accepts_no_body_or_an_empty_object() {
        assert!(check_empty(b"").is_ok() && check_empty(b" {} ").is_ok());
        for text in ["null", "[]", "{", r#"{"state":"active"}"#, "{}{}"] {
            assert!(check_empty(text.as_bytes()).is_err(), "{text}");
        }
    }
}
