//! The suite on a machine that systemd has booted, and what only such a machine promises.
//!
//! A case uses the machine as an agent does: it writes to `/etc`, starts units and clears the journal. So this runs on a node that is thrown
//! away afterwards, which `GPUAAS_ON_BOOTED_NODE=1` says; elsewhere it runs nothing, and tells. `contract-node` lies beside it there.

#![allow(clippy::unwrap_used, reason = "every function here is part of a test")]

#[path = "systemd/bus.rs"]
mod bus;
#[path = "systemd/machine.rs"]
mod machine;

use std::process::ExitCode;

use gpuaas_host_contract::{Case, cases};
use libtest_mimic::{Arguments, Trial};
use machine::Machine;

/// Says that this machine may be used up.
const CONSENT: &str = "GPUAAS_ON_BOOTED_NODE";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let all: Vec<(&str, Case)> = cases().into_iter().chain(bus::cases()).collect();
    if std::env::var(CONSENT).as_deref() != Ok("1") && !arguments.list {
        println!("NOT RUN: {} cases of the host contract on systemd, for {CONSENT} is not 1", all.len());
        return ExitCode::SUCCESS;
    }
    // All of them use the one machine.
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
