//! The report and the form of its findings.

use gpuaas_model::Check;
use gpuaas_wire::task::{Finding, PreflightReport, Severity};

/// The results of the checks so far.
#[derive(Default)]
pub(super) struct Report {
    passed: u32,
    findings: Vec<Finding>,
    checked: Vec<String>,
}

impl Report {
    /// Adds the findings of one check; a check without findings has passed.
    pub(super) fn record(&mut self, check: Check, found: impl IntoIterator<Item = Finding>) {
        let before = self.findings.len();
        self.findings.extend(found);
        self.checked.push(check.to_string());
        self.passed += u32::from(self.findings.len() == before);
    }

    /// Returns the report: blocking findings first, otherwise in the order of the checks.
    pub(super) fn finish(mut self) -> PreflightReport {
        self.findings.sort_by_key(|finding| finding.severity == Severity::Warning);
        self.findings.truncate(PreflightReport::FINDINGS_MAX);
        PreflightReport { passed: self.passed, findings: self.findings, checked: self.checked }
    }
}

/// Returns a finding that does not prevent an installation.
pub(super) fn warning(check: Check, detail: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding {
        check: check.to_string(),
        severity: Severity::Warning,
        detail: detail.into(),
        fix: fix.into(),
        evidence: None,
    }
}

/// Returns a finding that prevents an installation.
pub(super) fn blocking(check: Check, detail: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { severity: Severity::Blocking, ..warning(check, detail, fix) }
}

/// Adds evidence to a finding, unless it is empty.
pub(super) fn with_evidence(finding: Finding, evidence: impl Into<String>) -> Finding {
    let evidence = evidence.into();
    Finding { evidence: (!evidence.is_empty()).then_some(evidence), ..finding }
}

/// Joins names for a sentence: the first six, and the number of the others.
pub(super) fn listed(names: &[String]) -> String {
    const NAMED: usize = 6;
    let mut words: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = names.len().saturating_sub(NAMED);
    let rest = format!("{more} more");
    if more > 0 {
        words.push(&rest);
    }
    words.join(", ")
}
