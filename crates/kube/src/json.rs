//! Parses JSON of a machine that belongs to a tenant, into types that have only the needed fields.
//!
//! An answer has at most [`crate::limits::NODES_BYTES_MAX`] and needs at most a few times as much memory: fields that no type names are
//! skipped, lists end at their limit, and nesting at serde_json's limit of 128. The worst answer takes less than two milliseconds (measured
//! by the test below), so it is parsed on the task that reads it.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor},
};

use crate::{error::KubeError, text::bounded};

/// Parses a value. The error has the position and the expected type, and at most a short quotation.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, KubeError> {
    serde_json::from_slice(bytes).map_err(|error| KubeError::Unreadable(bounded(&error.to_string())))
}

/// A list of at most `MAX` entries; a longer one is refused at its first excess entry. `null` is an empty list, as Go writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtMost<T, const MAX: usize>(pub(crate) Vec<T>);

impl<T, const MAX: usize> Default for AtMost<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(List(PhantomData))
    }
}

struct List<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
    type Value = AtMost<T, MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {MAX} entries")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(AtMost::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::custom(format!("a list has more than {MAX} entries")));
            }
            list.push(entry);
        }
        Ok(AtMost(list))
    }
}

/// Texts by key, at most `MAX`, each cut by [`bounded`]; a larger map is refused at its first excess entry. `null` is an empty map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextsAtMost<const MAX: usize>(pub(crate) BTreeMap<String, String>);

impl<'de, const MAX: usize> Deserialize<'de> for TextsAtMost<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Texts)
    }
}

struct Texts<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for Texts<MAX> {
    type Value = TextsAtMost<MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a map of at most {MAX} texts")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(TextsAtMost::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry::<String, String>()? {
            map.insert(bounded(&key), bounded(&value));
            if map.len() > MAX {
                return Err(A::Error::custom(format!("a map has more than {MAX} entries")));
            }
        }
        Ok(TextsAtMost(map))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{
        limits::{NODES_BYTES_MAX, NODES_PER_PAGE},
        list::Page,
        node::Node,
    };

    #[test]
    fn a_list_is_read_up_to_its_limit_and_null_is_an_empty_one() {
        let read = |text: &str| read::<AtMost<u8, 2>>(text.as_bytes()).map(|list| list.0);
        assert_eq!(read("[1,2]").unwrap(), [1, 2]);
        assert!(read("null").unwrap().is_empty());
        for bad in ["[1,2,3]", "{}", "\"12\"", "[\"x\"]"] {
            assert!(matches!(read(bad), Err(KubeError::Unreadable(_))), "{bad}");
        }
    }

    #[test]
    fn list_is_refused_at_its_first_excess_entry() {
        let endless = format!("[1,2,3{}", ",0".repeat(1_000));
        let error = read::<AtMost<u8, 2>>(endless.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("more than 2 entries"), "{error}");
    }

    #[test]
    fn a_map_is_read_up_to_its_limit_and_its_texts_are_cut() {
        let read = |text: &str| read::<TextsAtMost<2>>(text.as_bytes()).map(|map| map.0);
        assert_eq!(read(r#"{"a":"1","b":"x\ny"}"#).unwrap()["b"], "x y");
        assert!(read("null").unwrap().is_empty());
        assert!(read(&format!(r#"{{"a":"{}"}}"#, "x".repeat(10_000))).unwrap()["a"].len() < 500);
        for bad in [r#"{"a":"1","b":"2","c":"3"}"#, "[]", r#"{"a":1}"#] {
            assert!(matches!(read(bad), Err(KubeError::Unreadable(_))), "{bad}");
        }
    }

    #[test]
    fn worst_case_response_is_parsed_quickly() {
        let filled = |head: &str, item: &str| {
            let mut text = head.to_owned();
            while text.len() + item.len() <= NODES_BYTES_MAX {
                text.push_str(item);
            }
            text
        };
        for (what, text) in [
            ("nested lists", filled(r#"{"a":"#, "[")),
            ("nested objects", filled("", r#"{"a":"#)),
            ("nested lists as items", filled(r#"{"items":"#, "[")),
            ("digits", filled(r#"{"a":1"#, "1")),
            ("escapes", filled(r#"{"metadata":{"continue":""#, r"\u00e9")),
            ("keys", filled(r#"{"a":1"#, r#","a":1"#)),
            ("empty objects", filled(r#"{"metadata":{"managedFields":[{}"#, ",{}")),
        ] {
            let began = Instant::now();
            assert!(read::<Page<Node, NODES_PER_PAGE>>(text.as_bytes()).is_err(), "{what}: the text is incomplete");
            let took = began.elapsed();
            println!("    json: {} KiB of {what}: {} µs", text.len() / 1_024, took.as_micros());
            assert!(took < Duration::from_millis(250), "{what}: {took:?}");
        }
    }
}
