//! Reads the control plane's configuration file. Its keys are the long names of `gpuaas server`'s flags, so there is one list of settings.
//! A flag overrides its environment variable, which overrides the file, which overrides the default.
//!
//! Guarantees: an unknown key is an error that names it; a value is parsed by the same parser as its flag.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, error::ErrorKind, parser::ValueSource};
use serde::Serialize;

use crate::{cli::Cli, help, suggestions};

/// Flags of one run that are not settings of the control plane.
const NOT_SETTINGS: [&str; 5] = ["config", "reinitialize", "ready_file", "lifeline", "help"];

/// A setting with its effective value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Setting {
    /// Key in the file: the flag's long name without the leading dashes.
    pub(crate) key: String,
    /// Effective value, as given; absent without one.
    pub(crate) value: Option<String>,
    /// Source: `flag`, `environment`, `file` or `default`.
    pub(crate) from: String,
}

/// Parses the command line. For `gpuaas server`, values from the configuration file replace the defaults.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Cli, Vec<Setting>), clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = help::command();
    let matches = command.clone().try_get_matches_from(&arguments).map_err(|error| {
        let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        suggestions::improve(error, &command, &words)
    })?;
    let file = match config_path(&matches) {
        None => BTreeMap::new(),
        Some(path) => read(&path)?,
    };
    if file.is_empty() {
        return Ok((Cli::from_arg_matches(&matches)?, settings(&matches, &file)));
    }
    let matches = with_defaults(&file).try_get_matches_from(&arguments)?;
    Ok((Cli::from_arg_matches(&matches)?, settings(&matches, &file)))
}

fn config_path(matches: &ArgMatches) -> Option<PathBuf> {
    matches.subcommand_matches("server")?.get_one::<PathBuf>("config").cloned()
}

fn is_setting(id: &str) -> bool {
    // Global flags configure the client.
    let is_global = Cli::command().get_arguments().any(|of_all| of_all.get_id() == id);
    !NOT_SETTINGS.contains(&id) && !is_global
}

/// Returns the argument ids of `gpuaas server`'s settings.
fn setting_ids() -> Vec<String> {
    let cli = Cli::command();
    let server = cli.find_subcommand("server").expect("the command line has `server`");
    let ids = server.get_arguments().map(|argument| argument.get_id().to_string());
    ids.filter(|id| is_setting(id)).collect()
}

/// Reads the file into argument ids and their values as text.
fn read(path: &Path) -> Result<BTreeMap<String, String>, clap::Error> {
    let refuse = |why: String| Cli::command().error(ErrorKind::InvalidValue, format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    let known = setting_ids();
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let id = key.replace('-', "_");
        if !known.contains(&id) {
            let offered: Vec<String> = known.iter().map(|id| id.replace('_', "-")).collect();
            return Err(refuse(format!("{key} is not a setting; use one of {}", offered.join(", "))));
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => {
                return Err(refuse(format!("{key} must be a string with the value of its flag")));
            }
        };
        values.insert(id, value);
    }
    Ok(values)
}

/// Builds the command line with the file's values as defaults.
fn with_defaults(file: &BTreeMap<String, String>) -> Command {
    help::command().mut_subcommand("server", |mut server| {
        for (id, value) in file {
            // Leaked: clap wants `'static`, and the command line is built once per process.
            let value: &'static str = value.clone().leak();
            server = server.mut_arg(id, |argument| argument.default_value(value));
        }
        server
    })
}

