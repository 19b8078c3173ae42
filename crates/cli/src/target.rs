//! The global flags.

use std::{cell::RefCell, path::PathBuf, time::Duration};

use clap::Args;

use crate::{color, jsonpath::Template};

/// Global flags: which control plane and credentials to use, output format, and waiting.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Target {
    /// URL of the control plane, for example https://cp.example:7443
    #[arg(long, global = true, env = "GPUAAS_SERVER", value_name = "URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// PEM file with the certificate authority that signs the control plane's certificate
    #[arg(long, global = true, env = "GPUAAS_CA_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// JSON file from `gpuaas dev --ready-file`; supplies the URL, the authority and the token instead of a context
    #[arg(long, global = true, env = "GPUAAS_READY_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) ready_file: Option<PathBuf>,
    /// Context from the context file; default: its current context
    #[arg(long, global = true, env = "GPUAAS_CONTEXT", value_name = "NAME", hide_env_values = true)]
    pub(crate) context: Option<String>,
    /// Project to act in, by name or id; default: the project of the context
    #[arg(long, global = true, env = "GPUAAS_PROJECT", value_name = "PROJECT", hide_env_values = true)]
    pub(crate) project: Option<String>,
    /// Where the project comes from.
    #[arg(skip)]
    pub(crate) project_source: ProjectSource,
    /// What the command waits for at this moment.
    #[arg(skip)]
    pub(crate) awaited: RefCell<Option<Awaited>>,
    // Not a doc comment: rustdoc would read the brackets as a link.
    #[arg(
        short,
        long,
        global = true,
        help = "Output format: table, wide, json, yaml, name or jsonpath=TEMPLATE, for example jsonpath='{.items[0].name}'",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub(crate) output: Format,
    /// Colours in tables and messages: auto, always or never; auto colours terminals unless NO_COLOR is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: color::When,
    /// Wait until the started work ends; on a terminal, operations are followed even without this flag
    #[arg(long, global = true)]
    pub(crate) wait: bool,
    /// Stop waiting after this long, for example 90s or 10m; the started work continues; default: no limit
    #[arg(long, global = true, value_name = "DURATION", value_parser = crate::duration::parse_timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Idempotency key for the change; repeating the command with the same key makes the change only once
    #[arg(long, global = true, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

impl Target {
    /// Returns the flag that a command in a hint needs to act in the same project, with a blank before it; empty if it needs none.
    pub(crate) fn project_flag(&self) -> String {
        let given = self.project.as_ref().filter(|_| self.project_source != ProjectSource::Context);
        given.map(|project| format!(" --project {project}")).unwrap_or_default()
    }

    /// Notes what the command waits for, for the error that names it when `--timeout` passes; `next` is what to do then.
    pub(crate) fn waits_for(&self, what: &str, next: &str) {
        *self.awaited.borrow_mut() = Some(Awaited { what: what.to_owned(), next: next.to_owned() });
    }
}

/// Sources of a command's project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProjectSource {
    #[default]
    Flag,
    Environment,
    Context,
}

/// What a command waits for.
#[derive(Clone, Debug)]
pub(crate) struct Awaited {
    /// Noun phrase.
    pub(crate) what: String,
    /// What to do if it takes too long.
    pub(crate) next: String,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Aligned columns, or sentences for a single object.
    Table,
    /// Like `Table`, with all columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Names or ids, one per line.
    Name,
    /// What a template selects. It is never freed: a process parses one command line.
    JsonPath(&'static Template),
}

impl Format {
    /// Names of the formats, as the command line takes them.
    pub(crate) const NAMES: [&str; 6] = ["table", "wide", "json", "yaml", "name", "jsonpath="];

    /// Reports whether people read the output.
    pub(crate) fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "table" => Self::Table,
            "wide" => Self::Wide,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            "name" => Self::Name,
            _ => {
                let template = text.strip_prefix("jsonpath=");
                let template = template.ok_or_else(|| format!("use one of {}TEMPLATE", Self::NAMES.join(", ")))?;
                Self::JsonPath(Box::leak(Box::new(Template::parse(template)?)))
            }
        })
    }
}
