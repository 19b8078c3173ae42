//! `cargo xtask lab`: real nodes on this machine, each a booted systemd with a network, processes and cgroups of its own. `docs/lab.md` says what
//! it needs, what it does to the machine, and what it leaves.
//!
//! Guarantees: one lab on a machine at a time, changed by one command at a time. What is about to be made is written down first, so that `down`
//! leaves nothing of it, however the lab ended.
//!
//! Deliberately absent: what runs on the nodes; tests bring it along.

mod cgroups;
mod control;
mod dns;
mod down;
mod hosts_file;
mod inventory;
mod kind;
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
mod rootfs;
mod state;
mod status;
mod supervisor;
mod test;
mod thing;
mod tree;
mod turn;
mod up;

use anyhow::ensure;
use camino::Utf8PathBuf;

use name::NodeName;
use refusal::Refusal;
use turn::Turn;

/// What may be done with a lab.
#[derive(clap::Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(crate) enum Chore {
    /// Boots nodes, and says what this machine lacks and what was done about it. Repeated, it starts nodes that are off.
    Up(UpOptions),
    /// Says what is there and how it fares.
    Status,
    /// Runs a shell in a node, or a command.
    Shell(ShellOptions),
    /// Boots nodes, tests on them, and proves that nothing of them is left.
    Test(test::Options),
    /// Removes the lab, also one that died.
    Down,
    /// What there is on this machine that a lab might leave behind, and what of it is new since an earlier inventory.
    #[command(hide = true)]
    Inventory(InventoryOptions),
    /// Boots a node again and again; `up` starts it.
    #[command(hide = true)]
    Supervise { node: NodeName },
    /// Tells one story on the lab that is up; `test` starts it.
    #[command(hide = true)]
    Story(test::StoryOptions),
}

const EXIT_CODES: &str = "Exit codes: 3 this machine or this user cannot hold a lab, 4 another lab command is at work, 5 another lab or the remains \
                          of one are in the way, 6 no such lab or node, or the node is off, 7 a node did not boot, 8 something was left behind, \
                          130 interrupted.";

/// How many.
#[derive(clap::Args)]
pub(crate) struct UpOptions {
    /// Nodes, named node-1, node-2, ….
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(up::NODES_MAX)))]
    nodes: u8,
    /// This process, which has the turn, starts it and must outlive it.
    #[arg(long, hide = true, value_name = "PID")]
    within: Option<i32>,
}

/// Where, and what.
#[derive(clap::Args)]
pub(crate) struct ShellOptions {
    /// The node.
    node: NodeName,
    /// A command and its words instead of a shell.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Against what.
#[derive(clap::Args)]
pub(crate) struct InventoryOptions {
    /// An earlier inventory; without it this one is printed.
    #[arg(long, value_name = "FILE")]
    since: Option<Utf8PathBuf>,
}

/// The chore; ends the program where its exit code says more than that it failed.
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

/// Measures on booted nodes, as `cargo xtask bench lab` has it.
pub(crate) fn measure(runs: u8, profile: &str) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(packages::advice()));
    test::measure(runs, profile)
}

fn carry_out(chore: Chore) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(packages::advice()));
    match chore {
        Chore::Up(options) => {
            let _turn = turn(options.within)?;
            up::run(options.nodes)
        }
        Chore::Status => status::run(),
        Chore::Shell(options) => Err(node::Lab::there()?.node(&options.node)?.become_shell(&options.command)),
        Chore::Test(options) => test::run(&options).map(drop),
        Chore::Down => {
            let _turn = Turn::take()?;
            down::run()
        }
        Chore::Inventory(options) => inventory::run(options.since.as_deref()),
        Chore::Supervise { node } => supervisor::run(&node),
        Chore::Story(options) => test::tell(&options),
    }
}

/// Whether this machine and this user can hold a lab, and if not why. Root has missing packages installed by it.
pub(crate) fn can_hold() -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Refusal::NotRoot(String::new()));
    packages::ensure()?;
    probe::machine().map(drop)
}

/// Makes what these acts of `test` need: playing them then finds it.
pub(crate) fn prepare(acts: &[&str]) -> anyhow::Result<()> {
    test::prepare(&test::Options::of(acts))
}

/// Plays these acts of `test`; returns how many of their checks held.
pub(crate) fn play(acts: &[&str]) -> anyhow::Result<u32> {
    test::run(&test::Options::of(acts))
}

/// The lab's turn, or the life of the process that has it: without that one, this one ends too.
fn turn(within: Option<i32>) -> anyhow::Result<Option<Turn>> {
    match within {
        None => Turn::take().map(Some),
        Some(holder) => test::bound_to(holder).map(|()| None),
    }
}
