//! Reads the settings of the control plane: from flags, environment variables and a configuration file, whose keys are the long names of the
//! flags, so there is one list of settings. A flag overrides its environment variable, which overrides the file, which overrides the default.
//!
//! Guarantees: an unknown key is an error that names it; a value is parsed by the same parser as its flag; every mistake is found at once.

use std::{
    any::TypeId,
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{
    Arg, ArgMatches, Command, FromArgMatches,
    builder::{OsStringValueParser, Resettable},
    error::ErrorKind,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};
use gpuaas_model::ExitStatus;

use crate::{
    cli::Cli,
    color, help, output,
    setting::{SETTINGS, Setting},
    settings_file::{self, Entries, Entry, InvalidSettings, Mistake},
    suggestions,
    target::{Format, ProjectSource, Target},
};

/// Flags of one run that are not settings of the control plane.
const NOT_SETTINGS: [&str; 4] = ["config", "reinitialize", "ready_file", "lifeline"];

/// Reason why a command line is not run.
#[derive(Debug)]
pub(crate) enum Rejected {
    /// Mistakes in the command line itself, or a request for help.
    Usage(Box<clap::Error>),
    /// Mistakes in settings of the control plane.
    Settings {
        target: Box<Target>,
        error: InvalidSettings,
        /// The settings as they were given, for `check-config`; otherwise empty.
        settings: Vec<Setting>,
    },
}

impl From<clap::Error> for Rejected {
    fn from(error: clap::Error) -> Self {
        Self::Usage(Box::new(error))
    }
}

impl Rejected {
    /// Prints the reason and returns the exit status.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Usage(error) => match error.print().context("cannot write to standard output") {
                Err(lost) if !error.use_stderr() => output::report_error(&lost, Format::Table, ""),
                _ => output::exit(if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Done }),
            },
            Self::Settings { target, error, settings } => {
                color::init(target.color);
                if !settings.is_empty()
                    && let Err(error) = output::list(target.output, &settings, SETTINGS, |setting| setting.key.clone())
                {
                    return output::report_error(&error, target.output, "");
                }
                output::report_error(&error.into(), target.output, "")
            }
        }
    }
}

/// Parses the command line. For `gpuaas server`, values from the configuration file replace the defaults.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Cli, Vec<Setting>), Rejected> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = help::command();
    let unchecked = with_settings(command.clone(), |argument| argument.value_parser(OsStringValueParser::new()));
    let raw = unchecked.try_get_matches_from(&arguments).map_err(|error| {
        let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        suggestions::improve(error, &command, &words)
    })?;
    let Some(server) = raw.subcommand_matches("server") else {
        return Ok((read(&raw)?, Vec::new()));
    };
    let known: Vec<&str> = arguments_of(&command).map(|argument| argument.get_id().as_str()).collect();
    let (file, mut mistakes) = match server.get_one::<std::path::PathBuf>("config") {
        Some(path) => settings_file::read(path, &known),
        None => (Entries::new(), Vec::new()),
    };
    mistakes.extend(wrong_values(&command, server, &file));
    // Those of the file first, in the order of its lines.
    mistakes
        .sort_by_key(|mistake| mistake.at.rsplit(':').next().and_then(|line| line.parse().ok()).unwrap_or(usize::MAX));
    let settings: Vec<Setting> = arguments_of(&command).map(|argument| setting(argument, server, &file)).collect();
    if mistakes.is_empty() {
        let with_file = with_settings(command, |argument| match file.get(argument.get_id().as_str()) {
            // Leaked: clap wants `'static`, and the command line is built once per process.
            Some(entry) => argument.default_value(&*entry.value.clone().leak()),
            None => argument,
        });
        return Ok((read(&with_file.try_get_matches_from(&arguments)?)?, settings));
    }
    let is_check = server.subcommand_name() == Some("check-config");
    Err(Rejected::Settings {
        target: Box::new(Target::from_arg_matches(&raw)?),
        error: InvalidSettings { mistakes },
        settings: if is_check { settings } else { Vec::new() },
    })
}

fn read(matches: &ArgMatches) -> Result<Cli, clap::Error> {
    let mut cli = Cli::from_arg_matches(matches)?;
    if cli.target.timeout.is_some() && !cli.command.takes_timeout() {
        let message =
            "--timeout limits how long a command waits for a control plane; server and dev do not wait for one";
        return Err(help::command().error(ErrorKind::ArgumentConflict, message));
    }
    if matches.value_source("project") == Some(ValueSource::EnvVariable) {
        cli.target.project_source = ProjectSource::Environment;
    }
    Ok(cli)
}

