//! Fuzzes the API from its OpenAPI document with schemathesis, against a real `gpuaas dev` with two nodes.
//!
//! Fails on responses with status 5xx, and on a status, media type, header or body that the document does not declare, and prints the
//! request. A run can be repeated by its seed, apart from effects of earlier requests on the control plane. A run that lost its token or
//! hit the rate limit is reported as void.
//!
//! The fuzzer and its dependencies are pinned in `fuzz_api/requirements.txt` and installed in a separate environment in the user's cache.

mod tool;

use std::{collections::BTreeMap, fs, process::Command, time::Instant};

use anyhow::{Context, bail, ensure};
use camino::Utf8Path;
use serde_json::Value;

use crate::{dev_server::Server, package::programs, shell};

/// Checks that the fuzzer applies to every response.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,allow_header_conformance,ignored_auth";
/// The token is passed in the environment. Responses for an unreachable node or cluster are documented (502, 503, 504); 500 never is. After
/// two rotations of the authority, a client such as the fuzzer that knows only the first one no longer trusts the server.
const CONFIG: &str = r#"
headers = { Authorization = "Bearer ${GPUAAS_FUZZ_TOKEN}" }

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 502, 503, 504]

[[operations]]
include-operation-id = "rotate_authority"
enabled = false
"#;
/// Length of the run within `cargo xtask test`, in seconds.
const SECONDS_BOUNDED: u32 = 60;
/// Timeout of a response in seconds: the server waits for unreachable clusters.
const ANSWER_SECONDS_MAX: &str = "30";
/// The fuzzer's report file.
const REPORT: &str = "report.ndjson";
/// Minimum number of responses for a meaningful run.
const ANSWERS_MIN: u64 = 1_000;

/// Options of `cargo xtask fuzz-api`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seed; the same one repeats a run.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Generated requests of each kind per operation.
    #[arg(long, default_value_t = 50)]
    examples: u32,
    /// Longest run in seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u32,
    /// Fuzz only this operation, by its ID in the document.
    #[arg(long)]
    operation: Option<String>,
    /// Run as `cargo xtask test` does.
    #[arg(long, conflicts_with_all = ["seed", "examples", "seconds", "operation"])]
    bounded: bool,
    /// Cargo profile of the programs.
    #[arg(long, default_value = "dev")]
    profile: String,
}

/// Runs `cargo xtask fuzz-api`.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.bounded { run_bounded() } else { fuzz(options) }
}

/// Installs the fuzzer in advance, unless it is installed.
pub(crate) fn prepare() -> anyhow::Result<()> {
    tool::schemathesis().map(drop)
}

/// Runs within `cargo xtask test`: about a minute and a half, always with the same seed.
pub(crate) fn run_bounded() -> anyhow::Result<()> {
    let profile = "dev".to_owned();
    fuzz(&Options { seed: 7, examples: 10, seconds: SECONDS_BOUNDED, operation: None, bounded: true, profile })
}

fn fuzz(options: &Options) -> anyhow::Result<()> {
    let fuzzer = tool::schemathesis()?;
    let programs = programs::folder(&options.profile)?;
    let folder = tempfile::tempdir().context("creating a folder for the control plane")?;
    let folder = Utf8Path::from_path(folder.path()).context("the temporary folder's path is not UTF-8")?.to_owned();
    let server = Server::start(&programs.join("gpuaas"), &folder, &[])?;
    let began = Instant::now();
    let outcome = shell::run("schemathesis", &mut command(&fuzzer, &server, options, &folder)?);
    let answers = counted(&folder.join(REPORT))?;
    let all: u64 = answers.values().sum();
    let by_status: Vec<String> = answers.iter().map(|(status, count)| format!("{status}: {count}")).collect();
    eprintln!("    API fuzzing: {all} responses in {:.0} s ({})", began.elapsed().as_secs_f64(), by_status.join(", "));
    outcome?;
    ensure!(server.is_token_valid(), "the token became invalid during the run: later responses prove nothing");
    let refused = answers.get("429").copied().unwrap_or(0);
    ensure!(refused * 100 <= all, "{refused} of {all} requests exceeded a rate limit: raise the limits");
    let is_full_run = options.operation.is_none();
    ensure!(!is_full_run || all >= ANSWERS_MIN, "{all} responses are too few; at least {ANSWERS_MIN} are required");
    Ok(())
}

fn command(fuzzer: &Utf8Path, server: &Server, options: &Options, folder: &Utf8Path) -> anyhow::Result<Command> {
    // In a file and the environment, because all users can read arguments.
    let config = folder.join("schemathesis.toml");
    fs::write(&config, CONFIG)?;
    let mut command = Command::new(fuzzer);
    command
        .env("GPUAAS_FUZZ_TOKEN", &server.token)
        // The fuzzer writes files into its working directory.
        .current_dir(folder)
        .args(["--config-file", config.as_str(), "--no-color", "run", &format!("{}/api/v1/openapi.json", server.url)])
        .args(["--tls-verify", &server.ca_file])
        .args(["--phases", "coverage,fuzzing", "--mode", "all", "--checks", CHECKS, "--continue-on-failure"])
        .args(["--seed", &options.seed.to_string(), "--max-examples", &options.examples.to_string()])
        .args(["--max-time", &options.seconds.to_string(), "--request-timeout", ANSWER_SECONDS_MAX])
        .args(["--generation-database", "none", "--no-shrink", "--warnings", "off"])
        .args(["--report", "ndjson", "--report-ndjson-path", folder.join(REPORT).as_str()]);
    if let Some(operation) = &options.operation {
        command.args(["--include-operation-id", operation]);
    }
    Ok(command)
}

/// Number of responses by status.
fn counted(report: &Utf8Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let text = fs::read_to_string(report).context("the fuzzer left no report")?;
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).context("the fuzzer's report cannot be read")?;
        count(&event, &mut counts);
    }
    if counts.is_empty() {
        bail!("the fuzzer's report contains no response");
    }
    Ok(counts)
}

/// Counts every `status_code` of a response, wherever the report has it.
fn count(value: &Value, counts: &mut BTreeMap<String, u64>) {
    match value {
        Value::Object(fields) => {
            if let (Some(status), true) = (fields.get("status_code"), fields.contains_key("headers")) {
                *counts.entry(status.to_string()).or_default() += 1;
            }
            fields.values().for_each(|value| count(value, counts));
        }
        Value::Array(items) => items.iter().for_each(|value| count(value, counts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn responses_are_counted_by_status_at_any_depth() {
        let response = |status: u16| json!({ "response": { "status_code": status, "headers": {}, "elapsed": 0.1 } });
        let event = json!({ "ScenarioFinished": { "recorder": { "interactions": { "a": response(200), "b": response(404) } } } });
        let mut counts = BTreeMap::new();
        count(&event, &mut counts);
        count(&json!({ "failure": { "status_code": 500 }, "more": [response(404)] }), &mut counts);
        assert_eq!(counts, BTreeMap::from([("200".to_owned(), 1), ("404".to_owned(), 2)]));
    }
}
