//! Shifted clocks for single programs: a node shares this machine's clock and cannot set it, so libfaketime is preloaded into the programs
//! whose clock should be off.
//!
//! Guarantees: no system clock changes; programs started without the library see this machine's time.

use std::fs;

use anyhow::Context;
use camino::Utf8PathBuf;

use super::command_output::CommandOutput;
use crate::{node::Node, packages};

/// Path of the library on a node.
const IN_NODE: &str = "/usr/local/lib/libfaketime.so.1";

/// A clock that is off by `offset`.
pub(super) struct ShiftedClock {
    library: Utf8PathBuf,
    offset: &'static str,
}

impl ShiftedClock {
    /// Returns a clock with this offset, for example `+10m`.
    pub(super) fn at(offset: &'static str) -> anyhow::Result<Self> {
        Ok(Self { library: packages::faketime()?, offset })
    }

    /// Environment for programs on this machine.
    pub(super) fn environment(&self) -> [(&'static str, String); 4] {
        self.environment_for(self.library.as_str())
    }

    fn environment_for(&self, library: &str) -> [(&'static str, String); 4] {
        [
            ("LD_PRELOAD", library.to_owned()),
            ("FAKETIME", self.offset.to_owned()),
            // Timeouts keep their real length.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
    }

    /// Copies the library to a node.
    pub(super) fn copy_to(&self, node: &Node) -> anyhow::Result<()> {
        let path = node.root().join(IN_NODE.trim_start_matches('/'));
        fs::copy(&self.library, &path).with_context(|| format!("{} to {path}", self.library)).map(drop)
    }

    /// Runs a script in a node's shell under this clock.
    pub(super) fn run_script(&self, node: &Node, text: &str) -> anyhow::Result<CommandOutput> {
        self.copy_to(node)?;
        let set: Vec<String> =
            self.environment_for(IN_NODE).iter().map(|(name, value)| format!("{name}={value}")).collect();
        let words: Vec<&str> =
            std::iter::once("env").chain(set.iter().map(String::as_str)).chain(["sh", "-c", text]).collect();
        Ok(node.run(&words)?.into())
    }
}
