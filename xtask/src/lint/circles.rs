//! Circles of modules: neighbours that refer to each other in a circle can only be understood together. Each circle is listed in [`DEFENDED`]
//! with the reason why it stays; every other one is an error.
//!
//! Neighbours are the modules directly inside of the same module, each with everything inside of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use cargo_metadata::{MetadataCommand, Package};
use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};
use syn::{
    Attribute, Item, UseTree, Visibility,
    visit::{self, Visit},
};

use crate::shell;

/// Circles that stay: the crate, its modules, and why they belong together.
const DEFENDED: &[(&str, &[&str], &str)] = &[(
    "gpuaas-cli",
    &["cli", "commands", "completion", "help"],
    "an argument names what completes it, and that parses the unfinished command line by the definition of all arguments",
)];

/// The path of a module within its crate, for example `["routes", "nodes"]`; empty for the crate's root.
type Module = Vec<String>;

/// Lists circles that are not defended, and defended ones that no longer exist.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut unseen: Vec<_> = DEFENDED.iter().collect();
    for (name, source) in sources()? {
        for circle in circles(&source)? {
            let known = unseen.iter().position(|(of, modules, _)| *of == name && *modules == circle);
            match known {
                Some(at) => drop(unseen.remove(at)),
                None => findings.push(format!(
                    "circles: the modules {} of {name} refer to each other: move what they share, or defend them in xtask/src/lint/circles.rs",
                    circle.join(", ")
                )),
            }
        }
    }
    let gone = |(of, modules, _): &(&str, &[&str], &str)| {
        format!("circles: {} of {of} is no longer a circle: remove its defence", modules.join(", "))
    };
    findings.extend(unseen.into_iter().map(gone));
    Ok(findings)
}

/// Returns every crate with the folder of its sources, except packages of tests alone, which have none.
fn sources() -> anyhow::Result<Vec<(String, PathBuf)>> {
    let metadata = MetadataCommand::new().current_dir(shell::root()).no_deps().exec()?;
    let source = |package: &Package| package.manifest_path.with_file_name("src").into_std_path_buf();
    let has_source = |package: &&Package| !package.targets.iter().all(|target| target.is_test());
    let packages = metadata.packages.iter().filter(has_source);
    Ok(packages.map(|package| (package.name.to_string(), source(package))).collect())
}

/// Returns the circles of a crate, each as sorted names of modules.
fn circles(source: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    let mut files = BTreeMap::new();
    read(source, source, &mut files)?;
    remove_tests(&mut files);
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    let mut neighbours: BTreeMap<Module, BTreeSet<(Module, Module)>> = BTreeMap::new();
    for (module, file) in &files {
        let mut references = References { modules: &modules, module, to: BTreeSet::new() };
        references.visit_file(file);
        for to in &references.to {
            let shared = module.iter().zip(to).take_while(|(one, other)| one == other).count();
            // Otherwise one of them is inside of the other.
            if shared < module.len().min(to.len()) {
                let edge = (module[..=shared].to_vec(), to[..=shared].to_vec());
                neighbours.entry(module[..shared].to_vec()).or_default().insert(edge);
            }
        }
    }
    let named = |mut circle: Vec<&Module>| -> Vec<String> {
        circle.sort();
        circle.into_iter().map(|module| module.join("::")).collect()
    };
    let mut circles = Vec::new();
    for edges in neighbours.values() {
        let graph =
            DiGraphMap::<&Module, (), std::hash::RandomState>::from_edges(edges.iter().map(|(from, to)| (from, to)));
        circles.extend(tarjan_scc(&graph).into_iter().filter(|part| part.len() > 1).map(named));
    }
    circles.sort();
    Ok(circles)
}

/// Parses the files of a folder by the module that each of them is.
fn read(source: &Path, folder: &Path, files: &mut BTreeMap<Module, syn::File>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            read(source, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
            files.insert(module_of(path.strip_prefix(source)?), file);
        }
    }
    Ok(())
}

fn module_of(path: &Path) -> Module {
    let mut parts: Module = path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// Removes the modules that are compiled for tests only.
fn remove_tests(files: &mut BTreeMap<Module, syn::File>) {
    let declared = |(module, file): (&Module, &syn::File)| -> Vec<Module> {
        let tests = file.items.iter().filter(|item| is_test(item));
        let named = tests.filter_map(|item| if let Item::Mod(of) = item { Some(of.ident.to_string()) } else { None });
        named.map(|name| [module.as_slice(), &[name]].concat()).collect()
    };
    let tests: Vec<Module> = files.iter().flat_map(declared).collect();
    files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
}

/// Returns true if an item is compiled for tests only.
fn is_test(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(of) => &of.attrs,
        Item::Fn(of) => &of.attrs,
        Item::Use(of) => &of.attrs,
        Item::Impl(of) => &of.attrs,
        Item::Struct(of) => &of.attrs,
        _ => &[],
    };
    let names_test = |condition: &str| condition == "test" || condition.starts_with("all (test ,");
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| names_test(&list.tokens.to_string()))
    })
}

/// Collects the modules to which a module refers outside of its tests.
struct References<'a> {
    modules: &'a BTreeSet<Module>,
    module: &'a Module,
    to: BTreeSet<Module>,
}

impl References<'_> {
    /// Adds the module that a path of names leads to. A path that begins with neither `crate` nor `self` nor `super` leads to a child, or to
    /// another crate.
    fn add(&mut self, path: &[String]) {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let mut absolute = match path.first().map(String::as_str) {
            Some("crate") => path[1..].to_vec(),
            Some("self") => [self.module, &path[1..]].concat(),
            Some("super") => {
                let above = &self.module[..self.module.len().saturating_sub(supers)];
                [above, &path[supers..]].concat()
            }
            _ => [self.module, path].concat(),
        };
        while !self.modules.contains(&absolute) {
            absolute.pop();
        }
        if absolute != *self.module {
            self.to.insert(absolute);
        }
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.add(&with(&name.ident)),
            UseTree::Rename(renamed) => self.add(&with(&renamed.ident)),
            UseTree::Glob(_) => self.add(before),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.add_tree(before, item)),
        }
    }
}

impl<'ast> Visit<'ast> for References<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A re-export names what a module consists of; it needs nothing from there.
        if matches!(item.vis, Visibility::Inherited) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if parts.first().is_some_and(|first| ["crate", "super", "self"].contains(&first.as_str())) && parts.len() > 1 {
            self.add(&parts);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circle_is_found_and_parents_children_and_tests_make_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f; pub use a::A;");
        write("a.rs", "use crate::b::B; pub struct A(B);");
        write("b/mod.rs", "mod inner; pub use inner::B; pub struct Outer;");
        write("b/inner.rs", "pub struct B; use super::Outer;");
        write("c.rs", "pub fn g() { let _: crate::a::A; }");
        write("d.rs", "use crate::a::A; #[cfg(test)] mod tests { use crate::e::E; } #[cfg(test)] mod cases;");
        write("d/cases.rs", "use crate::e::E;");
        write("e.rs", "use crate::d::D; #[cfg(all(test, unix))] mod tests { use crate::f::F; }");
        write("f.rs", "use crate::e::E;");
        assert_eq!(circles(folder.path()).unwrap(), Vec::<Vec<String>>::new());
        write("b/inner.rs", "fn f() { super::super::c::g(); } use super::other::O;");
        write("b/other.rs", "use super::inner::B;");
        assert_eq!(circles(folder.path()).unwrap(), [vec!["a", "b", "c"], vec!["b::inner", "b::other"]]);
    }
}
