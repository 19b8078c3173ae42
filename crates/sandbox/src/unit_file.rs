//! Parser of unit files, for the directives that RKE2's units and the agent's use.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::sandbox::SandboxEnvironment;

/// A parsed service unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitFile {
    pub(crate) kind: Kind,
    pub(crate) condition: Vec<Exec>,
    pub(crate) start_pre: Vec<Exec>,
    pub(crate) start: Exec,
    pub(crate) stop_post: Vec<Exec>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) environment_files: Vec<(bool, Utf8PathBuf)>,
    pub(crate) restart: Restart,
    pub(crate) restart_after: Duration,
    pub(crate) kill_mode: KillMode,
    /// Zero for no limit.
    pub(crate) start_timeout: Duration,
    /// Zero for no limit.
    pub(crate) stop_timeout: Duration,
    /// Most starts within the interval; no limit if either is zero.
    pub(crate) start_limit_burst: usize,
    pub(crate) start_limit_interval: Duration,
    /// Paths that must exist (`true`) or must not (`false`).
    pub(crate) path_conditions: Vec<(bool, Utf8PathBuf)>,
    /// True if the unit has an `[Install]` directive that lets it be enabled.
    pub(crate) has_install: bool,
}

/// How a unit becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As soon as its program is started.
    Simple,
    /// With READY=1.
    Notify,
}

/// When a unit that ended is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    Never,
    OnFailure,
    Always,
}

/// The processes that a stop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillMode {
    /// Only the main process.
    Process,
    /// Every process of the unit.
    ControlGroup,
}

/// A command of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exec {
    /// True for a leading `-`: a failure is ignored.
    pub(crate) may_fail: bool,
    pub(crate) words: Vec<String>,
}

/// The reason why a unit file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnitFileError(String);

impl UnitFile {
    /// Parses the text of unit `name`, the value of `%n`, and without its suffix of `%N`.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, UnitFileError> {
        let mut unit = Self {
            kind: Kind::Simple,
            condition: Vec::new(),
            start_pre: Vec::new(),
            start: Exec { may_fail: false, words: Vec::new() },
            stop_post: Vec::new(),
            environment: Vec::new(),
            environment_files: Vec::new(),
            restart: Restart::Never,
            restart_after: Duration::from_millis(100),
            kill_mode: KillMode::ControlGroup,
            start_timeout: Duration::from_secs(90),
            stop_timeout: Duration::from_secs(90),
            // systemd's defaults.
            start_limit_burst: 5,
            start_limit_interval: Duration::from_secs(10),
            path_conditions: Vec::new(),
            has_install: false,
        };
        let mut section = "";
        for line in text.replace("\\\n", " ").lines().map(str::trim) {
            if line.starts_with('[') {
                section = line;
            } else if !line.starts_with(['#', ';'])
                && let Some((key, value)) = line.split_once('=')
            {
                let (key, value) = (key.trim(), specifiers(name, value.trim()));
                match section {
                    "[Unit]" => unit.set_unit(key, &value)?,
                    "[Service]" => unit.set(key, &value)?,
                    "[Install]" => unit.has_install |= matches!(key, "WantedBy" | "RequiredBy" | "Alias"),
                    _ => {}
                }
            }
        }
        if unit.start.words.is_empty() {
            return Err(UnitFileError(format!("{name} has no ExecStart")));
        }
        Ok(unit)
    }

    /// Returns the first unmet path condition, in the file's notation.
    pub(crate) fn unmet_path_condition(&self, environment: &SandboxEnvironment) -> Option<String> {
        let is_met = |wanted: bool, path: &Utf8Path| {
            environment.root.join(path.as_str().trim_start_matches('/')).exists() == wanted
        };
        let unmet = self.path_conditions.iter().find(|(wanted, path)| !is_met(*wanted, path))?;
        Some(format!("ConditionPathExists={}{}", if unmet.0 { "" } else { "!" }, unmet.1))
    }

    fn set_unit(&mut self, key: &str, value: &str) -> Result<(), UnitFileError> {
        match key {
            "ConditionPathExists" => {
                let path = value.trim_start_matches('!');
                self.path_conditions.push((path == value, Utf8Path::new(path).to_owned()));
            }
            "StartLimitIntervalSec" => self.start_limit_interval = seconds(value)?,
            "StartLimitBurst" => {
                self.start_limit_burst =
                    value.parse().map_err(|_| UnitFileError(format!("invalid number of starts {value}")))?;
            }
            // Descriptions and ordering have no effect; no unit here depends on another.
            _ => tracing::debug!(key, "the sandbox ignores this directive"),
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), UnitFileError> {
        match key {
            "Type" => self.kind = if value == "notify" { Kind::Notify } else { Kind::Simple },
            "ExecCondition" => self.condition.push(exec(value)?),
            "ExecStartPre" => self.start_pre.push(exec(value)?),
            "ExecStart" => self.start = exec(value)?,
            "ExecStopPost" => self.stop_post.push(exec(value)?),
            "Environment" => self.environment.extend(
                words(value)?
                    .iter()
                    .filter_map(|pair| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))),
            ),
            "EnvironmentFile" => {
                let optional = value.starts_with('-');
                self.environment_files.push((optional, Utf8Path::new(value.trim_start_matches('-')).to_owned()));
            }
            "Restart" => {
                self.restart = match value {
                    "always" => Restart::Always,
                    "on-failure" => Restart::OnFailure,
                    _ => Restart::Never,
                }
            }
            "RestartSec" => self.restart_after = seconds(value)?,
            "TimeoutStartSec" => self.start_timeout = seconds(value)?,
            "TimeoutStopSec" => self.stop_timeout = seconds(value)?,
            "KillMode" => {
                self.kill_mode = if value == "process" { KillMode::Process } else { KillMode::ControlGroup };
            }
            // Limits and delegation have no effect without cgroups; no unit here needs the others.
            _ => tracing::debug!(key, "the sandbox ignores this directive"),
        }
        Ok(())
    }
}

