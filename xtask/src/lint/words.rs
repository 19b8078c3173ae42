//! No file uses a word that leaves the actor or the action unnamed: not in code, texts, comments, scripts or documents.

use regex::Regex;

use crate::shell;

/// Words with what to write instead.
const WORDS: [(&str, &str); 12] = [
    ("whoever", "name the actor"),
    ("whomever", "name the actor"),
    ("told", "name the act: reported, sent, shown"),
    ("nobody's", "name the owner or say that there is none"),
    ("somebody's", "name the owner"),
    ("in vain", "say that it fails, and how"),
    ("asked after", "name the request"),
    ("of before", "say earlier, or name the version"),
    ("is said", "name the actor and the act"),
    ("goes on", "say what continues"),
    ("go on", "say what continues"),
    ("begins anew", "say what is started or loaded again"),
];

/// Extensions of the files that are read.
const EXTENSIONS: [&str; 13] =
    ["rs", "md", "sh", "toml", "service", "sql", "js", "mjs", "ts", "svelte", "html", "css", "json"];

/// This file, which lists the words, and SQL of released schemas, which never changes.
const EXEMPT: [&str; 3] =
    ["xtask/src/lint/words.rs", "crates/store/migrations/", "crates/store-contract/tests/versions/"];

/// Finds every use of one of these words.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    let pattern = Regex::new(&format!(r"(?i)\b({})\b", words.join("|"))).expect("a valid pattern");
    let mut findings = Vec::new();
    for file in shell::files()? {
        let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
        if !EXTENSIONS.contains(&extension) || EXEMPT.iter().any(|exempt| file.starts_with(exempt)) {
            continue;
        }
        let text = std::fs::read_to_string(shell::root().join(&file))?;
        for (number, line) in (1..).zip(text.lines()) {
            findings.extend(pattern.find(line).map(|word| finding(&file, number, word.as_str())));
        }
    }
    Ok(findings)
}

fn finding(file: &str, number: usize, word: &str) -> String {
    let advice = WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map_or("", |(_, advice)| advice);
    format!("words: {file}:{number} has \"{word}\": {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_names_place_word_and_advice() {
        assert_eq!(finding("a.rs", 3, "Whoever"), "words: a.rs:3 has \"Whoever\": name the actor");
    }
}
