//! Recognizes secrets by their own form, or by the name next to them.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use regex::Regex;

/// A pattern of secrets.
pub(super) struct Rule {
    /// The NAME in the replacement text `[redacted: NAME]`.
    pub(super) name: &'static str,
    /// The groups `before` and `after` are kept; the rest of the match is replaced.
    pub(super) pattern: Regex,
    /// Decides on the group `secret`, or on the whole match without it, whether it is a secret.
    pub(super) is_secret: fn(&str) -> bool,
}

/// Endings of the names of secrets.
const NAMES: &str = "(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|key[_-]data\
                     |sealing[_-]key|credentials?)";
/// Endings of names whose values are secrets even within a sentence.
const PASSWORDS: &str = "(?:password|passwd|passphrase)";
/// Separator between the lines of a key: whitespace, or an escaped line end of JSON.
const BREAK: &str = r"(?:\s|\\+[nr])";
/// The base64 alphabet.
const BASE64: &str = "[A-Za-z0-9+/=]";

/// A text in one case and without digits counts as a secret from this many characters on.
const WORD_MAX: usize = 20;

/// The rules in the order of their application: by form, then by the names in requests, then by other names.
pub(super) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let mut rules = rules_by_form();
    rules.extend(rules_for_requests());
    rules.extend(rules_by_name());
    rules
});

fn rule(name: &'static str, pattern: &str, is_secret: fn(&str) -> bool) -> Rule {
    Rule { name, pattern: Regex::new(pattern).expect("a pattern of this file"), is_secret }
}

fn always(_: &str) -> bool {
    true
}

fn rules_by_form() -> Vec<Rule> {
    let (end, line) = (r"-----END [A-Z ]*PRIVATE KEY-----", format!("{BASE64}{{20,}}"));
    let headers = format!(r"(?:{BREAK}+[A-Z][A-Za-z-]+: [^\n\\]+)*");
    // The key's lines, followed by its end mark or the end of the text. A begin mark within a sentence is no key.
    let key = format!(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----{headers}(?:(?:{BREAK}+{line})+(?:{BREAK}*{BASE64}*{BREAK}*{end}|{BREAK}+{BASE64}+\s*\z)?|{BREAK}*{BASE64}*{BREAK}*{end}|{BREAK}+{BASE64}+\s*\z)"
    );
    vec![
        rule("private key", &key, always),
        rule("private key", &format!(r"(?:{BASE64}+{BREAK}+)+{end}"), always),
        rule("API token", r"\bgpuaas(?:-[a-z]+)?_(?<secret>[A-Za-z0-9_-]{4,})", looks_random),
        rule("enrollment string", r"gpuaas1\.[A-Za-z0-9._-]{4,}", always),
        rule("cluster token", r#"\bK10[0-9a-f]{8,}(?:::[^\s"',\\]+)?"#, always),
        rule("JSON web token", r"\beyJ(?:hbGciOi|0eXAiOi|raWQiOi)[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*){0,2}", always),
    ]
}

fn rules_for_requests() -> Vec<Rule> {
    vec![
        rule(
            "credentials",
            r#"(?i)(?<before>authorization\\*["']?\s*[:=]\s*\\*["']?)(?<secret>(?:[a-z][a-z-]* +)?[A-Za-z0-9._~+/=-]{6,})"#,
            is_credentials,
        ),
        rule("basic credentials", r"(?i)\bbasic +(?<secret>[A-Za-z0-9+/]{4,}={0,2})", is_basic_credentials),
        rule("bearer token", r"(?i)\bbearer +(?<secret>[A-Za-z0-9._~+/=-]{8,})", looks_random),
        rule(
            "password",
            r#"(?<before>[a-z][a-z0-9+.-]*://[^/\s:@"']*:)(?<secret>[^\s"']+)(?<after>@)"#,
            is_no_port_and_path,
        ),
        rule("cookie", r#"(?i)(?<before>\b(?:set-)?cookie\\*["']?:[ \t]*\\*["']?)(?<secret>[^"'\\\n]+)"#, always),
    ]
}

fn rules_by_name() -> Vec<Rule> {
    let key = format!("[A-Za-z0-9_.-]*{NAMES}");
    let field = |pattern: String, is_secret| rule("field", &format!("(?i){pattern}"), is_secret);
    vec![
        // A quoted value in JSON within JSON, with or without its closing quote.
        field(format!(r#"(?<before>{key}\\+"\s*:\s*\\+")(?<secret>[^"\n]*?)(?<after>\\+"|\n|\z)"#), is_present),
        field(
            format!(r#"(?<before>{key}["']?\s*[:=]\s*")(?<secret>(?:[^"\\\n]|\\.)*)(?<after>"|\n|\\?\z)"#),
            is_present,
        ),
        field(format!(r#"(?<before>{key}["']?\s*[:=]\s*')(?<secret>[^'\n]*)(?<after>'|\n|\z)"#), is_present),
        field(format!(r#"(?<before>--?{key}[ \t]+["']?)(?<secret>[^\s"'-][^\s"']{{5,}})"#), is_present),
        field(format!(r#"(?<before>{key}["']?[ \t]*=[ \t]*)(?<secret>[^\s"',;&}}\])]{{4,}})"#), is_present),
        // YAML: the rest of the line.
        field(
            format!(r#"(?m)(?<before>^[ \t>*#-]*["']?{key}["']?:[ \t]+)(?<secret>[^\s"'{{\[|>&!][^\n]*)$"#),
            is_present,
        ),
        // Within a sentence.
        field(format!(r#"(?<before>{PASSWORDS}["']?:[ \t]*)(?<secret>[^\s"',;}}\]]{{6,}})"#), is_present),
        field(format!(r#"(?<before>{key}["']?:[ \t]*)(?<secret>[^\s"',;}}\]]{{6,}})"#), looks_random),
        field(r#"(?<before>kubeconfig["']?\s*[:=]\s*\\*["']?)(?<secret>[A-Za-z0-9+/=]{64,})"#.to_owned(), always),
    ]
}

/// Reports whether a text looks random: it has digits, mixed case, or [`WORD_MAX`] characters and no underscore.
fn looks_random(text: &str) -> bool {
    let has = |of: fn(char) -> bool| text.chars().skip(1).any(of);
    text.chars().any(|c| c.is_ascii_digit())
        || has(|c| c.is_ascii_uppercase()) && has(|c| c.is_ascii_lowercase())
        || (text.len() >= WORD_MAX && !text.contains('_'))
}

/// Reports whether a text has a known HTTP authentication scheme or looks random.
fn is_credentials(text: &str) -> bool {
    let (scheme, rest) = text.split_once(' ').unwrap_or(("", text));
    ["basic", "bearer", "digest"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) || looks_random(rest)
}

/// Reports whether a value is present: not empty, null, a boolean or an empty list or object.
fn is_present(text: &str) -> bool {
    !matches!(text.trim().trim_end_matches(','), "" | "null" | "true" | "false" | "none" | "None" | "[]" | "{}")
}

/// Reports whether a text is a user name and a password in base64.
fn is_basic_credentials(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|pair| pair.contains(&b':') && pair.iter().all(|byte| !byte.is_ascii_control()))
}

/// Reports whether a text cannot be a port and a path. A path may contain an `@`.
fn is_no_port_and_path(text: &str) -> bool {
    let (port, path) = text.split_once('/').unwrap_or((text, ""));
    path.is_empty() || port.is_empty() || port.len() < 4 || !port.bytes().all(|byte| byte.is_ascii_digit())
}
