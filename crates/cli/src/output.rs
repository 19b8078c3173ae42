//! Command output: data goes to stdout, messages for people to stderr.

use std::{
    borrow::Cow,
    fmt::Display,
    io::{IsTerminal, Write},
    process::ExitCode,
    sync::LazyLock,
    time::Duration,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use gpuaas_api_types::{Problem, ProblemReason};
use gpuaas_client::ClientError;
use gpuaas_model::{Code, Coded, ExitStatus};
use gpuaas_server::ServerError;
use regex::{Captures, Regex};
use serde::Serialize;

use crate::{
    color,
    duration::format_millis,
    settings_file::{InvalidSettings, Mistake},
    table::{Column, Layout, shortened},
    target::{Awaited, Format},
    text::Text,
};

/// Width of an object's fields in a table cell; `-o json` prints all of them.
const FIELDS_WIDTH_MAX: usize = 120;

/// Returned when `--timeout` passes before the work ends. The work itself continues.
#[derive(Debug, thiserror::Error)]
#[error("{}", timed_out(*.limit, .awaited.as_ref()))]
pub(crate) struct TimedOut {
    pub(crate) limit: Duration,
    /// What the command waited for, if it said so.
    pub(crate) awaited: Option<Awaited>,
}

fn timed_out(limit: Duration, awaited: Option<&Awaited>) -> String {
    let limit = format_millis(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
    match awaited {
        Some(of) => format!("stopped waiting for {} after {limit} (--timeout)", of.what),
        None => format!("no answer within {limit} (--timeout)"),
    }
}

/// The command was not confirmed, and there is no terminal to ask on.
#[derive(Debug, thiserror::Error)]
#[error("this command needs a confirmation, but standard input or standard error is not a terminal")]
pub(crate) struct ConfirmationRequired;

impl ConfirmationRequired {
    /// The next action.
    pub(crate) const NEXT: &str = "to see what happens, add --dry-run; to confirm, add --yes";
}

/// Returned when something on this machine does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct NotFound {
    /// A sentence that names the missing thing.
    pub(crate) what: String,
    /// Next action.
    pub(crate) next: String,
}

/// Returned when a started process exits although it should not; its own message is on stderr already.
#[derive(Debug, thiserror::Error)]
#[error("{what} ended ({how})")]
pub(crate) struct ProcessExited {
    /// The process.
    pub(crate) what: String,
    /// Its exit status in words.
    pub(crate) how: String,
    /// Exit status of this process: that of the started one, if it is a documented one.
    pub(crate) status: ExitStatus,
}

/// Prints a list: a table, the whole items as JSON or YAML, what a template selects from them as `items`, or their names.
pub(crate) fn list<T: Serialize>(
    format: Format,
    items: &[T],
    columns: &[Column<T>],
    name: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide => print_table(columns, items, format == Format::Wide),
        Format::Json => line(serde_json::to_string_pretty(items)?),
        Format::Yaml => write(serde_saphyr::to_string(&items)?),
        Format::JsonPath(template) => print_text(&template.render(&serde_json::json!({ "items": items }))),
        Format::Name => write(items.iter().map(|item| name(item) + "\n").collect::<String>()),
    }
}

/// What people read on stderr instead of an empty table.
pub(crate) const NOTHING_FOUND: &str = "nothing found";

fn print_table<T>(columns: &[Column<T>], items: &[T], is_wide: bool) -> anyhow::Result<()> {
    if items.is_empty() {
        message(NOTHING_FOUND);
        return Ok(());
    }
    let (layout, rows) = Layout::of(columns, items, is_wide, false);
    let lines = std::iter::once(layout.header()).chain(rows.iter().map(|row| layout.row(row)));
    line(lines.collect::<Vec<_>>().join("\n"))?;
    let dropped = layout.dropped();
    if !dropped.is_empty() {
        message(format_args!("(the terminal is too narrow for {}; -o wide shows all columns)", dropped.join(", ")));
    }
    Ok(())
}

/// Prints one object: as sentences for people, whole as JSON or YAML, what a template selects, or its name.
pub(crate) fn one<T: Serialize, D: Into<Text>>(
    format: Format,
    item: &T,
    describe: impl FnOnce(&T) -> D,
    name: &str,
) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide => line(describe(item).into().as_str()),
        Format::Json => line(serde_json::to_string_pretty(item)?),
        Format::Yaml => write(serde_saphyr::to_string(item)?),
        Format::JsonPath(template) => print_text(&template.render(&serde_json::to_value(item)?)),
        Format::Name => line(name),
    }
}

/// Prints one object of a sequence as a JSON line, a YAML document or what a template selects.
pub(crate) fn record<T: Serialize>(format: Format, item: &T) -> anyhow::Result<()> {
    match format {
        Format::Yaml => write(format!("---\n{}", serde_saphyr::to_string(item)?)),
        Format::JsonPath(template) => print_text(&template.render(&serde_json::to_value(item)?)),
        Format::Table | Format::Wide | Format::Json | Format::Name => line(serde_json::to_string(item)?),
    }
}