fn is_setting(argument: &Arg) -> bool {
    !NOT_SETTINGS.contains(&argument.get_id().as_str())
}

/// Changes the arguments that are settings.
fn with_settings(command: Command, change: impl Fn(Arg) -> Arg) -> Command {
    command.mut_subcommand("server", |server| {
        server.mut_args(|argument| if is_setting(&argument) { change(argument) } else { argument })
    })
}

/// Returns the arguments of `gpuaas server` that are settings.
fn arguments_of(command: &Command) -> impl Iterator<Item = &Arg> {
    let server = command.find_subcommand("server").expect("the command line has `server`");
    server.get_arguments().filter(|argument| is_setting(argument))
}

/// Checks the value of every setting that a flag, a variable or the file gives, each for itself.
fn wrong_values(command: &Command, server: &ArgMatches, file: &Entries) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for argument in arguments_of(command) {
        let id = argument.get_id().as_str();
        let key = id.replace('_', "-");
        let of_value = |value: OsString| problem(argument, &value);
        let given = place(argument, server).map(|at| (at, raw_value(server, id).and_then(of_value)));
        let in_file = file.get(id).map(|Entry { value, is_string, at }| {
            let is_unquoted = !is_string && takes_any_text(argument);
            let unquoted = is_unquoted.then(|| format!("{key} must be a string: write {value:?}"));
            (at.clone(), unquoted.or_else(|| problem(argument, OsStr::new(value))))
        });
        for (at, detail) in given.into_iter().chain(in_file) {
            mistakes.extend(detail.map(|detail| Mistake { at, key: Some(key.clone()), detail }));
        }
    }
    mistakes
}

/// Reports whether an argument takes every text, so that its parser refuses no number.
fn takes_any_text(argument: &Arg) -> bool {
    let parsed = argument.get_value_parser().type_id();
    parsed == TypeId::of::<PathBuf>() || parsed == TypeId::of::<String>()
}

/// Returns the flag or the variable that gives a setting's value, if one does.
fn place(argument: &Arg, server: &ArgMatches) -> Option<String> {
    match server.value_source(argument.get_id().as_str())? {
        ValueSource::CommandLine => Some(format!("--{}", argument.get_long()?)),
        ValueSource::EnvVariable => argument.get_env().map(|name| name.to_string_lossy().into_owned()),
        _ => None,
    }
}

/// Returns the values of an argument as they were given, separated by commas.
fn raw_value(server: &ArgMatches, id: &str) -> Option<OsString> {
    Some(server.get_raw(id)?.collect::<Vec<_>>().join(OsStr::new(",")))
}

/// Returns what is wrong with a value, by the parser of its flag.
fn problem(argument: &Arg, value: &OsStr) -> Option<String> {
    let long = argument.get_long()?;
    let alone = argument.clone().env(Resettable::Reset).default_value(Resettable::Reset).global(false);
    let mut flag = OsString::from(format!("--{long}="));
    flag.push(value);
    let error = Command::new("settings").no_binary_name(true).arg(alone).try_get_matches_from([flag]).err()?;
    let value = value.to_string_lossy();
    let why = match (std::error::Error::source(&error), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(valid))) => format!("use one of {}", valid.join(", ")),
        (None, _) => "not a valid value".to_owned(),
    };
    Some(if !value.is_empty() && why.contains(&*value) { why } else { format!("{value:?}: {why}") })
}

fn setting(argument: &Arg, server: &ArgMatches, file: &Entries) -> Setting {
    let id = argument.get_id().as_str();
    let given = place(argument, server);
    let raw = || raw_value(server, id).map(|value| value.to_string_lossy().into_owned());
    let (value, from, at) = match (given, file.get(id)) {
        (Some(at), _) => {
            let is_flag = server.value_source(id) == Some(ValueSource::CommandLine);
            (raw(), if is_flag { "flag" } else { "environment" }, Some(at))
        }
        (None, Some(entry)) => (Some(entry.value.clone()), "file", Some(entry.at.clone())),
        (None, None) => (raw(), "default", None),
    };
    Setting { key: id.replace('_', "-"), value, from: from.to_owned(), at }
}

#[cfg(test)]
mod tests;
