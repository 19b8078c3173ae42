//! Command output: data goes to stdout, messages for people to stderr.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gpuaas_api_types::Problem;
use gpuaas_client::ClientError;
use gpuaas_model::{Code, Coded, ExitStatus};
use gpuaas_server::ServerError;
use serde::Serialize;

use crate::{
    cli::Format,
    color,
    commands::confirm::ConfirmationRequired,
    table::{Column, Layout, shortened},
    text::Text,
};

/// Width of an object's fields in a table cell; `-o json` prints all of them.
const FIELDS_WIDTH_MAX: usize = 120;

/// Returned when `--timeout` passes before the work ends. The work itself continues.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {0:?}, the limit of --timeout; operations that were started continue")]
pub(crate) struct TimedOut(pub(crate) Duration);

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
#[error("{what} exited: {how}")]
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
        Format::Json => println!("{}", serde_json::to_string_pretty(items)?),
        Format::Yaml => print!("{}", serde_saphyr::to_string(&items)?),
        Format::JsonPath(template) => print_text(&template.render(&serde_json::json!({ "items": items })))?,
        Format::Name => items.iter().for_each(|item| println!("{}", name(item))),
    }
    Ok(())
}

fn print_table<T>(columns: &[Column<T>], items: &[T], is_wide: bool) {
    let (layout, rows) = Layout::of(columns, items, is_wide);
    println!("{}", layout.header());
    rows.iter().for_each(|row| println!("{}", layout.row(row)));
    let dropped = layout.dropped();
    if !dropped.is_empty() {
        eprintln!("(the terminal is too narrow for {}; -o wide shows all columns)", dropped.join(", "));
    }
}

/// Prints one object: as sentences for people, whole as JSON or YAML, what a template selects, or its name.
pub(crate) fn one<T: Serialize, D: Into<Text>>(
    format: Format,
    item: &T,
    describe: impl FnOnce(&T) -> D,
    name: &str,
) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide => println!("{}", describe(item).into().as_str()),
        Format::Json => println!("{}", serde_json::to_string_pretty(item)?),
        Format::Yaml => print!("{}", serde_saphyr::to_string(item)?),
        Format::JsonPath(template) => print_text(&template.render(&serde_json::to_value(item)?))?,
        Format::Name => println!("{name}"),
    }
    Ok(())
}

/// Prints one object of a sequence as a JSON line, a YAML document or what a template selects.
pub(crate) fn record<T: Serialize>(format: Format, item: &T) -> anyhow::Result<()> {
    match format {
        Format::Yaml => print!("---\n{}", serde_saphyr::to_string(item)?),
        Format::JsonPath(template) => print_text(&template.render(&serde_json::to_value(item)?))?,
        Format::Table | Format::Wide | Format::Json | Format::Name => println!("{}", serde_json::to_string(item)?),
    }
    Ok(())
}

/// Prints a text that may end with a line end of its own.
fn print_text(text: &str) -> std::io::Result<()> {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    write!(std::io::stdout(), "{text}{end}")
}

/// Formats the strings and numbers of an object as words, up to [`FIELDS_WIDTH_MAX`].
pub(crate) fn fields(object: &serde_json::Value) -> String {
    use serde_json::Value;
    let fields = object.as_object().into_iter().flatten();
    let plain = fields.filter_map(|(name, value)| match value {
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
        eprintln!("{}", Text::from(text).as_str());
    }
}

/// Reports whether stderr is a terminal. Progress is shown only there.
pub(crate) fn is_interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// Copies a text to the clipboard of the user's terminal with OSC 52. Terminals that do not support it ignore the sequence.
pub(crate) fn copy(text: &str) {
    eprint!("\x1b]52;c;{}\x07", STANDARD.encode(text));
}

/// Prints the error to stderr, as JSON if data is printed as JSON or YAML, and returns its documented exit status.
pub(crate) fn report_error(error: &anyhow::Error, format: Format) -> ExitCode {
    let (message, status) = format_error(error);
    match format {
        Format::Json | Format::Yaml => eprintln!("{:#}", error_json(error, status)),
        Format::Table | Format::Wide | Format::Name | Format::JsonPath(_) => {
            let text = Text::from(message);
            let words = text.as_str();
            let rest = words.strip_prefix("error:").unwrap_or(words);
            eprintln!("{}{rest}", color::mark(&words[..words.len() - rest.len()], false));
        }
    }
    exit(status)
}

/// Returns the error as a JSON object: that of the control plane with the exit status, or one with code, detail and exit status.
fn error_json(error: &anyhow::Error, status: ExitStatus) -> serde_json::Value {
    let mut object = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Problem(problem)) => serde_json::to_value(problem).unwrap_or_default(),
        Some(error) => serde_json::json!({ "code": error.code(), "detail": error.to_string() }),
        None => match error.downcast_ref::<ServerError>() {
            Some(error) => {
                serde_json::json!({ "code": error.code(), "detail": error.to_string(), "next": error.next() })
            }
            None if error.is::<ConfirmationRequired>() => {
                let code = Code::ConfirmationRequired;
                serde_json::json!({ "code": code, "detail": error.to_string(), "next": ConfirmationRequired::NEXT })
            }
            None if error.is::<TimedOut>() => {
                serde_json::json!({ "code": Code::TimedOut, "detail": error.to_string() })
            }
            None => match error.downcast_ref::<NotFound>() {
                Some(NotFound { what, next }) => {
                    serde_json::json!({ "code": Code::NotFound, "detail": what, "next": next })
                }
                None => serde_json::json!({ "detail": format!("{error:#}") }),
            },
        },
    };
    object["exit_status"] = serde_json::json!(status as u8);
    object
}

