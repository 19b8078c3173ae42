//! What a command prints: data to stdout, words for people to stderr.

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use gpuaas_client::ClientError;
use gpuaas_model::{Coded, ExitStatus};
use gpuaas_server::ServerError;
use serde::Serialize;

use crate::cli::Format;

/// Prints a list: `header` and a row per item as a table, whole items as JSON or YAML, or their names.
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

/// Prints one thing: a sentence for people, or the whole thing.
pub(crate) fn one<T: Serialize>(
    format: Format,
    item: &T,
    words: impl FnOnce(&T) -> String,
    name: &str,
) -> anyhow::Result<()> {
    match format {
        Format::Table => println!("{}", words(item)),
        Format::Json => println!("{}", serde_json::to_string_pretty(item)?),
        Format::Yaml => print!("{}", serde_saphyr::to_string(item)?),
        Format::Name => println!("{name}"),
    }
    Ok(())
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Says what went wrong and ends with the exit status that scripts know.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return client_failed(error);
    }
    if let Some(error) = error.downcast_ref::<ServerError>() {
        let code = error.code();
        eprintln!("error: {error} ({code})");
        if let Some(next) = error.next() {
            eprintln!("  {next}");
        }
        eprintln!("  see docs/errors/{code}.md");
        return exit(code.exit());
    }
    eprintln!("error: {error:#}");
    exit(ExitStatus::Failed)
}

fn client_failed(error: &ClientError) -> ExitCode {
    let code = error.code();
    eprintln!("error: {error} ({code})");
    let mut correlation = String::new();
    if let ClientError::Problem(problem) = error {
        for reason in &problem.errors {
            eprintln!("  {:<28} {}   {}", reason.field, reason.detail, reason.code);
        }
        if let Some(field) = &problem.field {
            eprintln!("  field: {field}");
        }
        if let Some(next) = &problem.next {
            eprintln!("  {next}");
        }
        correlation = format!(" · correlation {}", problem.correlation_id);
    }
    eprintln!("  see docs/errors/{code}.md{correlation}");
    exit(error.exit())
}

/// An exit status as the process' own.
pub(crate) fn exit(status: ExitStatus) -> ExitCode {
    ExitCode::from(status as u8)
}
