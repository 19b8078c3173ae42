//! Lines of an injected fault, in the formats of the programs that log them.

use std::io::Write as _;

use camino::Utf8Path;

use crate::component::open_log;
use crate::log;

/// One line, and the log that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// RKE2 itself, in the journal.
    Rke2 { level: &'static str, message: String, fields: Vec<(&'static str, String)> },
    /// etcd or its client, as JSON in the journal. `rest` is what follows level and time: caller, message and fields.
    Etcd { level: &'static str, rest: String },
    /// A line of the journal without time and level.
    Bare(String),
    /// The kubelet, in `kubelet.log` only. `severity` is klog's letter, `source` the file and line of the call.
    Kubelet { severity: char, source: &'static str, message: String },
}

/// A line of RKE2 at level `info`.
pub(super) fn info(message: impl Into<String>) -> Line {
    Line::Rke2 { level: "info", message: message.into(), fields: Vec::new() }
}

/// A line of RKE2 at level `warning`.
pub(super) fn warning(message: impl Into<String>) -> Line {
    Line::Rke2 { level: "warning", message: message.into(), fields: Vec::new() }
}

/// A line of RKE2 at level `error`.
pub(super) fn error(message: impl Into<String>) -> Line {
    Line::Rke2 { level: "error", message: message.into(), fields: Vec::new() }
}

/// A line of RKE2 with fields.
pub(super) fn with_fields<const N: usize>(
    level: &'static str,
    message: &str,
    fields: [(&'static str, String); N],
) -> Line {
    Line::Rke2 { level, message: message.to_owned(), fields: fields.to_vec() }
}

/// A warning of etcd.
pub(super) fn etcd(rest: impl Into<String>) -> Line {
    Line::Etcd { level: "warn", rest: rest.into() }
}

/// An error of the kubelet.
pub(super) fn kubelet(source: &'static str, message: impl Into<String>) -> Line {
    Line::Kubelet { severity: 'E', source, message: message.into() }
}

impl Line {
    /// Writes the line to the journal, or to `kubelet_log`. A failure to write is ignored, as for every other log line.
    pub(super) fn write(&self, kubelet_log: &Utf8Path) {
        match self {
            Self::Rke2 { level, message, fields } => log::line_with(level, message, fields),
            Self::Etcd { level, rest } => {
                let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ");
                log::bare(&format!("{{\"level\":\"{level}\",\"ts\":\"{time}\",{rest}}}"));
            }
            Self::Bare(text) => log::bare(text),
            Self::Kubelet { severity, source, message } => {
                let time = jiff::Timestamp::now().strftime("%m%d %H:%M:%S.%6f");
                let line = format!("{severity}{time} {:>7} {source}] {message}\n", std::process::id());
                if let Ok(mut file) = open_log(kubelet_log) {
                    let _ = file.write_all(line.as_bytes());
                }
            }
        }
    }

    /// The text without time, for tests.
    #[cfg(test)]
    pub(super) fn text(&self) -> String {
        match self {
            Self::Rke2 { level, message, fields } => {
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
                format!("level={level} {message}{}", fields.concat())
            }
            Self::Etcd { rest, .. } => rest.clone(),
            Self::Bare(text) => text.clone(),
            Self::Kubelet { message, .. } => message.clone(),
        }
    }
}
