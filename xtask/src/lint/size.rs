//! Keeps files readable: a file longer than [`LINES_MAX`] should be split.

use crate::shell;

/// Longest source file, in lines.
const LINES_MAX: usize = 600;

/// Lists every source file that is too long; prints the median length.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let mut lengths = Vec::new();
    for file in shell::files()?.into_iter().filter(|file| file.ends_with(".rs")) {
        let text = std::fs::read_to_string(shell::root().join(&file))?;
        lengths.push((text.lines().count(), file));
    }
    lengths.sort();
    if let Some((median, _)) = lengths.get(lengths.len() / 2) {
        let longest = lengths.last().map_or(0, |(lines, _)| *lines);
        eprintln!("    Rust files: {}, median {median} lines, longest {longest}", lengths.len());
    }
    Ok(too_long(&lengths))
}

fn too_long(lengths: &[(usize, String)]) -> Vec<String> {
    let finding =
        |(lines, file): &(usize, String)| format!("size: {file} has {lines} lines; at most {LINES_MAX} are allowed");
    lengths.iter().filter(|(lines, _)| *lines > LINES_MAX).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_limit_is_named() {
        let lengths = [(LINES_MAX, "fits.rs".to_owned()), (LINES_MAX + 1, "long.rs".to_owned())];
        assert_eq!(
            too_long(&lengths),
            [format!("size: long.rs has {} lines; at most {LINES_MAX} are allowed", LINES_MAX + 1)]
        );
    }
}
