//! Command output: data goes to stdout, messages for people to stderr.

use std::{io::IsTerminal, process::ExitCode, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use gpuaas_client::ClientError;
use gpuaas_model::{Code, Coded, ExitStatus, visible};
use gpuaas_server::ServerError;
use serde::Serialize;

use crate::cli::Format;

/// Returned when `--timeout` passes before the work ends. The work itself continues.
#[derive(Debug, thiserror::Error)]
#[error("timed out after {0:?}; the started work continues")]
pub(crate) struct TimedOut(pub(crate) Duration);

/// Prints a list: a table with `header` and one row per item, the whole items as JSON or YAML, or their names.
pub(crate) fn list<T: Serialize>(
    format: Format,
    items: &[T],
    header: &[&str],
    row: impl Fn(&T) -> Vec<String>,
    name: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    match format {
        Format::Table => println!("{}", table(header, items.iter().map(row))),
        Format::Json => println!("{}", serde_json::to_string_pretty(items)?),
        Format::Yaml => print!("{}", serde_saphyr::to_string(&items)?),
        Format::Name => items.iter().for_each(|item| println!("{}", name(item))),
    }
    Ok(())
}

/// Prints one object: as sentences for people, whole as JSON or YAML, or its name.
pub(crate) fn one<T: Serialize>(
    format: Format,
    item: &T,
    describe: impl FnOnce(&T) -> String,
    name: &str,
) -> anyhow::Result<()> {
    match format {
        Format::Table => println!("{}", escape_lines(&describe(item))),
        Format::Json => println!("{}", serde_json::to_string_pretty(item)?),
        Format::Yaml => print!("{}", serde_saphyr::to_string(item)?),
        Format::Name => println!("{name}"),
    }
    Ok(())
}

/// Formats a table: columns two blanks apart, no trailing blanks.
pub(crate) fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| visible(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Escapes control and invisible characters in each line; keeps line ends.
fn escape_lines(lines: &str) -> String {
    lines.split('\n').map(visible).collect::<Vec<_>>().join("\n")
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
        Format::Table | Format::Name => eprintln!("{}", escape_lines(&message)),
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
            None if error.is::<TimedOut>() => {
                serde_json::json!({ "code": Code::TimedOut, "detail": error.to_string() })
            }
            None => serde_json::json!({ "detail": format!("{error:#}") }),
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
    if error.downcast_ref::<TimedOut>().is_some() {
        return (
            format_block(&error.to_string(), Code::TimedOut, Vec::new(), None, ExitStatus::TimedOut),
            ExitStatus::TimedOut,
        );
    }
    (format!("error: {error:#}"), ExitStatus::Failed)
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
    format_block(&error.to_string(), error.code(), lines, Some(&problem.correlation_id), error.exit())
}

fn format_block(what: &str, code: Code, lines: Vec<String>, correlation: Option<&str>, status: ExitStatus) -> String {
    let mut words = vec![format!("error: {what} ({code})")];
    words.extend(lines.into_iter().map(|line| format!("  {line}")));
    let correlation = correlation.map(|id| format!(" · correlation {id}")).unwrap_or_default();
    words.push(format!("  see docs/errors/{code}.md{correlation} · exit status {}", status as u8));
    words.join("\n")
}

/// Converts an exit status into the process's exit code.
pub(crate) fn exit(status: ExitStatus) -> ExitCode {
    ExitCode::from(status as u8)
}

#[cfg(test)]
mod tests {
    use gpuaas_api_types::{Problem, ProblemReason};

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
            kind: "docs/errors/placement_invalid.md".to_owned(),
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
          see docs/errors/placement_invalid.md · correlation 0198c0de-7a3b-7c11-9b54-0242ac120002 · exit status 4
        ");
        assert_eq!(status, ExitStatus::Refused);
    }

    #[test]
    fn timeout_has_its_own_exit_status() {
        let (words, status) = format_error(&TimedOut(Duration::from_secs(90)).into());
        assert_eq!(status, ExitStatus::TimedOut);
        assert!(words.contains("timed_out") && words.ends_with("exit status 8"), "{words}");
    }

    #[test]
    fn control_characters_are_escaped() {
        let rows = [vec!["a\u{1b}[2Jb".to_owned(), "c\nd".to_owned()]];
        assert_eq!(table(&["ONE", "TWO"], rows.into_iter()), "ONE          TWO\na\\u{1b}[2Jb  c\\u{a}d");
        assert_eq!(escape_lines("error: a\u{202e}b\n  next"), "error: a\\u{202e}b\n  next");
    }

    #[test]
    fn table_lines_have_no_trailing_blanks() {
        let rows = [vec!["a".to_owned(), String::new()], vec!["longer".to_owned(), "b".to_owned()]];
        assert_eq!(table(&["ONE", "TWO"], rows.into_iter()), "ONE     TWO\na\nlonger  b");
    }
}
