//! Comments and documents use no word that leaves the actor or the act unnamed.

use regex::Regex;

use crate::shell;

/// Words with what to write instead.
const WORDS: [(&str, &str); 9] = [
    ("whoever", "name the actor"),
    ("whomever", "name the actor"),
    ("told", "name the act: reported, sent, shown"),
    ("nobody's", "name the owner or say that there is none"),
    ("somebody's", "name the owner"),
    ("in vain", "say that it fails, and how"),
    ("asked after", "name the request"),
    ("of before", "say earlier, or name the version"),
    ("is said", "name the actor and the act"),
];

/// Every use of one of these words in a comment of Rust, or in a Markdown file.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    let pattern = Regex::new(&format!(r"(?i)\b({})\b", words.join("|"))).expect("it is a pattern");
    let mut findings = Vec::new();
    for file in shell::files()? {
        let is_rust = file.ends_with(".rs");
        if !is_rust && !file.ends_with(".md") {
            continue;
        }
        let text = std::fs::read_to_string(shell::root().join(&file))?;
        for (number, line) in (1..).zip(text.lines()) {
            let prose = if is_rust { comment(line) } else { line };
            findings.extend(pattern.find(prose).map(|word| finding(&file, number, word.as_str())));
        }
    }
    Ok(findings)
}

/// The comment at the end of a line; empty without one. A line of a string that looks like a comment is taken for one.
fn comment(line: &str) -> &str {
    let begin = line.match_indices("//").map(|(begin, _)| begin).find(|begin| !line[..*begin].ends_with(':'));
    begin.map_or("", |begin| &line[begin..])
}

fn finding(file: &str, number: usize, word: &str) -> String {
    let advice = WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map_or("", |(_, advice)| advice);
    format!("words: {file}:{number} has \"{word}\": {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_is_what_follows_two_slashes_that_belong_to_no_address() {
        assert_eq!(comment("let told = 1; // why"), "// why");
        assert_eq!(comment("let url = \"https://told\";"), "");
        assert_eq!(comment("    /// Doc."), "/// Doc.");
    }

    #[test]
    fn finding_names_place_word_and_advice() {
        assert_eq!(finding("a.rs", 3, "Whoever"), "words: a.rs:3 has \"Whoever\": name the actor");
    }
}
