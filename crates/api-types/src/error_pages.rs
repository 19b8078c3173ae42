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

/// `docs/findings.md`, whose table has a row for each finding.
const FINDINGS: &str = include_str!(env!("GPUAAS_FINDINGS"));

/// Returns the rows of the table of findings: name, severity, meaning and what to do, as Markdown.
fn finding_rows() -> impl Iterator<Item = (&'static str, [&'static str; 3])> {
    FINDINGS.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.trim_end_matches(" |").split(" | ");
        Some((cells.next()?.trim_end_matches('`'), [cells.next()?, cells.next()?, cells.next()?]))
    })
}

/// Returns the names of all findings.
pub fn findings() -> impl Iterator<Item = &'static str> {
    finding_rows().map(|(name, _)| name)
}

/// Returns a page about a finding as Markdown.
pub fn finding(name: &str) -> Option<String> {
    let (_, [severity, meaning, action]) = finding_rows().find(|(of, _)| *of == name)?;
    // A cell of the table begins with a small letter, a sentence with a capital.
    let (first, rest) = action.split_at_checked(1)?;
    let action = format!("{}{rest}", first.to_uppercase());
    Some(format!("# {name}\n\nA finding of a preflight ({severity}): {meaning}.\n\n**What to do.** {action}.\n"))
}

/// Returns the path of the page at every control plane.
pub fn path(code: &str) -> String {
    format!("{PATH}/{code}")
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Check, Code};

    use super::*;

    /// Returns the number that follows `words` in a page, if one does.
    fn number_after(page: &str, words: &str) -> Option<u16> {
        let rest = page.split_once(words)?.1;
        rest.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
    }

    #[test]
    fn every_page_names_the_statuses_of_its_code() {
        let mut named = 0;
        for code in Code::ALL {
            let page = page(code.as_str()).unwrap_or_else(|| panic!("{code} has no page"));
            if let Some(status) = number_after(page, "HTTP ") {
                assert_eq!(status, code.status(), "{code}: HTTP");
            }
            if let Some(status) = number_after(page, "exit status ") {
                assert_eq!(status, code.exit() as u16, "{code}: exit status");
                named += 1;
            }
        }
        assert!(named > 60, "only {named} pages name an exit status");
    }

    #[test]
    fn every_check_is_a_finding_with_a_page() {
        for check in Check::ALL {
            let page = finding(check.as_str()).unwrap_or_else(|| panic!("docs/findings.md has no row for {check}"));
            assert!(page.contains("A finding of a preflight (") && page.contains("**What to do.** "), "{page}");
        }
        assert_eq!(findings().count(), Check::ALL.len(), "a row is no check");
    }

    #[test]
    fn page_is_found_by_its_code() {
        assert!(page("not_found").expect("a page").starts_with("# not_found\n"));
        assert!(page(INDEX).expect("a page").contains("(not_found.md)"));
        assert_eq!(page("no_such_code"), None);
        assert!(codes().any(|code| code == "not_found") && !codes().any(|code| code == INDEX));
        assert!(PAGES.is_sorted_by_key(|(name, _)| *name), "the search needs sorted pages");
    }
}
