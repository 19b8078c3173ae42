//! Takes out of a text whatever looks like a secret.
//!
//! What the API answers holds none. This is for what should not have happened, and for files that are added by hand.

use std::sync::LazyLock;

use regex::{Captures, Regex, RegexBuilder};

/// What stands in a secret's place; how it was recognised follows the colon.
const REDACTED: &str = "[redacted: ";

struct Rule {
    name: &'static str,
    pattern: Regex,
}

/// In this order: what is recognised by its own form before what is recognised by the name beside it.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let rule = |name, pattern: &str| Rule {
        name,
        pattern: RegexBuilder::new(pattern).dot_matches_new_line(true).build().expect("a pattern of this file"),
    };
    vec![
        rule("private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)"),
        rule("API token", r"gpuaas_[A-Za-z0-9_-]{16,}"),
        rule("enrollment string", r"gpuaas1\.[A-Za-z0-9._-]{16,}"),
        rule("cluster token", r"K10[0-9a-f]{32,}(::[^\s\x22,]+)?"),
        rule("bearer token", r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"),
        rule("bearer token", r"(?i)bearer [A-Za-z0-9._~+/=-]{8,}"),
        rule("password", r"(?<before>://[^/\s:@\x22]*:)[^@/\s\x22]+(?<after>@)"),
        rule(
            "field",
            r#"(?i)(?<before>["']?[a-z0-9_-]*(password|passwd|secret|token|private[_-]?key|key[_-]data|sealing[_-]key|kubeconfig|authorization)["']?\s*[:=]\s*["']?)[^\s"',}\[]{6,}"#,
        ),
    ]
});

/// The text without secrets.
pub(super) fn redacted(text: &str) -> String {
    RULES.iter().fold(text.to_owned(), |text, rule| {
        let said = |found: &Captures<'_>| {
            let group = |name| found.name(name).map_or("", |group| group.as_str());
            format!("{}{REDACTED}{}]{}", group("before"), rule.name, group("after"))
        };
        rule.pattern.replace_all(&text, said).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_by_their_form_and_by_the_name_beside_them() {
        for (text, shown) in [
            ("a gpuaas_MttCUsJZkmYdyJJVwOAGEh2hgYWvd35T b", "a [redacted: API token] b"),
            ("string gpuaas1.eyJ1cmwiOiJodHRwczovL2Nw.12ab34cd", "string [redacted: enrollment string]"),
            ("K10a1b2c3d4e5f60718293a4b5c6d7e8f90a::server:s3cret x", "[redacted: cluster token] x"),
            ("postgres://gpuaas:hunter22@db/x", "postgres://gpuaas:[redacted: password]@db/x"),
            ("Authorization: Bearer abcdefghij", "Authorization: [redacted: bearer token]"),
            ("{\"client_token\":\"abcdefgh\",\"n\":1}", "{\"client_token\":\"[redacted: field]\",\"n\":1}"),
            ("client-key-data: LS0tLS1CRUdJTg==", "client-key-data: [redacted: field]"),
            (
                "-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nrest",
                "[redacted: private key]\nrest",
            ),
            ("cut -----BEGIN PRIVATE KEY-----\nMHc", "cut [redacted: private key]"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "{\"kind\":\"token.created\",\"subject_id\":\"0198c0de-0000-7000-8000-000000000000\"}",
            "task.dispatch key=ed25519-d85456dc5a2c08d2 envelope=sha256:d3ea6d32919114161040fde50062cdf5",
            "https://127.0.0.1:7443/api/v1/nodes",
        ] {
            assert_eq!(redacted(text), text);
        }
    }
}
