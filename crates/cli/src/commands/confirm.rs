//! `--yes` and `--dry-run`: confirmation of commands that destroy something.
//!
//! A command asks only where a person can answer. Anywhere else it needs `--yes`, so that a script says what it wants.

use std::io::{IsTerminal, Write};

use clap::Args;
use serde::Serialize;

use crate::{
    output::{self, ConfirmationRequired},
    target::Target,
    text::Text,
};

/// Flags of a command that destroys something.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Confirm {
    /// Do not ask for confirmation; required without a terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print what would happen, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What a command would destroy, in words.
pub(crate) struct Loss {
    /// The act with its object, for example `revoke token ci`.
    pub(crate) act: String,
    /// What is lost, in whole sentences.
    pub(crate) lost: String,
    /// More about it for a dry run, for example a plan; empty if there is no more.
    pub(crate) details: Text,
}

impl Loss {
    pub(crate) fn new(act: impl Into<String>, lost: impl Into<String>) -> Self {
        Self { act: act.into(), lost: lost.into(), details: Text::default() }
    }

    fn question(&self) -> String {
        let mut letters = self.act.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
        format!("{first}{}? {}\nContinue? [y/N] ", letters.as_str(), self.lost)
    }

    fn dry_run(&self) -> Text {
        let mut text = Text::from(format!("Would {}. {}", self.act, self.lost));
        if !self.details.is_empty() {
            text.push_str("\n");
            text.push(&self.details);
        }
        text
    }
}

impl Confirm {
    /// Refuses a command that would have to ask where nobody can answer.
    pub(super) fn check(self) -> anyhow::Result<()> {
        let must_ask = !self.yes && !self.dry_run;
        if must_ask && (!std::io::stdin().is_terminal() || !output::is_interactive()) {
            return Err(ConfirmationRequired.into());
        }
        Ok(())
    }

    /// Returns whether the command may act: yes with `--yes`, otherwise if a person says so. `preview` asks the control plane, so that what it
    /// would refuse is refused before the question. A dry run prints the preview and returns `false`.
    pub(crate) async fn allows<T: Serialize, E>(
        self,
        target: &Target,
        preview: impl Future<Output = Result<T, E>>,
        loss: impl FnOnce(&T) -> Loss,
        name: &str,
    ) -> anyhow::Result<bool>
    where
        anyhow::Error: From<E>,
    {
        if self.yes && !self.dry_run {
            return Ok(true);
        }
        self.check()?;
        let preview = preview.await?;
        if self.dry_run {
            output::one(target.output, &preview, |preview| loss(preview).dry_run(), name)?;
            return Ok(false);
        }
        ask(&loss(&preview).question()).await?;
        Ok(true)
    }
}

/// Asks on the terminal. Every answer but yes is an error, so that nothing that depends on the command follows it.
async fn ask(question: &str) -> anyhow::Result<()> {
    write!(std::io::stderr(), "{}", Text::from(question).as_str())?;
    // In a thread of its own, so that `--timeout` ends the wait for an answer.
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = answer.await??;
    if !answer.ends_with('\n') {
        // Ctrl-D leaves the cursor behind the question.
        output::message("");
    }
    anyhow::ensure!(is_yes(&answer), "not confirmed; nothing was changed");
    Ok(())
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_confirms() {
        for (answer, is_confirmed) in [("y\n", true), ("YES\r\n", true), ("\n", false), ("", false), ("yep\n", false)] {
            assert_eq!(is_yes(answer), is_confirmed, "{answer:?}");
        }
    }

    #[test]
    fn question_and_dry_run_name_the_object_and_the_loss() {
        let mut loss = Loss::new("revoke token ci", "Its holder is refused from now on.");
        assert_eq!(loss.question(), "Revoke token ci? Its holder is refused from now on.\nContinue? [y/N] ");
        assert_eq!(loss.dry_run().as_str(), "Would revoke token ci. Its holder is refused from now on.");
        loss.details = "STEP".into();
        assert_eq!(loss.dry_run().as_str(), "Would revoke token ci. Its holder is refused from now on.\nSTEP");
    }
}
