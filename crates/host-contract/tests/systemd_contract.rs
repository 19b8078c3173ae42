//! The suite on a machine that systemd has booted, and behaviour that only such a machine has.
//!
//! Cases use the machine as an agent does: they write to `/etc`, start units and clear the journal. So the suite runs only on a disposable
//! node, which `GPUAAS_ON_BOOTED_NODE=1` marks; elsewhere it runs nothing and prints that. On the node, `contract-node` must be in the
//! folder of the test binary.

#![allow(clippy::unwrap_used, reason = "every function here is part of a test")]

#[path = "systemd/bus.rs"]
mod bus;
#[path = "systemd/machine.rs"]
mod machine;

use std::process::ExitCode;

use gpuaas_host_contract::{Case, cases};
use libtest_mimic::{Arguments, Trial};
use machine::Machine;

/// Set to `1` on a machine that the cases may change.
const CONSENT: &str = "GPUAAS_ON_BOOTED_NODE";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let all: Vec<(&str, Case)> = cases().into_iter().chain(bus::cases()).collect();
    if std::env::var(CONSENT).as_deref() != Ok("1") && !arguments.list {
        println!("NOT RUN: {} cases of the host contract on systemd, because {CONSENT} is not 1", all.len());
        return ExitCode::SUCCESS;
    }
    // All cases share one machine.
    arguments.test_threads = Some(1);
    let trial = |(name, case): (&'static str, Case)| {
        Trial::test(name, move || {
            let machine = Machine::cleared();
            gpuaas_host_contract::run(case(&machine));
            Ok(())
        })
    };
    libtest_mimic::run(&arguments, all.into_iter().map(trial).collect()).exit_code()
}
