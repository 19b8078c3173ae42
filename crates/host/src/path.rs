//! Prefixes of true paths.

use camino::Utf8Path;

/// Whether a path is one of these or lies under one.
pub(crate) fn is_under(prefixes: &[String], path: &str) -> bool {
    prefixes.iter().any(|prefix| Utf8Path::new(path).starts_with(prefix))
}
