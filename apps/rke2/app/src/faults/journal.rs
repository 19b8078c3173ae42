//! Reads the lines of a failed start, and looks for the symptoms of a row in them.
//!
//! Lines come from systemd, logrus, klog and etcd, with quotes escaped any number of times. Some were wrapped on their way, so that a
//! symptom continues in the next line.

use gpuaas_app_rke2_tasks::{GiveUp, GiveUpException};
use gpuaas_model::{Code, Timestamp};
use gpuaas_wire::task::TaskFailure;

use super::{
    row::{Counts, FaultRow, LogSpan, Proof},
    table::FAULTS,
};

/// First line of a start of RKE2.
const STARTS: &str = "Starting rke2 ";
/// Line of a server or an agent that is up.
const IS_UP: &str = "is up and running";
/// Texts with which records begin. A line that begins otherwise may continue the one before it.
const BEGINNINGS: [&str; 12] =
    ["time=", "{", "+ ", "TRAC[", "DEBU[", "INFO[", "WARN[", "ERRO[", "FATA[", "PANI[", "kubelet.log: ", "rke2-"];

/// The lines of a failed start.
pub(super) struct Journal {
    lines: Vec<Line>,
    /// True if the start ended at its deadline.
    is_late: bool,
    /// True if RKE2 reported after its last start that it is up.
    is_up: bool,
}

struct Line {
    at: Timestamp,
    text: String,
    /// Text without backslashes.
    plain: String,
    /// The plain text with that of the next line, if that continues it: wrapped inside of a word and between words.
    wrapped: Option<[String; 2]>,
}

/// A line that shows a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// Time of the line.
    pub(super) at: Timestamp,
    /// The line; with the one that continues it, if the symptom does.
    pub(super) text: String,
}

impl Journal {
    pub(super) fn of(failure: &TaskFailure) -> Self {
        let mut lines: Vec<Line> = Vec::with_capacity(failure.journal.len());
        for excerpt in &failure.journal {
            let plain = without_backslashes(&excerpt.text);
            if let Some(before) = lines.last_mut().filter(|_| !begins_record(&plain)) {
                let (first, rest) = (before.plain.trim_end(), plain.trim_start());
                before.wrapped = Some([format!("{first}{rest}"), format!("{first} {rest}")]);
            }
            lines.push(Line { at: excerpt.at, text: excerpt.text.clone(), plain, wrapped: None });
        }
        let last = |text: &str| lines.iter().rposition(|line| line.plain.contains(text));
        let is_up = last(IS_UP).is_some_and(|up| last(STARTS).is_none_or(|started| started < up));
        Self { is_up, is_late: failure.code == Code::TaskTimedOut, lines }
    }

    /// Returns the last line that shows a failure of this row, if the lines prove it.
    pub(super) fn shows(&self, row: &FaultRow) -> Option<Sighting> {
        let sightings = self.sightings(row);
        let (first, last) = (*sightings.first()?, *sightings.last()?);
        let is_proven = match row.proof {
            Proof::Line => true,
            Proof::Waiting => !self.is_up,
            Proof::Repeated => !self.is_up && (self.is_late || sightings.len() >= Proof::REPEATS),
            Proof::Lasting => {
                let lasted = self.lines[last].at.as_millis().saturating_sub(self.lines[first].at.as_millis());
                !self.is_up && (self.is_late || lasted >= Proof::LASTS_MS)
            }
            Proof::Slow => sightings.len() >= Proof::OFTEN || sightings.iter().any(|at| self.lines[*at].is_slow()),
        };
        if !is_proven {
            return None;
        }
        let line = &self.lines[last];
        let text = if has_symptom(row, &line.plain) { &line.text } else { self.symptom_at(row, last)? };
        Some(Sighting { at: line.at, text: text.to_owned() })
    }

    /// Returns the numbers of the lines with a symptom that counts.
    fn sightings(&self, row: &FaultRow) -> Vec<usize> {
        let spans: &[LogSpan] = match row.counts {
            Counts::Always => &[],
            Counts::Except(spans) | Counts::During(spans) => spans,
        };
        let mut within = vec![false; spans.len()];
        let mut is_preceded = row.preceded_by.is_none();
        let mut found = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            for (span, holds) in spans.iter().zip(&mut within) {
                *holds = line.is_within(*span, *holds);
            }
            let counts = match row.counts {
                Counts::Always => true,
                Counts::Except(_) => !within.contains(&true),
                Counts::During(_) => within.contains(&true),
            };
            if counts && is_preceded && self.symptom_at(row, number).is_some() {
                found.push(number);
            }
            if !counts && matches!(row.counts, Counts::During(_)) {
                found.clear();
            }
            is_preceded = is_preceded || row.preceded_by.is_some_and(|text| line.plain.contains(text));
        }
        found
    }

    /// Returns the text with a symptom: the line, or the line with the one that continues it.
    fn symptom_at(&self, row: &FaultRow, number: usize) -> Option<&str> {
        let line = &self.lines[number];
        if has_symptom(row, &line.plain) {
            return Some(&line.plain);
        }
        let next_alone = self.lines.get(number + 1).is_some_and(|next| has_symptom(row, &next.plain));
        line.wrapped().filter(|_| !next_alone).find(|text| has_symptom(row, text))
    }
}

impl Line {
    /// Returns the texts that this line and the one that continues it make together.
    fn wrapped(&self) -> impl Iterator<Item = &str> {
        self.wrapped.iter().flatten().map(String::as_str)
    }

    /// As [`GiveUpException::includes`], so that the diagnosis counts what the wait counted.
    fn is_within(&self, span: LogSpan, was_within: bool) -> bool {
        let begins = self.plain.contains(span.from) || self.wrapped().any(|text| text.contains(span.from));
        begins || was_within && !self.plain.contains(span.until)
    }

