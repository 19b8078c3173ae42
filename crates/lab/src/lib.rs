//! `cargo xtask lab`: real nodes on this machine, each a booted systemd with its own network, processes and cgroups. `docs/lab.md`
//! describes the requirements, the effects on the machine and the cleanup.
//!
//! Guarantees: one lab per machine, changed by one command at a time. Everything is recorded before it is created, so that `down` removes
//! all of it, however the lab ended.
//!
//! Deliberately absent: what runs on the nodes (tests install it), and how that is built ([`Builder`]). The program that calls [`run`]
//! offers it as its subcommand `lab`: supervisors and scenarios are processes of the same program.

pub mod cache;
pub mod shell;

mod cgroups;
mod control;
mod dns;
mod down;
mod hosts_file;
mod inventory;
mod kind;
mod lock;
mod mounts;
mod name;
mod network;
mod node;
mod packages;
mod place;
mod plan;
mod probe;
mod processes;
mod refusal;
mod remains;
mod resource;
mod rootfs;
mod space;
mod state;
mod status;
mod supervisor;
mod test;
mod tree;
mod up;

use anyhow::ensure;
use camino::Utf8PathBuf;

pub use name::NodeName;
pub use test::{
    Builder, CONTRACT_HELPER, CONTRACT_TEST, EXPOSURE_TENTHS_MAX, Part, ScenarioOptions, Sources, TestOptions,
};

use lock::LabLock;
use refusal::Refusal;

/// Lab commands.
#[derive(clap::Subcommand)]
#[command(after_help = EXIT_CODES)]
pub enum Chore {
    /// Boot the nodes, and report what this machine lacks and how the lab made up for it. Run it again to start nodes that are off.
    Up(UpOptions),
    /// Show this machine, the lab and the condition of its nodes.
    Status,
    /// Run a shell or a command in a node.
    Shell(ShellOptions),
    /// Boot nodes, run tests on them, and prove that nothing is left behind.
    Test(TestOptions),
    /// Remove the lab, even after a crash.
    Down,
    /// List everything on this machine that a lab might leave behind, or only what is new since an earlier inventory.
    #[command(hide = true)]
    Inventory(InventoryOptions),
    /// Boot a node, and boot it again after every reboot; `up` starts this.
    #[command(hide = true)]
    Supervise {
        /// Name of the node.
        node: NodeName,
    },
    /// Run one scenario on the running lab; `test` starts this.
    #[command(hide = true)]
    Scenario(ScenarioOptions),
}

const EXIT_CODES: &str = "Exit codes: 3 this machine or this user cannot run a lab, 4 another lab command is running, 5 another lab or remains of \
                          one exist, 6 there is no such lab or node, or the node is off, 7 a node did not boot, 8 something was left behind, \
                          130 interrupted.";

/// Options of `lab up`.
#[derive(clap::Args)]
pub struct UpOptions {
    /// Number of nodes; they are named node-1, node-2, ….
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(up::NODES_MAX)))]
    nodes: u8,
    /// PID of the process that holds the lab's lock and starts this one; this process ends with it.
    #[arg(long, hide = true, value_name = "PID")]
    within: Option<i32>,
}

/// Options of `lab shell`.
#[derive(clap::Args)]
pub struct ShellOptions {
    /// Name of the node.
    node: NodeName,
    /// Command with its arguments; without it, a login shell starts.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Options of `lab inventory`.
#[derive(clap::Args)]
pub struct InventoryOptions {
    /// File with an earlier inventory; without it, the full inventory is printed.
    #[arg(long, value_name = "FILE")]
    since: Option<Utf8PathBuf>,
}

/// Runs the command; exits the process if the error has its own exit code.
pub fn run(chore: Chore, builder: &dyn Builder) -> anyhow::Result<()> {
    let outcome = carry_out(chore, builder);
    if let Err(error) = &outcome
        && let Some(refusal) = error.downcast_ref::<Refusal>()
    {
        eprintln!("error: {error:#}");
        std::process::exit(refusal.exit_code());
    }
    outcome
}

/// Runs the measurements of `cargo xtask bench lab` on booted nodes.
pub fn measure(runs: u8, profile: &str, builder: &dyn Builder) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(packages::advice()));
    test::measure(runs, profile, builder)
}

fn carry_out(chore: Chore, builder: &dyn Builder) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(packages::advice()));
    match chore {
        Chore::Up(options) => {
            let _lock = lock_or_bind(options.within)?;
            // The process that holds the lock has checked the space for what it runs on the nodes.
            // An existing lab only starts nodes that are off.
            if options.within.is_none() && state::State::read()?.is_none() {
                space::check(options.nodes, None)?;
            }
            up::run(options.nodes)
        }
        Chore::Status => status::run(),
        Chore::Shell(options) => Err(node::Lab::open()?.node(&options.node)?.become_shell(&options.command)),
        Chore::Test(options) => test::run(&options, builder).map(drop),
        Chore::Down => {
            let _lock = LabLock::take()?;
            down::run()
        }
        Chore::Inventory(options) => inventory::run(options.since.as_deref()),
        Chore::Supervise { node } => supervisor::run(&node),
        Chore::Scenario(options) => test::run_scenario(&options),
    }
}

/// Checks that this machine and this user can run a lab; installs missing packages if the user is root.
pub fn check_machine() -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(String::new()));
    packages::ensure()?;
    probe::machine().map(drop)
}

/// Prepares what these parts of `test` need, so that a later run finds it.
pub fn prepare(runs: &[&str], builder: &dyn Builder) -> anyhow::Result<()> {
    test::prepare(&TestOptions::of(runs), builder)
}

/// Runs these parts of `test`; returns the number of checks that passed.
pub fn run_tests(runs: &[&str], builder: &dyn Builder) -> anyhow::Result<u32> {
    test::run(&TestOptions::of(runs), builder)
}

/// Takes the lab's lock, or ties this process to the process that holds it: this one then ends with that one.
fn lock_or_bind(within: Option<i32>) -> anyhow::Result<Option<LabLock>> {
    match within {
        None => LabLock::take().map(Some),
        Some(holder) => test::die_with_parent(holder).map(|()| None),
    }
}
