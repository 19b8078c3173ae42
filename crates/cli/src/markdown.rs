//! Turns the Markdown of the error pages into text for a terminal: its marks are removed and its tables aligned.

use crate::{table::aligned, text::Text};

/// Formats a page. It has paragraphs, headings, emphasis, code, links and tables.
pub(crate) fn rendered(page: &str) -> Text {
    let mut text = Text::default();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in page.trim_end().lines() {
        match line.strip_prefix('|') {
            Some(row) if row.trim_start().starts_with("---") => {}
            Some(row) => rows.push(row.trim_end_matches('|').split('|').map(|cell| plain(cell.trim())).collect()),
            None => {
                push_table(&mut text, &mut rows);
                text.push_str(&format!("{}\n", plain(line.trim_start_matches("# "))));
            }
        }
    }
    push_table(&mut text, &mut rows);
    text
}

fn push_table(text: &mut Text, rows: &mut Vec<Vec<String>>) {
    if !rows.is_empty() {
        text.push(&aligned(&std::mem::take(rows)));
        text.push_str("\n");
    }
}

/// Removes the marks of emphasis and code, and the addresses of links.
fn plain(line: &str) -> String {
    let line = line.replace("**", "").replace('`', "");
    let mut rest = line.as_str();
    let mut text = String::new();
    while let Some((before, label, after)) = link(rest) {
        text.push_str(before);
        text.push_str(label);
        rest = after;
    }
    text + rest
}

/// Returns what is before the first link of a text, its label, and what is after it.
fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (label, address) = text.split_once("](")?;
    let (before, label) = label.rsplit_once('[')?;
    let (_, after) = address.split_once(')')?;
    Some((before, label, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_text_without_marks_and_with_aligned_tables() {
        let page = "# not_found\n\n**What happened.** See `gpuaas` and [roles](../roles.md), [a](b).\n\n| code | what |\n| --- | --- |\n\
                    | [key_reused](key_reused.md) | `x` |\n";
        insta::assert_snapshot!(rendered(page).as_str(), @r"
        not_found

        What happened. See gpuaas and roles, a.

        code        what
        key_reused  x
        ");
    }
}
