//! Tests that `docs/cli.md`, `docs/openapi.json`, `docs/roles.md`, the client, the error pages and the tests agree with the code.
//!
//! `GPUAAS_UPDATE_GOLDEN=1` writes the golden files instead of comparing them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use clap::Command;
use gpuaas_api_types::coverage::{Sources, uncovered};
use gpuaas_model::{Code, InstallFault, Permission, Role};
use serde_json::Value;

use crate::help;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn golden(file: &str, now: &str) {
    let path = root().join("docs").join(file);
    if std::env::var_os("GPUAAS_UPDATE_GOLDEN").is_some() {
        fs::write(&path, now).expect("the golden file can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(now.lines()).find(|(kept, now)| kept != now);
    assert!(kept == now, "docs/{file} differs from the code (GPUAAS_UPDATE_GOLDEN=1 updates it): {differs:?}");
}

/// Appends the help of every command that is not hidden, depth first.
fn help(command: &mut Command, path: &str, pages: &mut String) {
    let words = command.render_long_help().to_string().replace(help::FLAGS_HINT, "");
    let words: Vec<&str> = words.lines().map(str::trim_end).collect();
    pages.push_str(&format!("\n## {path}\n\n```text\n{}\n```\n", words.join("\n").trim_end()));
    for verb in command.get_subcommands_mut().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        let path = format!("{path} {}", verb.get_name());
        help(verb, &path, pages);
    }
}

fn cli_pages() -> String {
    let mut pages =
        "# The command line\n\nGenerated from the code; update it with `GPUAAS_UPDATE_GOLDEN=1 cargo test --workspace --all-features \
         --bin gpuaas documented`. Every command accepts the flags of `gpuaas flags`.\n"
            .to_owned();
    let mut command = help::command().term_width(110);
    command.build();
    help(&mut command, "gpuaas", &mut pages);
    pages
}

fn document() -> String {
    serde_json::to_string_pretty(&sorted(gpuaas_server::api_document())).expect("a document of plain data") + "\n"
}

/// Sorts the keys of every object, whichever order the JSON library keeps.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> =
                fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        plain => plain,
    }
}

fn texts(folder: &Path) -> String {
    let paths = fs::read_dir(folder).expect("a folder of sources").flatten().map(|entry| entry.path());
    paths.map(|path| if path.is_dir() { texts(&path) } else { fs::read_to_string(path).expect("a text") }).collect()
}

fn error_pages() -> BTreeSet<String> {
    let names = fs::read_dir(root().join("docs/errors")).expect("the error pages").flatten();
    let names = names.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".md").map(str::to_owned));
    names.filter(|name| name != "README").collect()
}

/// Renders the table of permissions per role.
fn roles_page(openapi: &Value) -> String {
    let mark = |allowed: bool| if allowed { "✓" } else { "·" };
    let header = |first: &str| {
        let roles: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
        format!("| {first} | {} |\n|---|{}\n", roles.join(" | "), ":-:|".repeat(roles.len()))
    };
    let row = |first: &str, permission: Permission| {
        let marks: Vec<&str> = Role::ALL.iter().map(|role| mark(role.allows(permission))).collect();
        format!("| {first} | {} |\n", marks.join(" | "))
    };
    let mut page = "# Roles\n\nGenerated from the code. A project role grants its permissions only in its project; other projects appear not to \
                    exist. A kubeconfig needs `access.view` for `cluster-view`, `access.take` for every other cluster role and \
                    `access.break_glass` for break-glass.\n\n"
        .to_owned();
    page.push_str(&header("permission"));
    Permission::ALL.iter().for_each(|permission| page.push_str(&row(&format!("`{permission}`"), *permission)));
    page.push_str("\n## Operations\n\n");
    page.push_str(&header("operation"));
    let paths = openapi["paths"].as_object().into_iter().flatten();
    for (path, item) in paths {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let declared = operation["x-permission"].as_str().unwrap_or_default();
            let first = format!("{} `{path}` (`{declared}`)", method.to_uppercase());
            match declared.parse() {
                Ok(permission) => page.push_str(&row(&first, permission)),
                Err(_) => page.push_str(&format!("| {first} |{}\n", " |".repeat(Role::ALL.len()))),
            }
        }
    }
    page
}

#[test]
fn golden_roles_page_matches_the_permission_table() {
    golden("roles.md", &roles_page(&serde_json::from_str(&document()).expect("JSON")));
}

#[test]
fn golden_cli_page_matches_the_help_texts() {
    golden("cli.md", &cli_pages());
}

#[test]
fn golden_openapi_document_matches_the_routes() {
    golden("openapi.json", &document());
}

#[test]
fn every_operation_has_its_command_client_method_audit_action_event_error_pages_and_test() {
    let sources = Sources {
        openapi: serde_json::from_str(&document()).expect("JSON"),
        cli: cli_pages(),
        client: texts(&root().join("crates/client/src")),
        tests: texts(&root().join("crates/cli/tests/platform")),
        error_pages: error_pages(),
    };
    let operations = sources.openapi["paths"]
        .as_object()
        .map_or(0, |paths| paths.values().map(|path| path.as_object().map_or(0, serde_json::Map::len)).sum());
    let findings = uncovered(&sources);
    println!("    operations of the API: {operations}, uncovered: {}", findings.len());
    assert!(findings.is_empty(), "uncovered:\n{}", findings.join("\n"));
}

#[test]
fn every_error_page_has_a_code() {
    let codes = Code::ALL.iter().map(ToString::to_string);
    let known: BTreeSet<String> = codes.chain(InstallFault::ALL.iter().map(ToString::to_string)).collect();
    // Error pages of app faults begin with the app's slug and are not checked here.
    let left: Vec<_> = error_pages()
        .into_iter()
        .filter(|page| !known.contains(page) && !page.starts_with("rke2_") && page != "README")
        .collect();
    assert!(left.is_empty(), "error pages without a code: {left:?}");
}

#[test]
fn no_secret_can_be_given_as_an_argument() {
    let pages = cli_pages();
    assert!(!pages.contains("--token ") && !pages.contains("--secret") && !pages.contains("--password"));
}
