//! `gpuaas support`.

mod redact;

use std::{
    collections::VecDeque,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Subcommand;
use flate2::{Compression, write::GzEncoder};
use gpuaas_client::Client;
use gpuaas_server::write_private;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{cli::Target, output};

/// Objects of one kind in a bundle: the newest.
const KEPT_MAX: usize = 5_000;
/// Pages of a list that are read at most; events and audit of a year are not what a bundle is for.
const PAGES_MAX: usize = 200;
/// Longest file that is added, in bytes; of a longer one the end is taken.
const ADDED_BYTES_MAX: u64 = 32 * 1_024 * 1_024;

/// The lists that make up a bundle, each with the parameter that asks for its next page, where it has pages.
const LISTS: [(&str, Option<&str>); 12] = [
    ("replicas", None),
    ("projects", None),
    ("nodes", Some("cursor")),
    ("allocations", Some("cursor")),
    ("apps", None),
    ("artifacts", None),
    ("workloads", Some("cursor")),
    ("operations", Some("cursor")),
    ("tasks", Some("cursor")),
    ("signing-keys", None),
    ("events", Some("after")),
    ("audit", Some("after")),
];

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Gather what helps to understand a fault into one file, without secrets
    Bundle {
        /// The file to write, a gzipped tar archive readable by its owner alone
        #[arg(long, value_name = "FILE", default_value = "gpuaas-support.tar.gz")]
        file: PathBuf,
        /// A file to add, for example the control plane's log; what looks like a secret is taken out of it
        #[arg(long, value_name = "FILE")]
        add: Vec<PathBuf>,
    },
}

/// What was written.
#[derive(Serialize)]
struct Bundled {
    file: String,
    entries: usize,
    /// Parts that could not be read, and why.
    missing: Vec<String>,
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let Verb::Bundle { file, add } = verb;
    let me = client.whoami().await?;
    let mut entries = vec![(
        "about.json".to_owned(),
        written(&json!({
            "made_at": jiff::Timestamp::now().to_string(), "by": me.name, "role": me.role, "version": env!("CARGO_PKG_VERSION"),
        })),
    )];
    let mut missing = Vec::new();
    for (name, pages_by) in LISTS {
        match gathered(client, name, pages_by).await {
            Ok(items) => entries.push((format!("{name}.json"), written(&items))),
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    for path in ["/readyz?verbose", "/metrics"] {
        let name = path.trim_start_matches('/').split('?').next().unwrap_or_default();
        match client.read_text(path).await {
            Ok(text) => entries.push((format!("{name}.txt"), text)),
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    for path in &add {
        let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        entries.push((format!("added/{name}"), end_of(path)?));
    }
    if !missing.is_empty() {
        entries.push(("missing.json".to_owned(), written(&missing)));
    }
    write_private(&file, &packed(&entries)?).with_context(|| format!("writing {}", file.display()))?;
    let bundled = Bundled { file: file.display().to_string(), entries: entries.len(), missing };
    let words = |bundled: &Bundled| {
        let missing: String = bundled.missing.iter().map(|what| format!("\nmissing: {what}")).collect();
        format!(
            "Wrote {} with {} entries. Look through it before you hand it on.{missing}",
            bundled.file, bundled.entries
        )
    };
    output::one(target.output, &bundled, words, &bundled.file)
}

/// The newest objects of a list.
async fn gathered(client: &Client, list: &str, pages_by: Option<&str>) -> anyhow::Result<VecDeque<Value>> {
    let mut kept = VecDeque::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let place = pages_by.zip(cursor.as_deref());
        let mut page = client.read_page(list, pages_by.is_some(), place).await?;
        let items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        kept.extend(items);
        kept.drain(..kept.len().saturating_sub(KEPT_MAX));
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    Ok(kept)
}

fn written(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("not written: {error}"))
}

/// The end of a file, as text.
fn end_of(path: &Path) -> anyhow::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let reading = || format!("reading {}", path.display());
    let mut file = std::fs::File::open(path).with_context(reading)?;
    let length = file.metadata().with_context(reading)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(ADDED_BYTES_MAX))).with_context(reading)?;
    let mut bytes = Vec::new();
    file.take(ADDED_BYTES_MAX).read_to_end(&mut bytes).with_context(reading)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn packed(entries: &[(String, String)]) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in entries {
        let text = redact::redacted(text);
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, format!("gpuaas-support/{name}"), text.as_bytes())?;
    }
    let mut encoder = archive.into_inner()?;
    encoder.flush()?;
    Ok(encoder.finish()?)
}
