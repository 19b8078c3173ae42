//! A fault: what went wrong on a node or in a cluster, with its evidence and its next action.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, state::text_enum};

text_enum! {
    /// What a fault allows; decides `recovery` and who acts.
    FaultClass {
        /// The same step may be repeated as it is.
        Retryable = "retryable",
        /// A person may choose a repair that the platform carries out.
        Repairable = "repairable",
        /// A person must change something outside the platform.
        Manual = "manual",
        /// Nothing helps but decommission.
        Terminal = "terminal",
    }
}

/// Why something failed, as shown under WHY, EVIDENCE and NEXT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Stable code with a page under `docs/errors/`.
    pub code: String,
    /// What it allows.
    pub class: FaultClass,
    /// One sentence: what happened to whom.
    pub summary: String,
    /// What was seen, if anything was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<Evidence>,
    /// What to do.
    pub next: NextAction,
}

/// What was seen, where and when; bounded to [`Evidence::TEXT_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Where it was seen, for example `journal rke2-agent`.
    pub source: String,
    /// When, if the source says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Timestamp>,
    /// The line itself.
    pub text: String,
}

/// What stands where prose was cut.
pub const CUT_MARK: &str = " …[cut]";

/// The next action a person has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextAction {
    /// One sentence.
    pub text: String,
    /// A command line that does it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}

impl Evidence {
    /// Longest evidence kept, in bytes.
    pub const TEXT_BYTES_MAX: usize = 1_024;

    /// Evidence with its text cut to the limit at a character boundary, and [`CUT_MARK`] where it was.
    pub fn new(source: impl Into<String>, at: Option<Timestamp>, text: &str) -> Self {
        let text = match text.len() <= Self::TEXT_BYTES_MAX {
            true => text.to_owned(),
            false => {
                let end = text.floor_char_boundary(Self::TEXT_BYTES_MAX - CUT_MARK.len());
                format!("{}{CUT_MARK}", &text[..end])
            }
        };
        Self { source: source.into(), at, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_cut_at_a_character() {
        let whole = "ü".repeat(Evidence::TEXT_BYTES_MAX / 2);
        assert_eq!(Evidence::new("journal", None, &whole).text, whole);
        for before in ["", "x"] {
            let cut = Evidence::new("journal", None, &format!("{before}{whole}ü")).text;
            assert!(cut.len() > Evidence::TEXT_BYTES_MAX - 2 && cut.len() <= Evidence::TEXT_BYTES_MAX, "{}", cut.len());
            assert!(cut.ends_with(CUT_MARK));
        }
    }
}
