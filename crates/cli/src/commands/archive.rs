//! Implements `gpuaas archive`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::Archive;
use gpuaas_client::Client;
use gpuaas_model::{ArchiveKind, Code};

use super::overwrite::Overwrite;
use crate::{
    completion, output,
    table::{Column, column, wide},
    target::Target,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List archives, oldest first
    List {
        /// Only archives of this kind: operations, tasks, events or audit
        #[arg(long, add = ArgValueCandidates::new(completion::values(ArchiveKind::ALL)))]
        kind: Option<String>,
    },
    /// Print the content of an archive, one JSON document per line
    Get {
        /// Id of the archive
        #[arg(required_unless_present = "operation")]
        id: Option<String>,
        /// Search all archives for this operation and print it with its steps and tasks
        #[arg(long, value_name = "ID", conflicts_with = "id")]
        operation: Option<String>,
        /// Write to this file (0600) instead of standard output
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        overwrite: Overwrite,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { kind } => {
            let archives = client.list_archives(kind).await?.items;
            output::list(target.output, &archives, ARCHIVES, |archive| archive.id.clone())
        }
        Verb::Get { id, operation, file, overwrite } => {
            if let Some(file) = &file {
                overwrite.check(file)?;
            }
            if let (Some(id), None) = (id, &operation) {
                let archive = client.get_archive(&id).await?;
                return print(&content(client, &archive).await?, file);
            }
            let id = operation.unwrap_or_default();
            let archives = client.list_archives(Some("operations".to_owned())).await?.items;
            for archive in archives.iter().filter(|archive| may_contain(archive, &id)) {
                let lines = lines_of(&content(client, archive).await?, &id);
                if !lines.is_empty() {
                    return print(&lines, file);
                }
            }
            let (what, next) = match client.get_operation(&id).await {
                Ok(_) => {
                    let what = format!("operation {id} is in the database, and in no archive yet");
                    (what, format!("see it: gpuaas operation show {id}"))
                }
                Err(error) if error.code() == Code::NotFound => {
                    let what = format!("there is no operation {id}, neither in an archive nor in the database");
                    (what, "see the ids of operations: gpuaas audit list -o json".to_owned())
                }
                Err(error) => return Err(error.into()),
            };
            Err(output::NotFound { what, next }.into())
        }
    }
}

const ARCHIVES: &[Column<Archive>] = &[
    column("ID", |archive| archive.id.clone()),
    column("KIND", |archive| archive.kind.clone()),
    column("FROM", |archive| archive.from.clone()),
    column("UNTIL", |archive| archive.until.clone()),
    column("ENTRIES", |archive| archive.entries.to_string()),
    column("BYTES", |archive| archive.size_bytes.to_string()),
    wide("CREATED", |archive| archive.created_at.clone()),
    wide("SHA256", |archive| archive.sha256.clone()),
];

/// Returns the archive's lines, after its file's SHA-256 was checked.
async fn content(client: &Client, archive: &Archive) -> anyhow::Result<Vec<u8>> {
    let file = client.read_archive(&archive.id).await?;
    let found = gpuaas_trust::sha256_hex(&file);
    anyhow::ensure!(found == archive.sha256, "archive {} has SHA-256 {found}, expected {}", archive.id, archive.sha256);
    zstd::decode_all(&file[..]).context("decompressing the archive")
}

/// Reports whether an operation was created in the archive's time range: a UUIDv7 begins with its creation time in milliseconds.
fn may_contain(archive: &Archive, operation: &str) -> bool {
    let digits: String = operation.chars().filter(|digit| *digit != '-').take(12).collect();
    let Ok(millis) = i64::from_str_radix(&digits, 16) else { return false };
    let at = |text: &str| text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_millisecond);
    let (Ok(from), Ok(until)) = (at(&archive.from), at(&archive.until)) else { return true };
    (from..=until).contains(&millis)
}

/// Returns the lines about an operation.
fn lines_of(lines: &[u8], operation: &str) -> Vec<u8> {
    let of = |line: &&[u8]| {
        let line: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
        line["operation"]["id"] == operation
            || line["step"]["operation"] == operation
            || line["task"]["operation"] == operation
    };
    lines.split_inclusive(|byte| *byte == b'\n').filter(of).flatten().copied().collect()
}

fn print(lines: &[u8], file: Option<PathBuf>) -> anyhow::Result<()> {
    match file {
        Some(file) => gpuaas_server::write_private(&file, lines).with_context(|| format!("writing {}", file.display())),
        None => output::write(lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_operation_are_found() {
        let lines = b"{\"archive\":{}}\n{\"operation\":{\"id\":\"a\"}}\n{\"step\":{\"operation\":\"b\"}}\n{\"task\":{\"operation\":\"a\"}}\n";
        let found = String::from_utf8(lines_of(lines, "a")).expect("text");
        assert_eq!(found, "{\"operation\":{\"id\":\"a\"}}\n{\"task\":{\"operation\":\"a\"}}\n");
    }

    #[test]
    fn archives_outside_the_operations_time_are_skipped() {
        let archive = |from: &str, until: &str| Archive {
            id: String::new(),
            kind: "operations".to_owned(),
            from: from.to_owned(),
            until: until.to_owned(),
            entries: 1,
            sha256: String::new(),
            size_bytes: 0,
            created_at: String::new(),
        };
        let of_2026 = "019b76da-a800-7000-8000-000000000000";
        assert!(may_contain(&archive("2025-12-31T00:00:00Z", "2026-01-02T00:00:00Z"), of_2026));
        assert!(!may_contain(&archive("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"), of_2026));
    }
}