    /// Returns true if etcd reports a duration of at least [`Proof::SLOW_MS`].
    fn is_slow(&self) -> bool {
        let texts = std::iter::once(self.plain.as_str()).chain(self.wrapped());
        texts.filter_map(reported_ms).any(|ms| ms >= Proof::SLOW_MS)
    }
}

/// Returns the texts that end the wait for a unit early.
pub(crate) fn give_up_on() -> Vec<GiveUp> {
    let decisive = FAULTS.iter().filter_map(|row| row.decisive_after.map(|times| (row, times)));
    decisive
        .flat_map(|(row, times)| row.symptoms.iter().map(move |text| GiveUp { text: (*text).to_owned(), times }))
        .collect()
}

/// Returns the spans in which such texts do not count.
pub(crate) fn exceptions() -> Vec<GiveUpException> {
    let mut exceptions = Vec::new();
    for row in FAULTS.iter().filter(|row| row.decisive_after.is_some()) {
        let Counts::Except(spans) = row.counts else { continue };
        for text in row.symptoms {
            exceptions.extend(spans.iter().map(|span| GiveUpException {
                text: (*text).to_owned(),
                from: span.from.to_owned(),
                until: span.until.to_owned(),
            }));
        }
    }
    exceptions
}

/// Returns true if a text has a symptom of this row, wherever it stands.
pub(super) fn has_symptom(row: &FaultRow, plain: &str) -> bool {
    row.symptoms.iter().any(|symptom| plain.contains(symptom))
        && (row.with.is_empty() || row.with.iter().any(|text| plain.contains(text)))
}

/// Returns the text without backslashes: lines within lines escape their quotes once more each time.
pub(super) fn without_backslashes(text: &str) -> String {
    text.replace('\\', "")
}

/// Returns true if a line begins a record: one of logrus, etcd or systemd, of klog (`E0102 `), or one that begins with a date.
fn begins_record(plain: &str) -> bool {
    let bytes = plain.as_bytes();
    let digits = |from: usize| bytes.get(from..from + 4).is_some_and(|of| of.iter().all(u8::is_ascii_digit));
    let is_klog = bytes.first().is_some_and(|of| b"IWEF".contains(of)) && digits(1);
    let is_dated = digits(0) && bytes.get(4) == Some(&b'-');
    is_klog || is_dated || BEGINNINGS.iter().any(|text| plain.starts_with(text)) || begins_with_month(plain)
}

/// Returns true for the date of syslog, for example `Nov 18 18:32:28`.
fn begins_with_month(plain: &str) -> bool {
    const MONTHS: [&str; 12] =
        ["Jan ", "Feb ", "Mar ", "Apr ", "May ", "Jun ", "Jul ", "Aug ", "Sep ", "Oct ", "Nov ", "Dec "];
    MONTHS.iter().any(|month| plain.starts_with(month))
}

/// Returns the duration that a line of etcd reports, in milliseconds: `"took":"7.4s"`, `took too long (1.02s)`, `"time spent":"2.02s"`.
fn reported_ms(plain: &str) -> Option<u64> {
    /// Longest text between the word and its duration.
    const GAP_BYTES_MAX: usize = 24;
    let after = |word: &'static str| plain.match_indices(word).map(move |(at, _)| &plain[at + word.len()..]);
    let durations = after("took").chain(after("time spent")).filter_map(|rest| {
        let digit = rest.find(|of: char| of.is_ascii_digit()).filter(|at| *at <= GAP_BYTES_MAX)?;
        duration_ms(&rest[digit..])
    });
    durations.max()
}

/// Reads the beginning of a text as a duration in Go's form, for example `1m2.5s` or `138.49ms`.
fn duration_ms(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 7] =
        [("ms", 1.0), ("µs", 1e-3), ("us", 1e-3), ("ns", 1e-6), ("h", 3_600_000.0), ("m", 60_000.0), ("s", 1_000.0)];
    let (mut rest, mut total) = (text, None);
    while rest.starts_with(|of: char| of.is_ascii_digit()) {
        let end = rest.find(|of: char| !of.is_ascii_digit() && of != '.')?;
        let (number, unit) = rest.split_at(end);
        let Some((name, ms)) = UNITS.iter().find(|(name, _)| unit.starts_with(name)) else { break };
        total = Some(total.unwrap_or(0.0) + number.parse::<f64>().ok()? * ms);
        rest = &unit[name.len()..];
    }
    // A float is cut to the range of the integer.
    total.map(|ms| ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_etcd_are_read_in_each_form() {
        for (text, ms) in [
            (r#"{"msg":"apply request took too long","took":"138.497741ms","expected-duration":"100ms"}"#, Some(138)),
            (r#"{"msg":"slow fdatasync","took":"7.454439372s","expected-duration":"1s"}"#, Some(7_454)),
            ("read-only range request took too long (1.022704302s) to execute", Some(1_022)),
            (r#"{"msg":"request stats","start time":"x","time spent":"1m2.5s"}"#, Some(62_500)),
            ("etcdserver: it took long", None),
            ("took a while, as 12 apples show", None),
        ] {
            assert_eq!(reported_ms(text), ms, "{text}");
        }
    }

    #[test]
    fn records_are_told_from_continued_lines() {
        for begins in [
            "E0102 03:04:05.6 1 a.go:1] x",
            "time=x",
            "{\"level\"",
            "FATA[0000] x",
            "Nov 18 18:32:28 h x",
            "2026-01-02T03",
        ] {
            assert!(begins_record(begins), "{begins}");
        }
        for continues in ["cacerts\": EOF", "127.0.0.1:6444/cacerts", "Every line"] {
            assert!(!begins_record(continues), "{continues}");
        }
    }
}
