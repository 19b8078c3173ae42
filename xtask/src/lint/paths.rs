//! Checks that the paths and links of documents, and the paths in lines of comments, lead to files of this repository, and that links lead
//! from `README.md` to every page. A path is one of this repository if its first folder exists.

use std::{collections::BTreeSet, path::Path, sync::LazyLock};

use regex::Regex;

use crate::shell;

/// Parts of paths that stand for a name.
const PLACEHOLDERS: [&str; 3] = ["NAME", "CODE", "FILE"];
/// Folders of a crate. A path that begins with a crate and one of these lacks its beginning.
const CRATE_FOLDERS: [&str; 4] = ["src", "tests", "benches", "migrations"];
/// Endings of source files with the text that begins their comments.
const COMMENTS: [(&str, &str); 11] = [
    (".rs", "//"),
    (".go", "//"),
    (".js", "//"),
    (".ts", "//"),
    (".sh", "# "),
    (".py", "# "),
    (".toml", "# "),
    (".yml", "# "),
    (".yaml", "# "),
    (".service", "# "),
    (".ci/run", "# "),
];

/// The page from which links lead to all others, and the folder of those.
const START: &str = "README.md";
const PAGES: &str = "docs/";

static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").expect("a valid pattern"));
static QUOTED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`([\w./-]+)`").expect("a valid pattern"));
static PATH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|[\s`(])((?:[\w.-]+/)+[\w.-]*\w)").expect("a valid pattern"));

/// Lists every path and link without a target, and every page without a link to it.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let files = shell::files()?;
    let tree = Tree::of(&files);
    let mut findings = Vec::new();
    let mut documents = Vec::new();
    for file in files {
        if file.ends_with(".md") {
            let text = std::fs::read_to_string(shell::root().join(&file))?;
            findings.extend(tree.broken_in_document(&file, &text));
            documents.push((file, text));
        } else if let Some(marker) = comment_marker(&file) {
            let text = std::fs::read_to_string(shell::root().join(&file))?;
            findings.extend(tree.broken_in_comments(&file, &text, marker));
        }
    }
    findings.extend(unlinked(&documents));
    Ok(findings)
}

/// Returns the text that begins comments of a source file; `None` for other files.
fn comment_marker(file: &str) -> Option<&'static str> {
    COMMENTS.iter().find(|(ending, _)| file.ends_with(ending)).map(|(_, marker)| *marker)
}

/// The files and folders of the repository, relative to its root.
struct Tree {
    paths: BTreeSet<String>,
}

impl Tree {
    fn of(files: &[String]) -> Self {
        let with_folders = files.iter().flat_map(|file| Path::new(file).ancestors()).filter_map(Path::to_str);
        // The root itself is no path of the repository: absolute paths begin with an empty part.
        Self { paths: with_folders.filter(|path| !path.is_empty()).map(str::to_owned).collect() }
    }

    fn broken_in_document(&self, file: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let quoted = QUOTED.captures_iter(line).map(|found| found.extract::<1>().1[0]);
            let broken = quoted.filter(|path| self.is_broken(path));
            findings.extend(broken.map(|path| finding(file, number, path)));
            let lost = links(file, line).filter(|(_, target)| !self.paths.contains(target));
            findings.extend(lost.map(|(link, _)| finding(file, number, &link)));
        }
        findings
    }

    fn broken_in_comments(&self, file: &str, text: &str, marker: &str) -> Vec<String> {
        let mut findings = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let Some(comment) = line.trim_start().strip_prefix(marker) else { continue };
            let paths = PATH.captures_iter(comment).map(|found| found.extract::<1>().1[0]);
            findings.extend(paths.filter(|path| self.is_broken(path)).map(|path| finding(file, number, path)));
        }
        findings
    }

    /// Returns true for a path that should be in this repository and is not. A path is expected there if it begins with one of its folders,
    /// or with a folder of `crates` followed by a folder that crates have.
    fn is_broken(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let Some((first, below)) = path.split_once('/') else { return false };
        let lacks_crates = self.paths.contains(&format!("crates/{first}"))
            && CRATE_FOLDERS.contains(&below.split('/').next().unwrap_or_default());
        let is_ours = self.paths.contains(first) || lacks_crates;
        is_ours && !self.paths.contains(path) && !PLACEHOLDERS.iter().any(|placeholder| path.contains(placeholder))
    }
}

fn finding(file: &str, number: usize, path: &str) -> String {
    format!("paths: {file}:{number} names {path}, which does not exist; write the path from the root of the repository")
}

/// Returns the links of a text in `file` to other files, each with its target relative to the root.
fn links<'a>(file: &'a str, text: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let destinations = LINK.captures_iter(text).map(|found| found.extract::<1>().1[0]);
    let local = destinations.filter(|link| !link.contains("://") && !link.starts_with('#'));
    local.map(move |link| (link.to_owned(), resolve(folder, link.split('#').next().unwrap_or_default())))
}

/// Returns the path of `link`, which is relative to `folder`, relative to the root.
fn resolve(folder: &str, link: &str) -> String {
    let mut path: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part != ".." {
            path.push(part);
        } else if path.pop().is_none() {
            // Outside of the repository: as it is, so that it is not found.
            return link.to_owned();
        }
    }
    path.join("/")
}

/// Lists the pages to which no links lead from the first one.
fn unlinked(documents: &[(String, String)]) -> Vec<String> {
    let mut linked = BTreeSet::from([START.to_owned()]);
    let mut open = vec![START.to_owned()];
    while let Some(page) = open.pop() {
        let Some((file, text)) = documents.iter().find(|(file, _)| *file == page) else { continue };
        // A link to a folder shows its README.md.
        let targets = links(file, text).flat_map(|(_, target)| [format!("{target}/README.md"), target]);
        open.extend(targets.filter(|target| linked.insert(target.clone())));
    }
    let pages = documents.iter().map(|(file, _)| file).filter(|file| file.starts_with(PAGES));
    let lost = pages.filter(|page| !linked.contains(*page));
    lost.map(|page| format!("paths: no links lead from {START} to {page}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree::of(&["README.md", "docs/a.md", "crates/engine/src/engine.rs", "xtask/src/main.rs"].map(str::to_owned))
    }

    /// Returns the paths that the findings name.
    fn named(findings: &[String]) -> Vec<&str> {
        let name = |finding: &'_ String| finding.find(" names ").zip(finding.find(", which"));
        findings.iter().filter_map(|finding| name(finding).map(|(at, end)| &finding[at + 7..end])).collect()
    }

    #[test]
    fn paths_and_links_of_this_repository_lead_to_files() {
        assert_eq!(check().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn renamed_file_in_backticks_or_in_a_link_is_found() {
        let text = "`crates/engine/src/engine.rs`, `xtask/src/`, [a](docs/a.md#part), [b](https://host/docs/x), [c](#here)\n\
                    `crates/engine/src/reach.rs`, `engine/src/engine.rs`\n[a](docs/b.md)\n`crates/app-NAME` `target/demo` `/docs/x` `10.4.0.0/16`\n";
        let found = tree().broken_in_document("README.md", text);
        assert_eq!(named(&found), ["crates/engine/src/reach.rs", "engine/src/engine.rs", "docs/b.md"]);
        assert_eq!(
            found[2],
            "paths: README.md:3 names docs/b.md, which does not exist; write the path from the root of the repository"
        );
        assert_eq!(tree().broken_in_document("docs/a.md", "[up](../README.md) [out](../../README.md)").len(), 1);
    }

    #[test]
    fn renamed_file_in_a_comment_is_found_and_one_in_code_is_not() {
        let text = "//! See `docs/b.md`, docs/a.md.\n    // in crates/engine/src/engine.rs (xtask/src/none.rs)\nlet x = \"docs/c.md\";\n";
        assert_eq!(named(&tree().broken_in_comments("a.rs", text, "//")), ["docs/b.md", "xtask/src/none.rs"]);
    }

    #[test]
    fn comments_of_every_kind_of_source_are_read() {
        for file in ["deploy.ts", "deploy.py", "config.yml", "chart.yaml", ".ci/run"] {
            let marker = comment_marker(file).unwrap_or_else(|| panic!("{file} is not read"));
            let found = tree().broken_in_comments(file, &format!("{marker} See docs/b.md.\n"), marker);
            assert_eq!(named(&found), ["docs/b.md"], "{file}");
        }
        assert_eq!(comment_marker("LICENSE"), None);
    }

    #[test]
    fn page_without_a_link_is_found() {
        let page = |file: &str, text: &str| (file.to_owned(), text.to_owned());
        let pages = [
            page("README.md", "[adr](docs/adr) [a](docs/a.md)"),
            page("docs/adr/README.md", "[b](../b.md#part)"),
            page("docs/a.md", ""),
            page("docs/b.md", ""),
            page("docs/c.md", "[a](a.md)"),
        ];
        assert_eq!(unlinked(&pages), ["paths: no links lead from README.md to docs/c.md"]);
    }
}