/// Prints a text that may end with a line end of its own.
fn print_text(text: &str) -> anyhow::Result<()> {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    write(format!("{text}{end}"))
}

/// Prints a line to stdout.
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    write(format!("{text}\n"))
}

/// Writes to stdout. All data goes through this function: `println!` panics, for example if the disk is full.
pub(crate) fn write(data: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(data.as_ref()).and_then(|()| stdout.flush()).context("cannot write to standard output")
}

/// Prints a line for people to stderr. Failures are ignored: there is no other place to report them.
pub(crate) fn message(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Formats the strings and numbers of an object as words, those named `first` before the others, up to [`FIELDS_WIDTH_MAX`]. A text with
/// blanks is in quotation marks, so that its end is visible.
pub(crate) fn fields(object: &serde_json::Value, first: &[&str]) -> String {
    use serde_json::Value;
    let mut fields: Vec<(&String, &Value)> = object.as_object().into_iter().flatten().collect();
    fields.sort_by_key(|(name, _)| first.iter().position(|of| of == name).unwrap_or(first.len()));
    let plain = fields.into_iter().filter_map(|(name, value)| match value {
        Value::String(text) if text.contains(char::is_whitespace) => Some(format!("{name}={text:?}")),
        Value::String(text) => Some(format!("{name}={text}")),
        Value::Number(number) => Some(format!("{name}={number}")),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    let all = plain.collect::<Vec<_>>().join(" ");
    shortened(&all, FIELDS_WIDTH_MAX).into_owned()
}

/// Prints the next command for people to stderr: stdout has the result and nothing else.
pub(crate) fn hint(format: Format, text: &str) {
    if format.is_for_people() {
        message(Text::from(text).as_str());
    }
}

/// Reports whether stderr is a terminal. Progress is shown only there.
pub(crate) fn is_interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// Copies a text to the clipboard of the user's terminal with OSC 52. Terminals that do not support it ignore the sequence.
pub(crate) fn copy(text: &str) {
    let _ = write!(std::io::stderr(), "\x1b]52;c;{}\x07", STANDARD.encode(text));
}

/// Prints the error to stderr, as JSON if data is printed as JSON or YAML, and returns its documented exit status. Commands that it advises
/// get `project_flag`.
pub(crate) fn report_error(error: &anyhow::Error, format: Format, project_flag: &str) -> ExitCode {
    let report = Report::of(error);
    match format {
        Format::Json | Format::Yaml => message(format_args!("{:#}", report.json())),
        Format::Table | Format::Wide | Format::Name | Format::JsonPath(_) => {
            let text = Text::from(&*with_project(&report.words(), project_flag));
            let words = text.as_str();
            let rest = words.strip_prefix("error:").unwrap_or(words);
            message(format_args!("{}{rest}", color::mark(&words[..words.len() - rest.len()], false)));
        }
    }
    exit(report.status)
}

/// What is reported of an error.
struct Report<'a> {
    detail: String,
    /// Absent for failures of this machine that have no page.
    code: Option<Code>,
    next: Option<String>,
    mistakes: &'a [Mistake],
    /// The control plane's own report.
    problem: Option<&'a Problem>,
    status: ExitStatus,
}

impl<'a> Report<'a> {
    fn of(error: &'a anyhow::Error) -> Self {
        let coded = |code: Code, next: Option<String>| Self {
            detail: error.to_string(),
            code: Some(code),
            next,
            mistakes: &[],
            problem: None,
            status: code.exit(),
        };
        if let Some(error) = error.downcast_ref::<ClientError>() {
            let problem = match error {
                ClientError::Problem(problem) => Some(&**problem),
                _ => None,
            };
            return Self { problem, ..coded(error.code(), None) };
        }
        if let Some(error) = error.downcast_ref::<ServerError>() {
            return coded(error.code(), error.next());
        }
        if error.is::<ConfirmationRequired>() {
            return coded(Code::ConfirmationRequired, Some(ConfirmationRequired::NEXT.to_owned()));
        }
        if let Some(timed_out) = error.downcast_ref::<TimedOut>() {
            return coded(Code::TimedOut, timed_out.awaited.as_ref().map(|of| of.next.clone()));
        }
        if let Some(NotFound { next, .. }) = error.downcast_ref::<NotFound>() {
            return coded(Code::NotFound, Some(next.clone()));
        }
        if let Some(InvalidSettings { mistakes }) = error.downcast_ref::<InvalidSettings>() {
            return Self { mistakes, ..coded(Code::FieldInvalid, None) };
        }
        let status = error.downcast_ref::<ProcessExited>().map_or(ExitStatus::Failed, |exited| exited.status);
        Self { detail: format!("{error:#}"), code: None, next: None, mistakes: &[], problem: None, status }
    }

    /// Returns the control plane's report with the exit status, or an object of the same form.
    fn json(&self) -> serde_json::Value {
        let mut object = match self.problem {
            Some(problem) => serde_json::to_value(problem).unwrap_or_default(),
            None => serde_json::json!({ "detail": self.detail }),
        };
        if let (Some(code), None) = (self.code, self.problem) {
            object["code"] = serde_json::json!(code);
            object["next"] = serde_json::json!(self.next);
        }
        if !self.mistakes.is_empty() {
            object["errors"] = serde_json::json!(self.mistakes);
        }
        object["exit_status"] = serde_json::json!(self.status as u8);
        object
    }

    /// Formats the error with the address of its page: the one that the control plane names, otherwise the command that prints it.
    fn words(&self) -> String {
        let Some(code) = self.code else { return format!("error: {}", self.detail) };
        let mut lines = vec![format!("error: {} ({code})", self.detail)];
        if let Some(problem) = self.problem {
            lines.extend(reasons(problem));
        }
        lines.extend(self.mistakes.iter().map(|mistake| match &mistake.key {
            // A flag or a variable names its setting itself.
            Some(key) if mistake.at.contains(':') && !mistake.detail.contains(key) => {
                format!("  {}: {key}: {}", mistake.at, mistake.detail)
            }
            _ => format!("  {}: {}", mistake.at, mistake.detail),
        }));
        lines.extend(self.next.iter().map(|next| format!("  {next}")));
        let page = match self.problem {
            Some(problem) => format!("{} · correlation {}", problem.kind, problem.correlation_id),
            None => format!("gpuaas explain {code}"),
        };
        lines.push(format!("  see {page} · exit status {}", self.status as u8));
        lines.join("\n")
    }
}

/// Returns what a person typed for a field of a request, if that has another name.
fn typed(field: &str) -> Option<&'static str> {
    match field {
        "parameters.by" => return Some("--by"),
        "parameters.delete_empty_dir_data" => return Some("--delete-emptydir-data"),
        "parameters.force" => return Some("--force"),
        "parameters.member" => return Some("MEMBER"),
        "parameters.scope" => return Some("--scope"),
        "parameters.timeout_seconds" => return Some("--drain-timeout"),
        _ => {}
    }
    Some(match field.split(['[', '.']).next().unwrap_or_default() {
        "Idempotency-Key" => "--idempotency-key",
        "If-Match" => "--if-match",
        "action" => "--action",
        "agent_allocation_ids" => "--agent",
        "correlation" => "--correlation",
        "finding" => "FIX",
        "give_up" => "--give-up",
        "labels" => "--label",
        "member" => "--member",
        "name" => "NAME",
        "node" => "--node",
        "plan_digest" => "--plan-digest",
        "project" => "--project",
        "reason" => "--reason",
        "region" => "--region",
        "result" => "--result",
        "role" => "--role",
        "server_allocation_id" => "--server",
        "since" => "--since",
        "source" => "SOURCE",
        "state" => "--state",
        "sums_sha256" => "--sums-sha256",
        "tail" => "--tail",
        "ttl_seconds" => "--ttl",
        "until" => "--until",
        "version" => "--version",
        "workload" => "--workload",
        _ => return None,
    })
}

/// Returns the name of the field at fault, as a person typed it.
fn place(reason: &ProblemReason) -> String {
    match reason.code.parse() {
        Ok(Code::ConfigInvalid) if reason.field == "config" => "--config".to_owned(),
        Ok(Code::ConfigInvalid) => format!("--config {}", reason.field),
        _ => typed(&reason.field).unwrap_or(&reason.field).to_owned(),
    }
}

/// Reports whether a person typed the field at fault: the kind of an operation is the command itself, and the detail of an ambiguous id
/// has the id.
fn is_typed(field: &str, problem: &Problem) -> bool {
    match problem.code.parse() {
        Ok(Code::IdAmbiguous) => false,
        Ok(Code::NothingToDo | Code::RestartUnsupported | Code::StateConflict) => field != "kind",
        Ok(_) | Err(_) => true,
    }
}

/// Returns the lines of a problem below its first one.
fn reasons(problem: &Problem) -> Vec<String> {
    let width = problem.errors.iter().map(|reason| place(reason).len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for reason in &problem.errors {
        lines.push(format!("  {:<width$}  {}   {}", place(reason), reason.detail, reason.code));
        lines.extend(reason.next.iter().map(|next| format!("  {:<width$}  → {next}", "")));
    }
    let field = problem.field.iter().filter(|field| is_typed(field, problem));
    lines.extend(field.map(|field| match typed(field) {
        Some(argument) => format!("  argument: {argument}"),
        None => format!("  field: {field}"),
    }));
    // The API's schemas are for programs that send requests.
    let next = problem.next.iter().filter(|next| !next.ends_with(": /api/docs"));
    lines.extend(next.map(|next| format!("  {next}")));
    lines
}

/// Appends `project_flag` to every command in a text that acts in a project and names none, except to those that only print their help. A
/// command ends at a punctuation mark or at the end of its line.
pub(crate) fn with_project<'a>(text: &'a str, project_flag: &str) -> Cow<'a, str> {
    static COMMAND: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"gpuaas\s(?:allocation|service-account|workload)\s[^;,:)`\n]*[^;,:)`\s]";
        Regex::new(pattern).expect("a valid pattern")
    });
    COMMAND.replace_all(text, |found: &Captures<'_>| {
        let command = &found[0];
        let needs_none = command.contains("--project") || command.ends_with(" --help");
        if needs_none { command.to_owned() } else { format!("{command}{project_flag}") }
    })
}

