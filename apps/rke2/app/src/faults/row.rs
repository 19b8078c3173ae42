//! A row of the table of failures.

use gpuaas_model::{Evidence, Fault};

use super::remedy::{Remedy, Subject};

/// A kind of failure. Two rows may have the same code if two kinds of lines show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRow {
    /// Stable code with a page under `docs/errors/`.
    pub code: &'static str,
    /// Rows of the survey of public failure reports; empty for failures that it does not list.
    pub survey: &'static [u8],
    /// Texts; a line with any of them shows this failure. Lines are read without backslashes, so that escaped quotes match, too.
    pub symptoms: &'static [&'static str],
    /// Texts of which the line must contain one as well; none if empty.
    pub with: &'static [&'static str],
    /// Text that an earlier line of the journal must contain.
    pub preceded_by: Option<&'static str>,
    /// Where in the journal the symptoms count.
    pub counts: Counts,
    /// How much of them it takes.
    pub proof: Proof,
    /// Number of symptoms after which waiting longer is pointless; `None` if only the end of the start decides.
    pub decisive_after: Option<u32>,
    /// True if a wrong clock causes the same lines.
    pub blames_clock: bool,
    /// True if the condition of a KubeNode that is not Ready may contain a symptom.
    pub in_conditions: bool,
    /// Description of the failure.
    pub summary: &'static str,
    /// Cure until the first deployment has ended with a usable cluster.
    pub deploying: Remedy,
    /// Cure from then on.
    pub deployed: Remedy,
    /// Why this is the cure.
    pub why: &'static str,
}

/// Where in a journal the symptoms of a row count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Everywhere.
    Always,
    /// Outside of these spans.
    Except(&'static [LogSpan]),
    /// Only within one of these spans that the journal does not leave again: what was left has passed.
    During(&'static [LogSpan]),
}

/// A span of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpan {
    /// Text in its first line.
    pub from: &'static str,
    /// Text in the first line after it. Every line contains the empty text, so that such a span has one line.
    pub until: &'static str,
}

/// How much of a symptom it takes. Lines that healthy starts contain, too, prove nothing by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// One line.
    Line,
    /// One line, unless RKE2 reported after its last start that it is up.
    Waiting,
    /// [`Proof::REPEATS`] lines, or fewer until the deadline; none if RKE2 reported after its last start that it is up.
    Repeated,
    /// Lines until the deadline, or for [`Proof::LASTS_MS`]; none if RKE2 reported after its last start that it is up.
    Lasting,
    /// [`Proof::OFTEN`] lines, or one that reports a duration of at least [`Proof::SLOW_MS`].
    Slow,
}

impl Proof {
    /// An agent asks its server every five to ten seconds, and a server needs less than a minute to answer.
    pub const REPEATS: usize = 10;
    /// Healthy starts were seen with such lines for 35 s.
    pub const LASTS_MS: i64 = 120_000;
    /// Single warnings of etcd near its limit of 100 ms are ordinary while a server starts.
    pub const OFTEN: usize = 20;
    /// The time that etcd itself calls slow for a flush to disk.
    pub const SLOW_MS: u64 = 1_000;
}

impl FaultRow {
    /// Returns a row that one line shows. [`Self::cured`] and [`Self::says`] complete it.
    pub(super) const fn new(code: &'static str, survey: &'static [u8], symptoms: &'static [&'static str]) -> Self {
        Self {
            code,
            survey,
            symptoms,
            with: &[],
            preceded_by: None,
            counts: Counts::Always,
            proof: Proof::Line,
            decisive_after: None,
            blames_clock: false,
            in_conditions: false,
            summary: "",
            deploying: Remedy::ReadLog,
            deployed: Remedy::ReadLog,
            why: "",
        }
    }

    pub(super) const fn with(self, with: &'static [&'static str]) -> Self {
        Self { with, ..self }
    }

    pub(super) const fn preceded_by(self, text: &'static str) -> Self {
        Self { preceded_by: Some(text), ..self }
    }

    pub(super) const fn counts(self, counts: Counts) -> Self {
        Self { counts, ..self }
    }

    pub(super) const fn proven(self, proof: Proof) -> Self {
        Self { proof, ..self }
    }

    pub(super) const fn decisive_after(self, times: u32) -> Self {
        Self { decisive_after: Some(times), ..self }
    }

    pub(super) const fn blames_clock(self) -> Self {
        Self { blames_clock: true, ..self }
    }

    pub(super) const fn in_conditions(self) -> Self {
        Self { in_conditions: true, ..self }
    }

    pub(super) const fn says(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    /// Sets the cure and its reason. What a repair cures later, a resume cures before there is a cluster.
    pub(super) const fn cured(self, remedy: Remedy, why: &'static str) -> Self {
        let deploying = match remedy {
            Remedy::Repair(reason) => Remedy::Resume(reason),
            other => other,
        };
        Self { deploying, deployed: remedy, why, ..self }
    }

    /// Sets another cure for the time of the first deployment.
    pub(super) const fn while_deploying(self, remedy: Remedy) -> Self {
        Self { deploying: remedy, ..self }
    }

    /// Returns the cure for this subject.
    pub const fn remedy(&self, of: &Subject<'_>) -> Remedy {
        match if of.is_deployed { self.deployed } else { self.deploying } {
            Remedy::Repair(reason) if of.is_leaving => Remedy::Resume(reason),
            remedy => remedy,
        }
    }

    /// Returns a fault of this kind.
    pub(crate) fn fault(&self, of: &Subject<'_>, evidence: Option<Evidence>) -> Fault {
        let remedy = self.remedy(of);
        Fault {
            code: self.code.to_owned(),
            class: remedy.class(),
            summary: format!("{}: {}", of.member, self.summary),
            evidence,
            next: remedy.next(of),
        }
    }
}
