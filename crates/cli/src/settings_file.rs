//! Reads the control plane's configuration file and finds every mistake in it, each with its line.

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::suggestions;

/// Settings of a file by argument id.
pub(crate) type Entries = BTreeMap<String, Entry>;

/// A setting in a file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The value as text, as its flag takes it.
    pub(crate) value: String,
    /// Whether the file has the value as a string.
    pub(crate) is_string: bool,
    /// `FILE:LINE`.
    pub(crate) at: String,
}

/// A mistake in a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Mistake {
    /// `FILE:LINE`, a flag or an environment variable.
    pub(crate) at: String,
    /// Key of the setting; absent if the line has none.
    #[serde(rename = "field", skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// What is wrong, in one sentence.
    pub(crate) detail: String,
}

/// Returned when settings are invalid, with all mistakes.
#[derive(Debug, thiserror::Error)]
#[error("{}", match mistakes.len() { 1 => "a setting is invalid".to_owned(), count => format!("{count} settings are invalid") })]
pub(crate) struct InvalidSettings {
    pub(crate) mistakes: Vec<Mistake>,
}

/// Reads a file whose keys are among `known`, argument ids. Returns what is valid, and every mistake.
pub(crate) fn read(path: &Path, known: &[&str]) -> (Entries, Vec<Mistake>) {
    let file = path.display().to_string();
    let mut text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            return (Entries::new(), vec![Mistake { at: file, key: None, detail: format!("cannot be read: {error}") }]);
        }
    };
    let mut mistakes = Vec::new();
    // The parser stops at the first line that is no TOML: that line is removed, and the rest is read again.
    while let Err(error) = DeTable::parse(&text) {
        let offset = error.span().map_or(0, |span| span.start);
        let at = format!("{file}:{}", line(&text, offset));
        mistakes.push(Mistake { at, key: None, detail: error.message().to_owned() });
        let start = text[..offset].rfind('\n').map_or(0, |end| end + 1);
        let end = text[start..].find('\n').map_or(text.len(), |length| start + length);
        if text[start..end].trim().is_empty() {
            return (Entries::new(), mistakes);
        }
        text.replace_range(start..end, &" ".repeat(end - start));
    }
    let mut entries = Entries::new();
    let table = DeTable::parse(&text).map(Spanned::into_inner).unwrap_or_default();
    for (key, value) in table {
        let at = format!("{file}:{}", line(&text, key.span().start));
        let id = key.get_ref().replace('-', "_");
        match checked(key.get_ref(), value, known) {
            Ok((value, is_string)) => _ = entries.insert(id, Entry { value, is_string, at }),
            Err(detail) => mistakes.push(Mistake { at, key: Some(key.get_ref().to_string()), detail }),
        }
    }
    (entries, mistakes)
}

/// Returns the number of the line at an offset.
fn line(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Returns the value of a known setting as text, and whether it is a string.
fn checked(key: &str, value: Spanned<DeValue<'_>>, known: &[&str]) -> Result<(String, bool), String> {
    if !known.contains(&&*key.replace('-', "_")) {
        let keys: Vec<String> = known.iter().map(|id| id.replace('_', "-")).collect();
        let meant = match suggestions::nearest(key, keys.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("use one of {}", keys.join(", ")),
        };
        return Err(format!("{key} is not a setting; {meant}"));
    }
    match value.into_inner() {
        DeValue::String(text) => Ok((text.into_owned(), true)),
        DeValue::Integer(number) => Ok((number.to_string(), false)),
        DeValue::Boolean(flag) => Ok((flag.to_string(), false)),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err(format!("{key} must be a string with the value of its flag"))
        }
    }
}
