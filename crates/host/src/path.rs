//! Prefixes of paths.

use camino::Utf8Path;

/// Returns true if the path equals a prefix or is under one.
pub(crate) fn is_under(prefixes: &[String], path: &str) -> bool {
    prefixes.iter().any(|prefix| Utf8Path::new(path).starts_with(prefix))
}
