//! Output of programs, commands and operations, and checks that it helps the user.
//!
//! Guarantees: a refusal passes only with its exact code, exit status and next action, and a documentation page for the code.

use std::{fs, process::Output};

use anyhow::{Context, ensure};
use gpuaas_api_types::Fault;

use crate::{lab::node::Node, shell};

/// Exit status and output of a command.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Self { status: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Said {
    /// Returns stdout; fails unless the command succeeded.
    pub(crate) fn well(&self) -> anyhow::Result<&str> {
        ensure!(self.status == Some(0), "it ended with {:?}: {}", self.status, self.all());
        Ok(&self.out)
    }

    /// Does the same and checks that stdout contains all of `words`.
    pub(crate) fn well_with(&self, words: &[&str]) -> anyhow::Result<&str> {
        let out = self.well()?;
        for word in words {
            ensure!(out.contains(word), "it does not say {word:?}: {}", self.all());
        }
        Ok(out)
    }

    /// Checks for a refusal with this code and exit status whose next action contains `next`. Returns it for the table.
    pub(crate) fn refused(&self, code: &str, status: i32, next: &str) -> anyhow::Result<String> {
        ensure!(self.status == Some(status), "{code} ends with {status}, not {:?}: {}", self.status, self.all());
        let reads_on = format!("see docs/errors/{code}.md");
        ensure!(self.err.contains(&reads_on) && self.err.contains(code), "{code} is not told: {}", self.all());
        ensure!(self.err.contains(next), "{code} does not say {next:?}: {}", self.all());
        must_have_page(code)?;
        Ok(format!("{code} (exit {status}): {}", self.line_with(next)))
    }

    fn line_with(&self, words: &str) -> &str {
        self.err.lines().find(|line| line.contains(words)).unwrap_or_default().trim().trim_start_matches("→ ")
    }

    fn all(&self) -> String {
        [self.out.as_str(), self.err.as_str()].join(" | ")
    }
}

/// Runs a script in the node's shell as root.
pub(crate) fn in_shell(node: &Node, text: &str) -> anyhow::Result<Said> {
    Ok(node.run(&["sh", "-c", text])?.into())
}

/// Runs a script that must succeed in the node's shell; returns its trimmed stdout.
pub(crate) fn says(node: &Node, text: &str) -> anyhow::Result<String> {
    node.says(&["sh", "-c", text])
}

/// Checks that the code has a page that explains the remedy.
pub(crate) fn must_have_page(code: &str) -> anyhow::Result<()> {
    let path = shell::root().join(format!("docs/errors/{code}.md"));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    ensure!(text.contains("**What to do.**"), "{} does not say what to do", path.display());
    Ok(())
}

/// Checks that a reported fault has this code, and that its next action or command contains `next`. Returns it for the table.
pub(crate) fn fault(told: Option<&Fault>, code: &str, next: &str) -> anyhow::Result<String> {
    let told = told.with_context(|| format!("no fault is told where {code} should be"))?;
    ensure!(told.code == code, "the fault is another one than {code}: {told:?}");
    let command = told.command.as_deref().unwrap_or_default();
    ensure!(told.next.contains(next) || command.contains(next), "{code} does not say {next:?}: {told:?}");
    must_have_page(code)?;
    let command = if command.is_empty() { String::new() } else { format!(" ({command})") };
    Ok(format!("{code}: {}{command}", told.next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Said {
        let err = "error: no (host_failed)\n  do this\n  see docs/errors/host_failed.md · exit status 1".to_owned();
        Said { status: Some(1), out: String::new(), err }
    }

    #[test]
    fn a_refusal_counts_only_as_a_whole() {
        assert_eq!(said().refused("host_failed", 1, "do this").expect("it is one"), "host_failed (exit 1): do this");
        assert!(said().refused("host_failed", 4, "do this").is_err());
        assert!(said().refused("host_failed", 1, "do that").is_err());
        assert!(said().refused("disk_full", 1, "do this").is_err());
        let paged = Said { err: said().err.replace("host_failed", "never_paged"), ..said() };
        assert!(paged.refused("never_paged", 1, "do this").is_err(), "nobody explains it");
    }

    #[test]
    fn a_fault_says_what_to_do_in_words_or_by_a_command() {
        let told = Fault {
            code: "disk_full".to_owned(),
            summary: "server-1: no room".to_owned(),
            evidence_source: None,
            evidence_at: None,
            evidence: None,
            next: "make room".to_owned(),
            command: Some("gpuaas workload resume w".to_owned()),
        };
        let said = |code: &str, next: &str| fault(Some(&told), code, next);
        assert_eq!(said("disk_full", "resume w").expect("it does"), "disk_full: make room (gpuaas workload resume w)");
        assert!(said("disk_full", "buy a disk").is_err());
        assert!(said("host_failed", "make room").is_err());
        assert!(fault(None, "disk_full", "make room").is_err());
    }
}