fn settings(matches: &ArgMatches, file: &BTreeMap<String, String>) -> Vec<Setting> {
    let Some(server) = matches.subcommand_matches("server") else { return Vec::new() };
    let setting = |id: String| {
        let from = match server.value_source(&id) {
            Some(ValueSource::CommandLine) => "flag",
            Some(ValueSource::EnvVariable) => "environment",
            _ if file.contains_key(&id) => "file",
            _ => "default",
        };
        let values = |raw: clap::parser::RawValues<'_>| {
            raw.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(",")
        };
        let value = server.get_raw(&id).map(values);
        Setting { key: id.replace('_', "-"), value, from: from.to_owned() }
    };
    setting_ids().into_iter().map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command as Verb;

    fn parsed(file: &str, more: &[&str]) -> Result<(Cli, Vec<Setting>), String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("server.toml");
        std::fs::write(&path, file).expect("written");
        let mut arguments: Vec<OsString> = vec!["gpuaas".into(), "server".into(), "--config".into(), path.into()];
        arguments.extend(more.iter().map(OsString::from));
        parse(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn flag_overrides_file_and_file_overrides_default() {
        let file = "listen = \"127.0.0.1:1\"\nchannel-listen = \"127.0.0.1:2\"\nrke2-start-deadline = \"20m\"\n";
        let (cli, settings) = parsed(file, &["--listen", "127.0.0.1:9"]).expect("valid settings");
        let Verb::Server(server) = cli.command else { panic!("another command") };
        assert_eq!((server.listen.port(), server.channel_listen.port()), (9, 2));
        assert_eq!(server.rke2_start_deadline.as_secs(), 1_200);
        let from = |key: &str| settings.iter().find(|setting| setting.key == key).map(|setting| setting.from.as_str());
        assert_eq!(
            (from("listen"), from("channel-listen"), from("data-dir")),
            (Some("flag"), Some("file"), Some("default"))
        );
    }

    #[test]
    fn unknown_keys_and_bad_values_are_named() {
        for (file, word) in [
            ("lisen = \"127.0.0.1:1\"", "lisen is not a setting; use one of data-dir"),
            ("ready-file = \"x\"", "ready-file is not a setting"),
            ("token = \"x\"", "token is not a setting"),
            ("listen = \"nowhere\"", "nowhere"),
            ("listen = [1]", "listen must be a string"),
            ("rke2-start-deadline = \"soon\"", "soon"),
            ("keep-operatons = \"90d\"", "keep-operatons is not a setting"),
            ("keep-events = \"9s\"", "at least 10 s"),
            ("keep-audit = \"for ever\"", "nor forever"),
            ("listen", "server.toml"),
        ] {
            let refused = parsed(file, &[]).expect_err(file);
            assert!(refused.contains(word), "{file}: {refused}");
        }
        let missing = parse(["gpuaas", "server", "--config", "/nonexistent"].map(OsString::from));
        assert!(missing.expect_err("there is no such file").to_string().contains("/nonexistent"));
    }

    #[test]
    fn lists_are_separated_by_commas_and_switches_are_true_or_false() {
        const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let file = format!(
            "release-private-networks = \"10.4.0.0/16,fd00::/8\"\nrelease-trusted-keys = \"{KEY}\"\nallow-unverified-releases = true\n"
        );
        let (cli, settings) = parsed(&file, &[]).expect("valid settings");
        let Verb::Server(server) = cli.command else { panic!("another command") };
        assert_eq!((server.release_private_networks.len(), server.release_trusted_keys.len()), (2, 1));
        assert!(server.allow_unverified_releases);
        let value = |key: &str| settings.iter().find(|setting| setting.key == key).and_then(|of| of.value.clone());
        assert_eq!(value("release-private-networks").as_deref(), Some("10.4.0.0/16,fd00::/8"));
        let (cli, _) = parsed(&file, &["--allow-unverified-releases=false"]).expect("valid settings");
        let Verb::Server(server) = cli.command else { panic!("another command") };
        assert!(!server.allow_unverified_releases, "the flag does not override the file");
        let (cli, _) = parsed("", &[]).expect("valid settings");
        let Verb::Server(server) = cli.command else { panic!("another command") };
        assert!(!server.allow_unverified_releases && server.release_trusted_keys.is_empty());
        for (file, word) in [
            ("release-private-networks = \"10.4.0.0/99\"", "10.4.0.0/99"),
            ("release-trusted-keys = \"RWQ\"", "RWQ"),
            ("allow-unverified-releases = \"perhaps\"", "perhaps"),
        ] {
            let refused = parsed(file, &[]).expect_err(file);
            assert!(refused.contains(word), "{file}: {refused}");
        }
    }

    #[test]
    fn other_commands_have_no_settings() {
        let (_, settings) = parse(["gpuaas", "whoami"].map(OsString::from)).expect("valid settings");
        assert_eq!(settings, []);
    }
}
