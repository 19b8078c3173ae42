//! Generates API clients from the OpenAPI document that a real `gpuaas dev` serves, and deploys a workload with each: in TypeScript by
//! openapi-typescript and openapi-fetch, in Python by openapi-python-client.
//!
//! The generators are pinned in `clients/` and installed in separate environments in the user's cache. Generated code is not kept.

mod python;
mod setup;
mod typescript;

use std::process::Command;

use camino::Utf8Path;

use setup::Platform;

use crate::tools;

/// Kind under which the tests are counted.
pub(crate) const KIND: &str = "generated clients";

/// A client of one language.
struct Language {
    name: &'static str,
    /// Node on which it deploys.
    node: &'static str,
    /// Command that succeeds if the registry of its packages can be reached.
    registry: &'static [&'static str],
    /// Installs the generator, unless it is installed.
    install: fn() -> anyhow::Result<()>,
    /// Generates the client in a folder with `openapi.json`, and returns the command that deploys with it.
    generate: fn(&Utf8Path) -> anyhow::Result<Command>,
}

const LANGUAGES: [Language; 2] = [
    Language {
        name: "TypeScript",
        node: "demo-1",
        registry: &tools::NPM,
        install: typescript::install,
        generate: typescript::generate,
    },
    Language {
        name: "Python",
        node: "demo-2",
        registry: &["python3", "-m", "pip", "index", "versions", "openapi-python-client"],
        install: python::install,
        generate: python::generate,
    },
];

/// Runs `cargo xtask clients`.
pub(crate) fn run() -> anyhow::Result<()> {
    for (language, outcome) in test()? {
        match outcome {
            Ok(()) => eprintln!("    {language}: passed"),
            Err(why) => eprintln!("    {language}: NOT RUN: {why}"),
        }
    }
    Ok(())
}

/// Tests the client of every language whose generator is installed or can be installed. Returns the reason for each of the others.
pub(crate) fn test() -> anyhow::Result<Vec<(&'static str, Result<(), String>)>> {
    let mut outcomes = Vec::new();
    let mut platform = None;
    for language in &LANGUAGES {
        if let Err(failed) = (language.install)() {
            if tools::can_reach(language.registry) {
                return Err(failed);
            }
            outcomes.push((language.name, Err(format!("its packages cannot be downloaded: {failed:#}"))));
            continue;
        }
        let platform = match &mut platform {
            Some(running) => running,
            none => none.insert(Platform::start(LANGUAGES.map(|of| of.node))?),
        };
        platform.deploy_with(language)?;
        outcomes.push((language.name, Ok(())));
    }
    Ok(outcomes)
}

/// Installs the generators in advance. Where that fails, the test says so.
pub(crate) fn prepare() {
    for language in &LANGUAGES {
        let _ = (language.install)();
    }
}
