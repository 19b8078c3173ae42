//! Reads config.yaml and config.yaml.d as RKE2 does, and merges them with the command line.
//!
//! config.yaml is read first, then the files of config.yaml.d sorted by name. A later key replaces an earlier one; `key+`
//! appends. The command line overrides the files, and both override the environment ([`crate::environment`]). An unknown key
//! in a file is skipped with a warning; an unknown command-line option is an error.

use std::collections::BTreeMap;

use camino::Utf8Path;
use serde_json::Value;

use crate::flags::{self, Shape};
use crate::{log, paths};

/// The configuration file that is read unless `--config` or `RKE2_CONFIG_FILE` names another.
pub(crate) const DEFAULT_FILE: &str = "/etc/rancher/rke2/config.yaml";

/// Values of each option by option name, in the order given. A switch has one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    given: BTreeMap<String, Vec<String>>,
    /// Values from the environment, used for options that `given` lacks.
    variables: BTreeMap<String, Vec<String>>,
}

impl Options {
    /// Every value of `name`, with values split at commas, as RKE2 allows for lists.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let values = self.values(name).iter();
        values.flat_map(|value| value.split(',')).map(|part| part.trim().to_owned()).filter(|p| !p.is_empty()).collect()
    }

    /// Every value of `name` unsplit, for options whose values may contain commas (`key=value` arguments).
    pub(crate) fn values(&self, name: &str) -> &[String] {
        self.given.get(name).or_else(|| self.variables.get(name)).map_or(&[], Vec::as_slice)
    }

    /// The last value of `name`; none if it is empty.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values(name).last().map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether the switch `name` is on; a missing or malformed value counts as off.
    pub(crate) fn switch(&self, name: &str) -> bool {
        self.value(name).and_then(flags::switch_value).unwrap_or(false)
    }

    /// Replaces the options that `over` contains.
    pub(crate) fn overlay(mut self, over: Self) -> Self {
        self.given.extend(over.given);
        self
    }

    /// Adds the options of the environment, which apply where these options have no value.
    pub(crate) fn with_environment(mut self, environment: Self) -> Self {
        self.variables = environment.given;
        self
    }

    /// Replaces all values of `name` by `value`.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.given.insert(name.to_owned(), vec![value]);
    }

    /// The options of command line and files as arguments, for the KubeNode's annotation. Masks secret values as RKE2 does.
    pub(crate) fn as_arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for (name, values) in &self.given {
            for value in values {
                arguments.push(format!("--{name}"));
                let secret =
                    matches!(name.as_str(), "token" | "agent-token" | "etcd-s3-access-key" | "etcd-s3-secret-key");
                arguments.push(if secret { "********".to_owned() } else { value.clone() });
            }
        }
        arguments
    }
}

/// Parses a command line of `--name value`, `--name=value` and switches.
pub(crate) fn parse_arguments(arguments: &[String]) -> anyhow::Result<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let named = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        let Some(named) = named else { anyhow::bail!("unexpected argument {argument:?}") };
        let (name, inline) =
            named.split_once('=').map_or((named, None), |(name, value)| (name, Some(value.to_owned())));
        let name = match name {
            "c" => "config",
            "d" => "data-dir",
            "t" => "token",
            "s" => "server",
            name => name,
        };
        let value = match flags::shape(name) {
            None => anyhow::bail!("flag provided but not defined: -{name}"),
            Some(Shape::Switch) => inline.unwrap_or_else(|| "true".to_owned()),
            Some(Shape::Value | Shape::List) => match inline.or_else(|| rest.next().cloned()) {
                Some(value) => value,
                None => anyhow::bail!("flag needs an argument: -{name}"),
            },
        };
        let values = options.given.entry(name.to_owned()).or_default();
        if flags::shape(name) != Some(Shape::List) {
            values.clear();
        }
        values.push(value);
    }
    Ok(options)
}

/// Reads `file` and the `.yaml` and `.yml` files of `file.d`; neither needs to exist.
pub(crate) fn read_files(file: &Utf8Path) -> anyhow::Result<Options> {
    let mut options = Options::default();
    if let Some(text) = paths::read_optional(file)? {
        merge(&mut options, &text, file)?;
    }
    let folder = Utf8Path::new(&format!("{file}.d")).to_owned();
    let mut names = match folder.read_dir_utf8() {
        Ok(entries) => entries.map(|entry| entry.map(|e| e.file_name().to_owned())).collect::<Result<Vec<_>, _>>()?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    names.retain(|name| name.ends_with(".yaml") || name.ends_with(".yml"));
    names.sort();
    for name in names {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path)?;
        merge(&mut options, &text, &path)?;
    }
    Ok(options)
}

fn merge(options: &mut Options, text: &str, file: &Utf8Path) -> anyhow::Result<()> {
    if text.trim().is_empty() {
        return Ok(());
    }
    // The parser's message may quote the file, which contains the token, so the error names only the file.
    let parsed: Value =
        serde_saphyr::from_str(text).map_err(|_| anyhow::anyhow!("failed to parse {file}: not valid YAML"))?;
    let map = match parsed {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        _ => anyhow::bail!("failed to parse {file}: not a map"),
    };
    for (key, value) in map {
        let (name, append) = key.strip_suffix('+').map_or((key.as_str(), false), |name| (name, true));
        if flags::shape(name).is_none() {
            log::warning!("Unknown flag --{name} found in {}, skipping", file.file_name().unwrap_or("config.yaml"));
            continue;
        }
        let values = options.given.entry(name.to_owned()).or_default();
        if !append {
            values.clear();
        }
        match value {
            Value::Array(items) => values.extend(items.iter().map(scalar)),
            single => values.push(scalar(&single)),
        }
    }
    Ok(())
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
