//! Checks that every threat in `docs/security.md` has a number of its own, and names existing tests or states that it has none yet.

use std::collections::BTreeSet;

use crate::shell;

/// The document with the threats.
const DOCUMENT: &str = "docs/security.md";
/// Header of the last column in a table of threats.
const COLUMN: &str = "Tests";
/// Text in that column for a threat without tests.
const NONE_YET: &str = "no test yet";
/// Folders whose functions become tests by a macro and have no attribute.
const LISTED: &[&str] = &["crates/store-contract/tests/contract/", "crates/host-contract/src/"];

/// Lists every name without a test, every threat without a name, and every number of two threats.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let mut tests = BTreeSet::new();
    for file in shell::files()?.into_iter().filter(|file| file.ends_with(".rs")) {
        let text = std::fs::read_to_string(shell::root().join(&file))?;
        tests.extend(tests_of(&file, &text).map(str::to_owned));
    }
    Ok(untested(&std::fs::read_to_string(shell::root().join(DOCUMENT))?, &tests))
}

/// Names of the tests in a source file.
fn tests_of<'a>(file: &str, text: &'a str) -> impl Iterator<Item = &'a str> {
    let is_listed = LISTED.iter().any(|folder| file.starts_with(folder));
    let mut is_marked = false;
    text.lines().map(str::trim_start).filter_map(move |line| {
        is_marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let name = function(line)?;
        (std::mem::take(&mut is_marked) || is_listed).then_some(name)
    })
}

/// Name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_declared = before.split_whitespace().all(|word| word == "async" || word.starts_with("pub"));
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_declared && end > 0).then(|| &after[..end])
}

fn untested(document: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let (mut findings, mut threats, mut is_table) = (Vec::new(), BTreeSet::new(), false);
    for (line, number) in document.lines().zip(1..) {
        let Some((_, last)) = line.strip_suffix(" |").and_then(|row| row.rsplit_once("| ")) else {
            is_table = false;
            continue;
        };
        if !is_table || last.starts_with("---") {
            is_table |= last == COLUMN;
            continue;
        }
        let id = line.split('|').nth(1).unwrap_or_default().trim();
        if !threats.insert(id) {
            findings.push(format!("security: {DOCUMENT}:{number} has the number {id} of an earlier threat"));
        }
        // Every second piece is between two backticks.
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if names.is_empty() && last != NONE_YET {
            findings.push(format!("security: {DOCUMENT}:{number} names no test and does not state {NONE_YET:?}"));
        }
        let unknown = names.into_iter().filter(|name| !tests.contains(*name));
        findings.extend(unknown.map(|name| format!("security: {DOCUMENT}:{number} names {name}, which is not a test")));
    }
    if threats.is_empty() {
        findings.push(format!("security: {DOCUMENT} has no table whose last column is {COLUMN}"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| # | threat | Tests |\n| --- | --- | --- |\n";

    #[test]
    fn threats_of_this_workspace_name_tests_that_exist() {
        assert_eq!(check().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn renamed_test_empty_cell_repeated_number_and_missing_table_are_found() {
        let tests = BTreeSet::from(["kept".to_owned(), "also_kept".to_owned()]);
        let valid =
            format!("{HEAD}| 1 | a | api: `kept`; cli: `also_kept` |\n| 2 | b | no test yet |\n\n| x | `y` |\n");
        assert_eq!(untested(&valid, &tests), Vec::<String>::new());
        let broken = format!("{HEAD}| 1 | `kept` | `kept`, `renamed` |\n| 2 | b | later |\n");
        assert_eq!(
            untested(&broken, &tests),
            [
                "security: docs/security.md:3 names renamed, which is not a test",
                "security: docs/security.md:4 names no test and does not state \"no test yet\"",
            ]
        );
        assert_eq!(untested("no table\n", &tests).len(), 1);
        let twice = format!("{HEAD}| 1 | a | `kept` |\n| 1 | b | `kept` |\n");
        assert_eq!(untested(&twice, &tests), ["security: docs/security.md:4 has the number 1 of an earlier threat"]);
    }

    #[test]
    fn functions_are_tests_by_their_attribute_or_by_their_folder() {
        let text = "#[tokio::test(flavor = \"multi_thread\")]\n#[allow(x)]\nasync fn one() {\n}\nfn helper() {}\n\
                    // #[test]\n// fn noted() {}\n    #[test]\n    fn two() {}\npub(crate) async fn three(world: World) {}\n";
        assert_eq!(tests_of("crates/api/src/a.rs", text).collect::<Vec<_>>(), ["one", "two"]);
        let listed = tests_of("crates/store-contract/tests/contract/a.rs", text).collect::<Vec<_>>();
        assert_eq!(listed, ["one", "helper", "two", "three"]);
    }
}
