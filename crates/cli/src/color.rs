//! Colours of states and marks, on terminals that want them.

use std::{
    env,
    io::IsTerminal,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use anstyle::{AnsiColor, Style};
use clap::{ValueEnum, builder::StyledStr};

/// Whether to print colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Also in files and pipes
    Always,
    /// Never
    Never,
}

static ON_STDOUT: AtomicBool = AtomicBool::new(false);
static ON_STDERR: AtomicBool = AtomicBool::new(false);

/// Decides for the whole process whether stdout and stderr get colours.
pub(crate) fn init(when: When) {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    let wanted = |is_terminal: bool| match when {
        When::Auto => is_terminal && !refused,
        When::Always => true,
        When::Never => false,
    };
    ON_STDOUT.store(wanted(std::io::stdout().is_terminal()), Relaxed);
    ON_STDERR.store(wanted(std::io::stderr().is_terminal()), Relaxed);
}

/// Colours a text for stdout by the state that it names.
pub(crate) fn state(text: &str) -> String {
    let colour = match text {
        "active" | "alive" | "connected" | "healthy" | "ready" | "succeeded" | "yes" => AnsiColor::Green,
        "failed" | "lost" | "release_failed" | "revoked" | "unreachable" | "refused" => AnsiColor::Red,
        "backoff" | "degraded" | "deploying" | "needs_attention" | "needs_reimage" | "progressing" | "stale"
        | "waiting" => AnsiColor::Yellow,
        _ => return text.to_owned(),
    };
    painted(ON_STDOUT.load(Relaxed), colour, text)
}

/// Formats a help text for stdout: with its styles where stdout gets colours.
pub(crate) fn styled(text: &StyledStr) -> String {
    if ON_STDOUT.load(Relaxed) { text.ansi().to_string() } else { text.to_string() }
}

/// Colours a mark or a word for stderr: green if it is good, otherwise red.
pub(crate) fn mark(text: &str, is_good: bool) -> String {
    painted(ON_STDERR.load(Relaxed), if is_good { AnsiColor::Green } else { AnsiColor::Red }, text)
}

fn painted(wanted: bool, colour: AnsiColor, text: &str) -> String {
    let style: Style = colour.on_default();
    if wanted { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_surrounds_the_text() {
        assert_eq!(painted(true, AnsiColor::Red, "failed"), "\u{1b}[31mfailed\u{1b}[0m");
        assert_eq!(painted(false, AnsiColor::Red, "failed"), "failed");
    }
}
