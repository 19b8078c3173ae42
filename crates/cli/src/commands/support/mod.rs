//! Implements `gpuaas support`.

mod gather;
mod redact;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Subcommand;
use flate2::{Compression, write::GzEncoder};
use gpuaas_client::Client;
use gpuaas_server::write_private;
use serde::Serialize;
use serde_json::json;

use super::overwrite::Overwrite;
use crate::{output, target::Target};

/// Most bytes of an added file. Only the end of a longer file is added.
const ADDED_BYTES_MAX: u64 = 32 * 1_024 * 1_024;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Collect diagnostics into one file, without secrets
    Bundle {
        /// File to write: a gzipped tar archive with mode 0600
        #[arg(long, value_name = "FILE", default_value = "gpuaas-support.tar.gz")]
        file: PathBuf,
        /// File to add, for example the control plane's log; text that looks like a secret is redacted; repeatable
        #[arg(long, value_name = "FILE")]
        add: Vec<PathBuf>,
        #[command(flatten)]
        overwrite: Overwrite,
    },
}

/// The result of the command.
#[derive(Serialize)]
struct BundleResult {
    file: String,
    entries: usize,
    /// Parts that could not be read, with the error.
    missing: Vec<String>,
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let Verb::Bundle { file, add, overwrite } = verb;
    overwrite.check(&file)?;
    let me = client.whoami().await?;
    let mut entries = vec![(
        "about.json".to_owned(),
        to_json(&json!({
            "made_at": jiff::Timestamp::now().to_string(), "by": me.name, "role": me.role, "version": env!("CARGO_PKG_VERSION"),
        })),
    )];
    let mut missing = Vec::new();
    gather::lists(client, &mut entries, &mut missing).await;
    for path in ["/readyz?verbose", "/metrics"] {
        let name = path.trim_start_matches('/').split('?').next().unwrap_or_default();
        match client.read_text(path).await {
            Ok(text) => entries.push((format!("{name}.txt"), text)),
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    for path in &add {
        let name = path.file_name().context("the path after --add has no file name")?.to_string_lossy().into_owned();
        entries.push((added_path(&entries, &name), read_tail(path)?));
    }
    if !missing.is_empty() {
        entries.push(("missing.json".to_owned(), to_json(&missing)));
    }
    write_private(&file, &pack(&entries)?).with_context(|| format!("writing {}", file.display()))?;
    let bundled = BundleResult { file: file.display().to_string(), entries: entries.len(), missing };
    let words = |bundled: &BundleResult| {
        let missing: String = bundled.missing.iter().map(|what| format!("\nmissing: {what}")).collect();
        format!("Wrote {} with {} entries. Review it before you share it.{missing}", bundled.file, bundled.entries)
    };
    output::one(target.output, &bundled, words, &bundled.file)
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("serialization failed: {error}"))
}

/// Returns the path of an added file in the archive. Files with the same name get a number.
fn added_path(entries: &[(String, String)], name: &str) -> String {
    let further = (2..).map(|number| format!("added/{number}/{name}"));
    let is_free = |place: &String| entries.iter().all(|(taken, _)| taken != place);
    std::iter::once(format!("added/{name}")).chain(further).find(is_free).unwrap_or_default()
}

/// Returns the end of a file as text. Omits a line that is cut off at the start, because the name of a secret in it may be missing.
fn read_tail(path: &Path) -> anyhow::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let reading = || format!("reading {}", path.display());
    let mut file = std::fs::File::open(path).with_context(reading)?;
    let length = file.metadata().with_context(reading)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(ADDED_BYTES_MAX))).with_context(reading)?;
    let mut bytes = Vec::new();
    file.take(ADDED_BYTES_MAX).read_to_end(&mut bytes).with_context(reading)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let is_cut = length > ADDED_BYTES_MAX;
    Ok(if is_cut { text.split_once('\n').map_or_else(String::new, |(_, rest)| rest.to_owned()) } else { text })
}

fn pack(entries: &[(String, String)]) -> anyhow::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_files_with_equal_names_get_distinct_paths() {
        let mut entries = Vec::new();
        for _ in 0..3 {
            entries.push((added_path(&entries, "server.log"), String::new()));
        }
        let places: Vec<&str> = entries.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["added/server.log", "added/2/server.log", "added/3/server.log"]);
    }

    #[test]
    fn long_file_is_cut_to_its_last_complete_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut text = "x".repeat(ADDED_BYTES_MAX as usize - 10);
        text.insert_str(0, "the token of this long line is ");
        text.push_str("\nthe end\n");
        std::fs::write(file.path(), &text).unwrap();
        assert_eq!(read_tail(file.path()).unwrap(), "the end\n");
        std::fs::write(file.path(), "short\nand whole").unwrap();
        assert_eq!(read_tail(file.path()).unwrap(), "short\nand whole");
    }
}
