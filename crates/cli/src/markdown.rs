//! Turns the Markdown of the error pages into text for a terminal: its marks are removed and its tables aligned.

use crate::{
    table::{aligned, width_of, wrapped},
    text::Text,
};

/// Widest line of a paragraph, in characters: longer ones are hard to read.
const LINE_WIDTH_MAX: usize = 120;

/// Formats a page for the terminal. It has paragraphs, lists, headings, emphasis, code, links and tables.
pub(crate) fn rendered(page: &str) -> Text {
    let room = width_of(&std::io::stdout()).unwrap_or(LINE_WIDTH_MAX);
    rendered_in(page, room.min(LINE_WIDTH_MAX))
}

/// Formats a page with paragraphs of at most `width` characters: without its marks, a line is shorter than its source.
fn rendered_in(page: &str, width: usize) -> Text {
    let mut text = Text::default();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut is_code = false;
    for line in page.trim_end().lines() {
        if let Some(row) = line.strip_prefix('|') {
            push_paragraph(&mut text, &mut paragraph, width);
            if !row.trim_start().starts_with("---") {
                rows.push(row.trim_end_matches('|').split('|').map(|cell| plain(cell.trim())).collect());
            }
            continue;
        }
        push_table(&mut text, &mut rows);
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.is_empty() || line.starts_with("# ") {
            push_paragraph(&mut text, &mut paragraph, width);
            let is_verbatim = is_code && !is_fence;
            let shown = if is_verbatim { line.to_owned() } else { plain(line.trim_start_matches("# ")) };
            text.push_str(&format!("{shown}\n"));
            continue;
        }
        if mark_width(line) > 0 {
            push_paragraph(&mut text, &mut paragraph, width);
        }
        paragraph.push(line.trim_start());
    }
    push_table(&mut text, &mut rows);
    push_paragraph(&mut text, &mut paragraph, width);
    text
}

/// Appends the lines of a paragraph or of an entry of a list as one, wrapped at `width`.
fn push_paragraph(text: &mut Text, paragraph: &mut Vec<&str>, width: usize) {
    if !paragraph.is_empty() {
        let words = plain(&std::mem::take(paragraph).join(" "));
        // The further lines of an entry are below its first word.
        let indent = mark_width(&words);
        let lines = wrapped(&words, width.saturating_sub(indent));
        text.push_str(&format!("{}\n", lines.join(&format!("\n{}", " ".repeat(indent)))));
    }
}

/// Returns the width of the mark with which an entry of a list begins, `- ` or `1. `; 0 for other lines.
fn mark_width(line: &str) -> usize {
    match line.split_once(' ') {
        Some(("-", _)) => 2,
        Some((number, _)) => {
            let digits = number.strip_suffix('.').unwrap_or_default();
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { number.len() + 1 } else { 0 }
        }
        None => 0,
    }
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
        insta::assert_snapshot!(rendered_in(page, 80).as_str(), @r"
        not_found

        What happened. See gpuaas and roles, a.

        code        what
        key_reused  x
        ");
    }

    #[test]
    fn paragraphs_are_wrapped_anew_and_code_is_not() {
        let page = "# a\n\nIt causes the same:\n[rke2_clock_skew](rke2_clock_skew.md). Set\nthe clock.\n\n- one two three four five\n  six\n\
                    - seven\n\n```\n$ gpuaas workload \\\n    show train\n```\n";
        insta::assert_snapshot!(rendered_in(page, 24).as_str(), @r"
        a

        It causes the same:
        rke2_clock_skew. Set the
        clock.

        - one two three four
          five six
        - seven


        $ gpuaas workload \
            show train
        ");
    }
}
