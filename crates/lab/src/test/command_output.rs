//! Output of programs, commands and operations, and checks that it helps the user.
//!
//! Guarantees: a refusal passes only with its exact code, exit status and next action, and a documentation page for the code.

use std::process::Output;

use anyhow::{Context, ensure};
use gpuaas_api_types::{Fault, error_pages};

use crate::node::Node;

/// Exit status and output of a command.
#[derive(Clone, Debug)]
pub(crate) struct CommandOutput {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Self { status: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl CommandOutput {
    /// Returns stdout; fails unless the command succeeded.
    pub(crate) fn expect_success(&self) -> anyhow::Result<&str> {
        ensure!(self.status == Some(0), "the command ended with {:?}: {}", self.status, self.all());
        Ok(&self.out)
    }

    /// Does the same and checks that stdout contains all of `texts`.
    pub(crate) fn expect_success_with(&self, texts: &[&str]) -> anyhow::Result<&str> {
        let out = self.expect_success()?;
        for text in texts {
            ensure!(out.contains(text), "the output does not contain {text:?}: {}", self.all());
        }
        Ok(out)
    }

    /// Checks for a refusal with this code and exit status whose next action contains `next`. Returns it for the table.
    pub(crate) fn expect_refusal(&self, code: &str, status: i32, next: &str) -> anyhow::Result<String> {
        ensure!(
            self.status == Some(status),
            "expected {code} with exit status {status}, got {:?}: {}",
            self.status,
            self.all()
        );
        let pages = [format!("/docs/errors/{code} "), format!("see gpuaas explain {code} ")];
        ensure!(
            pages.iter().any(|page| self.err.contains(page)),
            "the error does not name {code} and its page: {}",
            self.all()
        );
        ensure!(self.err.contains(next), "the error {code} does not contain {next:?}: {}", self.all());
        check_error_page(code)?;
        Ok(format!("{code} (exit {status}): {}", self.line_with(next)))
    }

    fn line_with(&self, text: &str) -> &str {
        self.err.lines().find(|line| line.contains(text)).unwrap_or_default().trim().trim_start_matches("→ ")
    }

    fn all(&self) -> String {
        [self.out.as_str(), self.err.as_str()].join(" | ")
    }
}

/// Runs a script in the node's shell as root.
pub(crate) fn run_script(node: &Node, text: &str) -> anyhow::Result<CommandOutput> {
    Ok(node.run(&["sh", "-c", text])?.into())
}

/// Runs a script that must succeed in the node's shell; returns its trimmed stdout.
pub(crate) fn capture_script(node: &Node, text: &str) -> anyhow::Result<String> {
    node.capture(&["sh", "-c", text])
}

/// Checks that the code has a page that explains the remedy.
pub(crate) fn check_error_page(code: &str) -> anyhow::Result<()> {
    let page = error_pages::page(code).with_context(|| format!("no page docs/errors/{code}.md exists"))?;
    ensure!(page.contains("**What to do.**"), "docs/errors/{code}.md has no section `What to do.`");
    Ok(())
}

/// Checks that a reported fault has this code, and that its next action or command contains `next`. Returns it for the table.
pub(crate) fn expect_fault(reported: Option<&Fault>, code: &str, next: &str) -> anyhow::Result<String> {
    let reported = reported.with_context(|| format!("expected the fault {code}, but none is reported"))?;
    ensure!(reported.code == code, "expected the fault {code}, got {reported:?}");
    let command = reported.command.as_deref().unwrap_or_default();
    ensure!(
        reported.next.contains(next) || command.contains(next),
        "the fault {code} does not contain {next:?}: {reported:?}"
    );
    check_error_page(code)?;
    let command = if command.is_empty() { String::new() } else { format!(" ({command})") };
    Ok(format!("{code}: {}{command}", reported.next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> CommandOutput {
        let err = "error: no (host_failed)\n  do this\n  see gpuaas explain host_failed · exit status 1".to_owned();
        CommandOutput { status: Some(1), out: String::new(), err }
    }

    #[test]
    fn refusal_needs_code_status_next_action_and_page() {
        assert_eq!(
            output().expect_refusal("host_failed", 1, "do this").expect("a refusal"),
            "host_failed (exit 1): do this"
        );
        assert!(output().expect_refusal("host_failed", 4, "do this").is_err());
        assert!(output().expect_refusal("host_failed", 1, "do that").is_err());
        assert!(output().expect_refusal("disk_full", 1, "do this").is_err());
        let paged = CommandOutput { err: output().err.replace("host_failed", "never_paged"), ..output() };
        assert!(paged.expect_refusal("never_paged", 1, "do this").is_err(), "the code has no page");
    }

    #[test]
    fn fault_needs_a_next_action_or_a_command() {
        let reported = Fault {
            code: "disk_full".to_owned(),
            summary: "server-1: no room".to_owned(),
            evidence_source: None,
            evidence_at: None,
            evidence: None,
            next: "make room".to_owned(),
            command: Some("gpuaas workload resume w".to_owned()),
        };
        let check = |code: &str, next: &str| expect_fault(Some(&reported), code, next);
        assert_eq!(
            check("disk_full", "resume w").expect("the fault"),
            "disk_full: make room (gpuaas workload resume w)"
        );
        assert!(check("disk_full", "buy a disk").is_err());
        assert!(check("host_failed", "make room").is_err());
        assert!(expect_fault(None, "disk_full", "make room").is_err());
    }
}
