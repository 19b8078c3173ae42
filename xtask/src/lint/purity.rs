//! Time, randomness and spawning reach planner and engine through ports only, or no simulation would ever replay; and texts of the
//! workshop stay out of the project.

use crate::shell;

/// Crates whose every repeatable run must be repeatable.
const PURE: &[&str] =
    &["crates/model/", "crates/wire/", "crates/planner/", "crates/app-rke2/", "crates/engine/", "crates/trust/"];
/// What they must not name.
const UNREPEATABLE: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Utc::now",
    "tokio::spawn",
    "spawn_blocking",
    "tokio::time",
    "thread::spawn",
    "thread::sleep",
    "rand::",
    "getrandom::",
    "Uuid::now_v7",
    "Uuid::new_v4",
    "thread_rng",
];

/// Every line that breaks the rule.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in shell::files()? {
        if file.ends_with(".rs") && PURE.iter().any(|pure| file.starts_with(pure)) && !file.contains("/tests/") {
            findings.extend(impurities(&file, &std::fs::read_to_string(shell::root().join(&file))?));
        }
    }
    Ok(findings)
}

fn impurities(file: &str, text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut findings = Vec::new();
    for (line, number) in product.lines().zip(1..) {
        let code = line.split("//").next().unwrap_or_default();
        if let Some(word) = UNREPEATABLE.iter().find(|word| code.contains(**word)) {
            findings.push(format!("purity: {file}:{number} names {word}; take it through a port"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_in_product_code_is_found_and_one_in_a_comment_or_test_is_not() {
        let text = "fn f() { let now = Instant::now(); }\n// Instant::now\n#[cfg(test)]\nmod tests { fn g() { Instant::now(); } }";
        assert_eq!(impurities("a.rs", text), ["purity: a.rs:1 names Instant::now; take it through a port"]);
    }
}
