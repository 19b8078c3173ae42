//! Finds conflict markers of unfinished merges.

use crate::shell;

/// Prefixes of such lines, written in two halves so that this file contains none.
const MARKS: [&str; 3] = [concat!("<<<<", "<<< "), concat!(">>>>", ">>> "), concat!("||||", "||| ")];

/// Lists every line that begins with a conflict marker.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in shell::files()? {
        // Binary files have no markers.
        let Ok(text) = std::fs::read_to_string(shell::root().join(&file)) else { continue };
        findings.extend(marked(&text).map(|line| format!("merge: {file}:{line} has a conflict marker")));
    }
    Ok(findings)
}

fn marked(text: &str) -> impl Iterator<Item = usize> {
    let is_marked = |line: &str| MARKS.iter().any(|mark| line.starts_with(mark));
    text.lines().enumerate().filter(move |(_, line)| is_marked(line)).map(|(number, _)| number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_at_the_beginning_of_a_line_are_found() {
        let text = format!("one\n{}HEAD\ntwo\n=======\n{}branch\n see {}x\n", MARKS[0], MARKS[1], MARKS[0]);
        assert_eq!(marked(&text).collect::<Vec<_>>(), [2, 5]);
    }
}
