//! Texts of a machine that belongs to a tenant.

/// Most bytes of a foreign text in an error or a result.
const TEXT_BYTES_MAX: usize = 400;

/// Cuts a foreign text and puts it on one line. Like `one_line` of `wire`, on which this crate does not depend.
pub(crate) fn bounded(text: &str) -> String {
    // A much too long text is cut first, so that it is not scanned to its end.
    let text = &text[..text.floor_char_boundary(2 * TEXT_BYTES_MAX)];
    let mut kept: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if kept.len() > TEXT_BYTES_MAX {
        let end = kept.floor_char_boundary(TEXT_BYTES_MAX);
        kept.truncate(end);
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_cluster_becomes_one_short_line() {
        assert_eq!(bounded("a\nb"), "a b");
        assert!(bounded(&"ü".repeat(10_000)).len() < TEXT_BYTES_MAX + 8);
    }
}
