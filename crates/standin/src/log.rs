//! Writes log lines in the format of RKE2's logger to standard error, which systemd sends to the journal.
//!
//! Callers pass addresses, names and reasons, never tokens or passwords.

use std::fmt::{Arguments, Write as _};
use std::io::Write as _;

/// Writes one line. Ignores failures, so that a closed standard error does not stop the node.
pub(crate) fn line(level: &str, message: Arguments<'_>) {
    line_with(level, &message.to_string(), &[]);
}

/// Writes one line with fields after the message, such as `error="…"`.
pub(crate) fn line_with(level: &str, message: &str, fields: &[(&str, String)]) {
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    bare(&render(&time, level, message, fields));
}

/// Writes a line that another program formatted: etcd, klog, the kernel. Without time and level.
pub(crate) fn bare(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Formats `time="…" level=info msg="…"` and the fields, with every value escaped as by Go's `%q`.
fn render(time: &str, level: &str, message: &str, fields: &[(&str, String)]) -> String {
    let mut out = format!("time=\"{time}\" level={level} msg={}", quoted(message));
    for (name, value) in fields {
        // Writing to a String cannot fail.
        let _ = write!(out, " {name}={}", quoted(value));
    }
    out
}

/// Quotes and escapes a text as Go's `%q` does.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

macro_rules! info { ($($part:tt)*) => { $crate::log::line("info", format_args!($($part)*)) }; }
macro_rules! warning { ($($part:tt)*) => { $crate::log::line("warning", format_args!($($part)*)) }; }
macro_rules! error { ($($part:tt)*) => { $crate::log::line("error", format_args!($($part)*)) }; }
macro_rules! fatal { ($($part:tt)*) => { $crate::log::line("fatal", format_args!($($part)*)) }; }
pub(crate) use {error, fatal, info, warning};

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn a_quote_inside_a_message_is_escaped_as_the_real_journal_shows_it() {
        assert_eq!(
            render("2026-01-02T03:04:05Z", "error", "Get \"https://h/cacerts\": EOF", &[("url", "wss://h".to_owned())]),
            "time=\"2026-01-02T03:04:05Z\" level=error msg=\"Get \\\"https://h/cacerts\\\": EOF\" url=\"wss://h\""
        );
    }

    #[test]
    fn message_is_always_one_line() {
        assert!(!render("t", "info", "a\nb\u{1b}c", &[("x", "\n".to_owned())]).contains('\n'));
    }
}