fn specifiers(name: &str, value: &str) -> String {
    let stem = name.strip_suffix(".service").unwrap_or(name);
    value.replace("%n", name).replace("%N", stem)
}

fn seconds(value: &str) -> Result<Duration, UnitFileError> {
    if value == "infinity" {
        return Ok(Duration::ZERO);
    }
    let number = value.strip_suffix("ms").map(|number| (number, 0.001));
    let (number, unit) = number.or_else(|| value.strip_suffix('s').map(|number| (number, 1.0))).unwrap_or((value, 1.0));
    let number: f64 = number.trim().parse().map_err(|_| UnitFileError(format!("invalid time span {value}")))?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| UnitFileError(format!("invalid time span {value}")))
}

fn exec(value: &str) -> Result<Exec, UnitFileError> {
    let (may_fail, rest) = match value.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    Ok(Exec { may_fail, words: words(rest)? })
}

/// Splits into words by the part of systemd's rules that is needed: blanks separate, both kinds of quotes group, a backslash takes the next
/// character literally.
fn words(text: &str) -> Result<Vec<String>, UnitFileError> {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (_, '\\') => {
                begun = true;
                word.extend(characters.next());
            }
            (Some(_), inside) => word.push(inside),
            (None, open @ ('"' | '\'')) => {
                begun = true;
                quote = Some(open);
            }
            (None, blank) if blank.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
            }
            (None, letter) => {
                begun = true;
                word.push(letter);
            }
        }
    }
    if quote.is_some() {
        return Err(UnitFileError(format!("unclosed quote in {text}")));
    }
    if begun {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rke2_unit_file_is_parsed() {
        let text = "[Unit]\nDescription=x\n[Service]\nType=notify\nEnvironmentFile=-/etc/default/%N\nKillMode=process\nRestart=always\n\
                    RestartSec=5s\nTimeoutStartSec=0\nExecCondition=/bin/sh -c 'if x; then exit 1; fi'\nExecStartPre=-/sbin/modprobe overlay\n\
                    ExecStart=/usr/local/bin/rke2 server\n[Install]\nWantedBy=multi-user.target\n";
        let unit = UnitFile::parse("rke2-server.service", text).unwrap();
        assert_eq!((unit.kind, unit.kill_mode, unit.restart), (Kind::Notify, KillMode::Process, Restart::Always));
        assert_eq!((unit.restart_after, unit.start_timeout), (Duration::from_secs(5), Duration::ZERO));
        assert_eq!(unit.condition[0].words, ["/bin/sh", "-c", "if x; then exit 1; fi"]);
        assert!(unit.start_pre[0].may_fail && unit.has_install);
        assert_eq!(unit.environment_files, [(true, "/etc/default/rke2-server".into())]);
    }

    #[test]
    fn a_unit_without_a_program_and_an_open_quote_are_refused() {
        assert!(UnitFile::parse("a.service", "[Service]\nType=simple\n").is_err());
        assert!(UnitFile::parse("a.service", "[Service]\nExecStart=/bin/sh -c 'x\n").is_err());
    }
}
