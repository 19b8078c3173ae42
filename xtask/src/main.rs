//! The one menu of this project's chores: `cargo xtask --help`.

mod bench;
mod components;
mod demo;
mod fuzz_api;
mod lab;
mod lint;
mod mutants;
mod package;
mod release;
mod shell;
mod test;
mod tools;

use clap::{Parser, Subcommand};

/// Everything one does with a checkout.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Menu {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Checks form: rustfmt, clippy, dependencies, layers, file sizes, purity, uncovered API operations, threats whose tests are gone.
    Lint,
    /// Builds (or finds, or downloads) the genuine Kubernetes components, and says where they are.
    Components(components::ComponentsChore),
    /// Packages the stand-in distribution as a release directory, and says where it is.
    Release(release::ReleaseChore),
    /// Makes the packages and archives that machines install, and says where they are.
    Package(package::Options),
    /// The main job on this machine: a cluster on sandbox nodes, delivered to kubectl.
    Demo(demo::Options),
    /// Real nodes on this machine: each a booted systemd with its own network. Needs root.
    #[command(subcommand)]
    Lab(lab::Chore),
    /// Sends the API what its own document makes possible: no 500, and no answer that the document does not name.
    FuzzApi(fuzz_api::Options),
    /// Measures, and prints what it measured.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Changes planner, engine and trust in small ways, one at a time, and says which changes no test notices. Takes hours.
    Mutants(mutants::Options),
    /// Lints, runs every test, and the demo last; prints how many tests of each kind ran.
    Test(test::Options),
}

fn main() -> anyhow::Result<()> {
    match Menu::parse().chore {
        Chore::Lint => lint::run(),
        Chore::Components(chore) => components::run(&chore),
        Chore::Release(chore) => release::run(&chore),
        Chore::Package(options) => package::run(&options),
        Chore::Demo(options) => demo::run(&options),
        Chore::Lab(chore) => lab::run(chore),
        Chore::FuzzApi(options) => fuzz_api::run(&options),
        Chore::Bench(bench) => bench::run(&bench),
        Chore::Mutants(options) => mutants::run(&options),
        Chore::Test(options) => test::run(&options),
    }
}
