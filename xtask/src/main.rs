//! The developers' commands of this project: `cargo xtask --help`.

mod bench;
mod clients;
mod components;
mod demo;
mod dev_server;
mod fuzz_api;
mod lab;
mod lint;
mod mutants;
mod package;
mod release;
mod shell;
mod test;
mod tools;
mod ui;
mod ui_tests;

use clap::{Parser, Subcommand};

/// Build, check, test, package and measure this project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Menu {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check form: rustfmt, clippy, links in doc comments, dependencies, layers, file sizes, purity, conflict markers, words, paths,
    /// scripts, uncovered API operations, threats without existing tests.
    Lint,
    /// Build, find or download the genuine Kubernetes components, and print their folder.
    Components(components::ComponentsChore),
    /// Package the stand-in distribution as a release directory, and print its path.
    Release(release::ReleaseChore),
    /// Build the workload shell with Node.js, in the folder ui; the next build of the control plane embeds it.
    Ui,
    /// Test the pages of the workload shell in Debian's Chromium.
    UiTests(ui_tests::Options),
    /// Take screenshots of every page of the workload shell in both themes at three widths, and the pictures of the documents; print their
    /// folder.
    Screenshots,
    /// Build the packages and archives that machines install, and print their folder.
    Package(package::Options),
    /// Run the main job on this machine: deploy a cluster on sandbox nodes and use it with kubectl. `--lifecycle` runs all that follows, too.
    Demo(demo::Options),
    /// Manage real nodes on this machine: each a booted systemd with its own network. Needs root.
    #[command(subcommand)]
    Lab(gpuaas_lab::Chore),
    /// Fuzz the API from its OpenAPI document: no 500, and no response that the document does not declare.
    FuzzApi(fuzz_api::Options),
    /// Generate API clients in TypeScript and Python from the OpenAPI document, and deploy a workload with each.
    Clients,
    /// Run a benchmark and print its measurements.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Mutate planner, engine and trust, one change at a time, and list the changes that no test notices. Takes hours.
    Mutants(mutants::Options),
    /// Run lints, all tests, the API fuzzer, generated clients, the workload shell in a browser, the demo and the tests
    /// on booted machines; print the number of tests by kind.
    Test(test::Options),
}

fn main() -> anyhow::Result<()> {
    match Menu::parse().chore {
        Chore::Lint => lint::run(),
        Chore::Components(chore) => components::run(&chore),
        Chore::Release(chore) => release::run(&chore),
        Chore::Ui => ui::run(),
        Chore::UiTests(options) => ui_tests::run(&options),
        Chore::Screenshots => ui_tests::screenshots(),
        Chore::Package(options) => package::run(&options),
        Chore::Demo(options) => demo::run(&options),
        Chore::Lab(chore) => gpuaas_lab::run(chore, &lab::Checkout),
        Chore::FuzzApi(options) => fuzz_api::run(&options),
        Chore::Clients => clients::run(),
        Chore::Bench(bench) => bench::run(&bench),
        Chore::Mutants(options) => mutants::run(&options),
        Chore::Test(options) => test::run(&options),
    }
}
