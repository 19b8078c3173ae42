//! The handlers on a sandbox node with its init: stops, masks, drift, failed starts and interrupted uninstalls. The test binary itself is
//! the init's process, and the sandbox's `systemctl`.

#![allow(clippy::unwrap_used, reason = "every function here is part of a test")]

#[path = "node/drift.rs"]
mod drift;
#[path = "node/sandbox.rs"]
mod sandbox;
#[path = "node/starts.rs"]
mod starts;
#[path = "node/stops.rs"]
mod stops;
#[path = "node/uninstalls.rs"]
mod uninstalls;

use std::process::ExitCode;

use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Trial};
use sandbox::Node;

/// A test on a fresh node.
type Case = for<'a> fn(&'a Node) -> LocalBoxFuture<'a, ()>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["init", root, address] => return sandbox::init(root, address),
        ["systemctl", ..] => return sandbox::systemctl(&words[1..]),
        _ => {}
    }
    let cases = [stops::cases(), starts::cases(), drift::cases(), uninstalls::cases()].concat();
    let trial = |(name, case): (&'static str, Case)| {
        Trial::test(name, move || {
            sandbox::run(case);
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), cases.into_iter().map(trial).collect()).exit_code()
}
