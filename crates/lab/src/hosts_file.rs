//! The lab's lines in this machine's `/etc/hosts`.
//!
//! Guarantees: every other line stays as it is. A crash loses none of them: one write appends the lab's lines; removal overwrites the file
//! in one write and truncates it afterwards.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
};

use anyhow::Context;

use super::place::MARK;

const PATH: &str = "/etc/hosts";

/// Appends the lines, each with the lab's mark.
pub(super) fn add(lines: &[String]) -> anyhow::Result<()> {
    let before = fs::read_to_string(PATH).context(PATH)?;
    let mut file = OpenOptions::new().append(true).open(PATH).context(PATH)?;
    file.write_all(addition(&before, lines).as_bytes()).context(PATH)
}

/// Returns the text to append. If the last line of `before` has no newline, the addition has none at its end either, so that removal
/// restores the file exactly.
fn addition(before: &str, lines: &[String]) -> String {
    let marked: Vec<String> = lines.iter().map(|line| format!("{line} # {MARK}")).collect();
    let has_final_newline = before.is_empty() || before.ends_with('\n');
    if has_final_newline { marked.join("\n") + "\n" } else { format!("\n{}", marked.join("\n")) }
}

/// Reports whether the file has lines of the lab.
pub(super) fn is_marked() -> anyhow::Result<bool> {
    Ok(fs::read_to_string(PATH).context(PATH)?.lines().any(is_ours))
}

/// Removes the lab's lines.
pub(super) fn remove() -> anyhow::Result<()> {
    let before = fs::read_to_string(PATH).context(PATH)?;
    let after = without_lab_lines(&before);
    if after == before {
        return Ok(());
    }
    // Written in place: the file may be a mount point, which cannot be replaced.
    let file = OpenOptions::new().write(true).open(PATH).context(PATH)?;
    file.write_all_at(after.as_bytes(), 0).and_then(|()| file.set_len(after.len() as u64)).context(PATH)
}

fn is_ours(line: &str) -> bool {
    line.split_once('#').is_some_and(|(_, comment)| comment.trim() == MARK)
}

fn without_lab_lines(text: &str) -> String {
    let others: String = text.split_inclusive('\n').filter(|line| !is_ours(line)).collect();
    let last_is_ours = text.lines().next_back().is_some_and(is_ours);
    match others.strip_suffix('\n') {
        Some(without_newline) if last_is_ours && !text.ends_with('\n') => without_newline.to_owned(),
        _ => others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_restores_the_other_lines_exactly() {
        let lines = ["10.0.0.2 node-1.gpuaas-lab.test".to_owned(), "10.0.0.3 node-2".to_owned()];
        for others in
            ["127.0.0.1\tlocalhost # gpuaas-lab is not here\n\n::1 ip6-localhost\n", "127.0.0.1 localhost", ""]
        {
            let text = others.to_owned() + &addition(others, &lines);
            assert_eq!(text.lines().filter(|line| is_ours(line)).count(), 2, "{text}");
            assert_eq!(without_lab_lines(&text), others);
            assert_eq!(without_lab_lines(others), others);
        }
    }

    #[test]
    fn lines_appended_by_others_are_kept() {
        let ours = addition("a\n", &["10.0.0.2 node-1".to_owned()]);
        assert_eq!(without_lab_lines(&format!("a\n{ours}b\n")), "a\nb\n");
    }
}
