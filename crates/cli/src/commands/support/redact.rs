//! Redacts text that looks like a secret.
//!
//! API responses contain no secrets. This guards against mistakes in them and covers the files that a user adds. Text that may be a secret
//! is redacted; sentences about secrets stay.

mod rules;

use regex::Captures;

use rules::RULES;

/// Start of the replacement text; the name of the matching rule follows.
const REDACTED: &str = "[redacted: ";

/// Returns the text without secrets.
pub(super) fn redacted(text: &str) -> String {
    RULES.iter().fold(text.to_owned(), |text, rule| {
        let replacement = |found: &Captures<'_>| {
            let group = |name| found.name(name).map_or("", |group| group.as_str());
            let secret = found.name("secret").map_or(&found[0], |secret| secret.as_str());
            if secret.contains(REDACTED.trim_end()) || !(rule.is_secret)(secret) {
                return found[0].to_owned();
            }
            format!("{}{REDACTED}{}]{}", group("before"), rule.name, group("after"))
        };
        rule.pattern.replace_all(&text, replacement).into_owned()
    })
}

#[cfg(test)]
mod tests;
