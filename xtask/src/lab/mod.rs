//! `cargo xtask lab`: real nodes on this machine, each a booted systemd with its own network, processes and cgroups. `docs/lab.md`
//! describes the requirements, the effects on the machine and the cleanup.
//!
//! Guarantees: one lab per machine, changed by one command at a time. Everything is recorded before it is created, so that `down` removes
//! all of it, however the lab ended.
//!
//! Deliberately absent: what runs on the nodes; tests install it.

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
mod nspawn;
mod packages;
mod place;
mod probe;
mod processes;
mod refusal;
mod resource;
mod rootfs;
mod state;
mod status;
mod supervisor;
mod test;
mod tree;
mod up;

use anyhow::ensure;
use camino::Utf8PathBuf;

use lock::LabLock;
use name::NodeName;
use refusal::Refusal;

/// Lab commands.
#[derive(clap::Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(crate) enum Chore {
    /// Boot the nodes, and report what this machine lacks and how the lab made up for it. Run it again to start nodes that are off.
    Up(UpOptions),
    /// Show this machine, the lab and the condition of its nodes.
    Status,
    /// Run a shell or a command in a node.
    Shell(ShellOptions),
    /// Boot nodes, run tests on them, and prove that nothing is left behind.
    Test(test::Options),
    /// Remove the lab, even after a crash.
    Down,
    /// List everything on this machine that a lab might leave behind, or only what is new since an earlier inventory.
    #[command(hide = true)]
    Inventory(InventoryOptions),
    /// Boot a node, and boot it again after every reboot; `up` starts this.
    #[command(hide = true)]
    Supervise { node: NodeName },
    /// Run one scenario on the running lab; `test` starts this.
    #[command(hide = true)]
    Scenario(test::ScenarioOptions),
}

const EXIT_CODES: &str = "Exit codes: 3 this machine or this user cannot run a lab, 4 another lab command is running, 5 another lab or remains of \
                          one exist, 6 there is no such lab or node, or the node is off, 7 a node did not boot, 8 something was left behind, \
                          130 interrupted.";

/// Options of `lab up`.
#[derive(clap::Args)]
pub(crate) struct UpOptions {
    /// Number of nodes; they are named node-1, node-2, ….
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(up::NODES_MAX)))]
    nodes: u8,
    /// PID of the process that holds the lab's lock and starts this one; this process ends with it.
    #[arg(long, hide = true, value_name = "PID")]
    within: Option<i32>,
}

/// Options of `lab shell`.
#[derive(clap::Args)]
pub(crate) struct ShellOptions {
    /// Name of the node.
    node: NodeName,
    /// Command with its arguments; without it, a login shell starts.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Options of `lab inventory`.
#[derive(clap::Args)]
pub(crate) struct InventoryOptions {
    /// File with an earlier inventory; without it, the full inventory is printed.
    #[arg(long, value_name = "FILE")]
    since: Option<Utf8PathBuf>,
}

/// Runs the command; exits the process if the error has its own exit code.
pub(crate) fn run(chore: Chore) -> anyhow::Result<()> {
    let outcome = carry_out(chore);
    if let Err(error) = &outcome
        && let Some(refusal) = error.downcast_ref::<Refusal>()
    {
        eprintln!("error: {error:#}");
        std::process::exit(refusal.exit_code());
    }
    outcome
}

/// Runs the measurements of `cargo xtask bench lab` on booted nodes.
pub(crate) fn measure(runs: u8, profile: &str) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(packages::advice()));
    test::measure(runs, profile)
}

fn carry_out(chore: Chore) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(packages::advice()));
    match chore {
        Chore::Up(options) => {
            let _lock = lock_or_bind(options.within)?;
            up::run(options.nodes)
        }
        Chore::Status => status::run(),
        Chore::Shell(options) => Err(node::Lab::open()?.node(&options.node)?.become_shell(&options.command)),
        Chore::Test(options) => test::run(&options).map(drop),
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
pub(crate) fn check_machine() -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(String::new()));
    packages::ensure()?;
    probe::machine().map(drop)
}

/// Prepares what these parts of `test` need, so that a later run finds it.
pub(crate) fn prepare(runs: &[&str]) -> anyhow::Result<()> {
    test::prepare(&test::Options::of(runs))
}

/// Runs these parts of `test`; returns the number of checks that passed.
pub(crate) fn run_tests(runs: &[&str]) -> anyhow::Result<u32> {
    test::run(&test::Options::of(runs))
}

/// Takes the lab's lock, or ties this process to the process that holds it: this one then ends with that one.
fn lock_or_bind(within: Option<i32>) -> anyhow::Result<Option<LabLock>> {
    match within {
        None => LabLock::take().map(Some),
        Some(holder) => test::die_with_parent(holder).map(|()| None),
    }
}
