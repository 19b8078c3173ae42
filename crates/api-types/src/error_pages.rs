//! The pages that explain error codes, embedded from `docs/errors`.

/// Path below which the control plane serves the pages.
pub const PATH: &str = "/docs/errors";

/// Name of the page that lists all others.
pub const INDEX: &str = "README";

/// Every page by its code, sorted, as Markdown.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

/// Returns the page of a code as Markdown.
pub fn page(code: &str) -> Option<&'static str> {
    PAGES.binary_search_by_key(&code, |(name, _)| *name).ok().map(|at| PAGES[at].1)
}

/// Returns every code that has a page, sorted.
pub fn codes() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|(name, _)| *name).filter(|name| *name != INDEX)
}

/// Returns the path of the page at every control plane.
pub fn path(code: &str) -> String {
    format!("{PATH}/{code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_found_by_its_code() {
        assert!(page("not_found").expect("a page").starts_with("# not_found\n"));
        assert!(page(INDEX).expect("a page").contains("(not_found.md)"));
        assert_eq!(page("no_such_code"), None);
        assert!(codes().any(|code| code == "not_found") && !codes().any(|code| code == INDEX));
        assert!(PAGES.is_sorted_by_key(|(name, _)| *name), "the search needs sorted pages");
    }
}
