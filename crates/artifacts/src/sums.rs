//! A release's checksum file: lines of `DIGEST  NAME`.

use std::collections::HashMap;

use crate::{ArtifactError, digest};

/// Longest checksum file, in bytes; RKE2's has 4 KB.
pub(crate) const SUMS_BYTES_MAX: u64 = 1024 * 1024;

/// The entries of a checksum file. A name with two different digests counts as not listed, because it is ambiguous.
pub(crate) struct Sums<'a> {
    file: &'a str,
    listed: HashMap<String, Option<String>>,
}

impl<'a> Sums<'a> {
    /// Parses lines of a digest and a name; drops the `*` of binary mode from names and ignores other lines.
    pub(crate) fn parse(file: &'a str, text: &str) -> Self {
        let mut listed: HashMap<String, Option<String>> = HashMap::new();
        for line in text.lines() {
            let Some((sha256, name)) = line.trim().split_once(char::is_whitespace) else { continue };
            let (sha256, name) = (sha256.to_ascii_lowercase(), name.trim_start());
            let name = name.strip_prefix('*').unwrap_or(name);
            if !digest::is_digest(&sha256) || name.is_empty() {
                continue;
            }
            listed
                .entry(name.to_owned())
                .and_modify(|known| {
                    if known.as_ref() != Some(&sha256) {
                        *known = None;
                    }
                })
                .or_insert(Some(sha256.clone()));
        }
        Self { file, listed }
    }

    /// Returns the digest of `name`, or [`ArtifactError::Unlisted`].
    pub(crate) fn digest(&self, name: &str) -> Result<&str, ArtifactError> {
        let unlisted = || ArtifactError::Unlisted { sums: self.file.to_owned(), name: name.to_owned() };
        self.listed.get(name).and_then(Option::as_deref).ok_or_else(unlisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_exactly_and_ambiguous_ones_are_unlisted() {
        let (a, b) = ("a".repeat(64), "B".repeat(64));
        let text = format!(
            "# comment\n{a}  rke2.tar.gz\n{b} *other\nxyz  short\n{a}  twice\n{b}  twice\n{a}  same\n{a}  same\n"
        );
        let sums = Sums::parse("sums.txt", &text);
        assert_eq!(sums.digest("rke2.tar.gz").unwrap(), a);
        assert_eq!(sums.digest("other").unwrap(), b.to_lowercase());
        assert_eq!(sums.digest("same").unwrap(), a);
        for absent in ["rke2.tar", "short", "twice", ""] {
            assert!(matches!(sums.digest(absent), Err(ArtifactError::Unlisted { .. })), "{absent}");
        }
    }
}