fn format_error(error: &anyhow::Error) -> (String, ExitStatus) {
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return (format_client_error(error), error.exit());
    }
    if let Some(error) = error.downcast_ref::<ServerError>() {
        let words = format_block(
            &error.to_string(),
            error.code(),
            error.next().into_iter().collect(),
            None,
            error.code().exit(),
        );
        return (words, error.code().exit());
    }
    if error.is::<ConfirmationRequired>() {
        let (code, next) = (Code::ConfirmationRequired, ConfirmationRequired::NEXT.to_owned());
        return (format_block(&error.to_string(), code, vec![next], None, code.exit()), code.exit());
    }
    if error.downcast_ref::<TimedOut>().is_some() {
        return (
            format_block(&error.to_string(), Code::TimedOut, Vec::new(), None, ExitStatus::TimedOut),
            ExitStatus::TimedOut,
        );
    }
    if let Some(NotFound { what, next }) = error.downcast_ref::<NotFound>() {
        let lines = vec![next.clone()];
        return (format_block(what, Code::NotFound, lines, None, ExitStatus::NotFound), ExitStatus::NotFound);
    }
    let status = error.downcast_ref::<ProcessExited>().map_or(ExitStatus::Failed, |exited| exited.status);
    (format!("error: {error:#}"), status)
}

fn format_client_error(error: &ClientError) -> String {
    let ClientError::Problem(problem) = error else {
        return format_block(&error.to_string(), error.code(), Vec::new(), None, error.exit());
    };
    let width = problem.errors.iter().map(|reason| reason.field.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for reason in &problem.errors {
        lines.push(format!("{:<width$}  {}   {}", reason.field, reason.detail, reason.code));
        lines.extend(reason.next.iter().map(|next| format!("{:<width$}  → {next}", "")));
    }
    lines.extend(problem.field.iter().map(|field| format!("field: {field}")));
    lines.extend(problem.next.clone());
    format_block(&error.to_string(), error.code(), lines, Some(problem), error.exit())
}

/// Formats an error with the address of its page: the one that the control plane's `problem` names, otherwise the command that prints it.
fn format_block(what: &str, code: Code, lines: Vec<String>, problem: Option<&Problem>, status: ExitStatus) -> String {
    let mut words = vec![format!("error: {what} ({code})")];
    words.extend(lines.into_iter().map(|line| format!("  {line}")));
    let page = match problem {
        Some(problem) => format!("{} · correlation {}", problem.kind, problem.correlation_id),
        None => format!("gpuaas explain {code}"),
    };
    words.push(format!("  see {page} · exit status {}", status as u8));
    words.join("\n")
}

/// Converts an exit status into the process's exit code.
pub(crate) fn exit(status: ExitStatus) -> ExitCode {
    ExitCode::from(status as u8)
}

#[cfg(test)]
mod tests {
    use gpuaas_api_types::ProblemReason;

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
        let (words, status) = format_error(&ClientError::Problem(Box::new(problem)).into());
        insta::assert_snapshot!(words, @r"
        error: placement refused (placement_invalid)
          server_allocation_id     gpu-07 is already used by workload infer   allocation_in_use
          agent_allocation_ids[1]  gpu-09 is unreachable   allocation_unreachable
                                   → choose another
          see https://cp.example:7443/docs/errors/placement_invalid · correlation 0198c0de-7a3b-7c11-9b54-0242ac120002 · exit status 4
        ");
        assert_eq!(status, ExitStatus::Refused);
    }

    #[test]
    fn timeout_has_its_own_exit_status() {
        let (words, status) = format_error(&TimedOut(Duration::from_secs(90)).into());
        assert_eq!(status, ExitStatus::TimedOut);
        assert!(words.ends_with("see gpuaas explain timed_out · exit status 8"), "{words}");
    }
}
