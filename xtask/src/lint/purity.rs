//! Planner and engine access time, randomness and spawning only through ports, and their `select!` blocks are `biased`; otherwise
//! simulations could not be replayed.

use crate::shell;

/// Crates whose behaviour must be deterministic.
const PURE: &[&str] = &["crates/model/", "crates/wire/", "crates/planner/", "crates/engine/", "crates/trust/"];
/// Those of an app, in the app's folder.
const PURE_OF_APP: [&str; 2] = ["app", "tasks"];
/// Names that they must not use.
const NONDETERMINISTIC: &[&str] = &[
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

/// Code that simulations run, or whose result would depend on chance: its `select!` blocks must poll their branches in order.
const SIMULATED: &[&str] = &[
    "crates/engine/",
    "crates/agent/src/runner.rs",
    "crates/agent/src/ledger",
    "crates/channel/src/reports.rs",
    "apps/rke2/handlers/src/start.rs",
];

/// Lists every line that breaks a rule.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in shell::files()? {
        let is_test = ["/tests/", "/tests.rs", "/benches/"].iter().any(|part| file.contains(part));
        let is_product = file.ends_with(".rs") && !is_test;
        let is_of = |places: &[&str]| is_product && places.iter().any(|place| file.starts_with(place));
        if is_product && is_pure(&file) {
            findings.extend(impurities(&file, &std::fs::read_to_string(shell::root().join(&file))?));
        }
        if is_of(SIMULATED) {
            findings.extend(unbiased_selects(&file, &std::fs::read_to_string(shell::root().join(&file))?));
        }
    }
    Ok(findings)
}

/// Returns true for a file of a pure crate, an app's ones included.
fn is_pure(file: &str) -> bool {
    let mut parts = file.split('/');
    PURE.iter().any(|place| file.starts_with(place))
        || parts.next() == Some("apps") && parts.nth(1).is_some_and(|part| PURE_OF_APP.contains(&part))
}

/// Finds every `select!` that does not begin with `biased`.
fn unbiased_selects(file: &str, text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: Vec<&str> = product.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut findings = Vec::new();
    for (at, line) in code.iter().enumerate() {
        let Some((_, after)) = line.split_once("select!") else { continue };
        let mut lines = std::iter::once(after).chain(code[at + 1..].iter().copied());
        let first =
            lines.find_map(|line| line.split(|c: char| c == '{' || c.is_whitespace()).find(|word| !word.is_empty()));
        if first != Some("biased;") {
            findings.push(format!("purity: {file}:{} has an unbiased select!; begin it with `biased;`", at + 1));
        }
    }
    findings
}

fn impurities(file: &str, text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut findings = Vec::new();
    for (line, number) in product.lines().zip(1..) {
        let code = line.split("//").next().unwrap_or_default();
        if let Some(word) = NONDETERMINISTIC.iter().find(|word| code.contains(**word)) {
            findings.push(format!("purity: {file}:{number} uses {word}; access it through a port"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planning_and_tasks_of_every_app_are_pure() {
        for (file, is_pure) in [
            ("apps/rke2/app/src/plan.rs", true),
            ("apps/rke2/tasks/src/lib.rs", true),
            ("apps/rke2/effects/src/call.rs", false),
            ("apps/rke2/handlers/src/start.rs", false),
            ("crates/app/src/lib.rs", false),
            ("crates/planner/src/diff.rs", true),
        ] {
            assert_eq!(super::is_pure(file), is_pure, "is {file} checked as pure?");
        }
    }

    #[test]
    fn unbiased_select_is_found() {
        let biased = "tokio::select! {\n    // In this order.\n    biased;\n    () = a => {}\n}\n";
        let coin = "tokio::select! {\n    () = biased() => {}\n}\n// select! {\n#[cfg(test)]\ntokio::select! { x }";
        assert_eq!(unbiased_selects("a.rs", biased), Vec::<String>::new());
        let found = "purity: a.rs:6 has an unbiased select!; begin it with `biased;`";
        assert_eq!(unbiased_selects("a.rs", &format!("{biased}{coin}")), [found]);
    }

    #[test]
    fn a_clock_in_product_code_is_found_and_one_in_a_comment_or_test_is_not() {
        let text = "fn f() { let now = Instant::now(); }\n// Instant::now\n#[cfg(test)]\nmod tests { fn g() { Instant::now(); } }";
        assert_eq!(impurities("a.rs", text), ["purity: a.rs:1 uses Instant::now; access it through a port"]);
    }
}