/// Converts an exit status into the process's exit code.
pub(crate) fn exit(status: ExitStatus) -> ExitCode {
    ExitCode::from(status as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_is_printed_with_every_reason_code_and_error_page() {
        let reason = |field: &str, detail: &str, code: Code, next: Option<&str>| ProblemReason {
            field: field.to_owned(),
            code: code.to_string(),
            detail: detail.to_owned(),
            next: next.map(str::to_owned),
        };
        let problem = Problem {
            kind: "https://cp.example:7443/docs/errors/placement_invalid".to_owned(),
            title: "Unprocessable Entity".to_owned(),
            status: 422,
            code: "placement_invalid".to_owned(),
            detail: "placement refused".to_owned(),
            field: None,
            next: None,
            correlation_id: "0198c0de-7a3b-7c11-9b54-0242ac120002".to_owned(),
            errors: vec![
                reason("server_allocation_id", "gpu-07 is already used by workload infer", Code::AllocationInUse, None),
                reason(
                    "agent_allocation_ids[1]",
                    "gpu-09 is unreachable",
                    Code::AllocationUnreachable,
                    Some("choose another"),
                ),
            ],
        };
        let error = ClientError::Problem(Box::new(problem)).into();
        let report = Report::of(&error);
        insta::assert_snapshot!(report.words(), @r"
        error: placement refused (placement_invalid)
          --server  gpu-07 is already used by workload infer   allocation_in_use
          --agent   gpu-09 is unreachable   allocation_unreachable
                    → choose another
          see https://cp.example:7443/docs/errors/placement_invalid · correlation 0198c0de-7a3b-7c11-9b54-0242ac120002 · exit status 4
        ");
        assert_eq!(report.status, ExitStatus::Refused);
    }

    #[test]
    fn commands_get_their_project_once_and_help_none() {
        let shown = |text| with_project(text, " --project ml").into_owned();
        assert_eq!(shown("gpuaas workload show train; or"), "gpuaas workload show train --project ml; or");
        let complete = "gpuaas workload show train --project other";
        assert_eq!(shown(complete), complete);
        let help = "see: gpuaas workload add-member --help";
        assert_eq!(shown(help), help);
    }

    #[test]
    fn field_is_named_as_it_was_typed_or_not_at_all() {
        let named = |code: &str, field: &str| {
            let problem = Problem {
                kind: format!("/docs/errors/{code}"),
                title: "Conflict".to_owned(),
                status: 409,
                code: code.to_owned(),
                detail: "refused".to_owned(),
                field: Some(field.to_owned()),
                next: None,
                correlation_id: "0198c0de-7a3b-7c11-9b54-0242ac120002".to_owned(),
                errors: Vec::new(),
            };
            reasons(&problem)
        };
        assert_eq!(named("member_unknown", "give_up"), ["  argument: --give-up"]);
        assert_eq!(named("name_taken", "name"), ["  argument: NAME"]);
        assert_eq!(named("nothing_to_do", "kind"), Vec::<String>::new(), "the command is the kind");
        assert_eq!(named("id_ambiguous", "operation"), Vec::<String>::new(), "the detail has the id");
        assert_eq!(named("field_invalid", "kind"), ["  field: kind"]);
    }

    #[test]
    fn timeout_has_its_own_exit_status() {
        let awaited = Awaited { what: "gpu-1".to_owned(), next: "see it: gpuaas keys list authority".to_owned() };
        let error = TimedOut { limit: Duration::from_secs(90), awaited: Some(awaited) }.into();
        let report = Report::of(&error);
        assert_eq!(report.status, ExitStatus::TimedOut);
        insta::assert_snapshot!(report.words(), @r"
        error: stopped waiting for gpu-1 after 90.0 s (--timeout) (timed_out)
          see it: gpuaas keys list authority
          see gpuaas explain timed_out · exit status 8
        ");
    }
}
