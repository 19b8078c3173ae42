//! Implements `gpuaas bootstrap`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use crate::{
    commands::context,
    connection,
    output::{self, NotFound},
    target::Target,
};

#[derive(Debug, Args)]
pub(crate) struct Bootstrap {
    /// File with the one-time token: admin.token in the control plane's data directory; - reads standard input
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Name for your token, shown in audit records
    #[arg(long)]
    name: String,
    /// Lifetime of your token, for example 24h, at most a year; default: 30 days
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    ttl: Option<Duration>,
    /// Store your token in this context instead of printing it
    #[arg(long, value_name = "CONTEXT")]
    save: Option<String>,
}

/// Reads the one-time token. The exchange removes its file.
fn one_time_token(file: &Path) -> anyhow::Result<String> {
    // Advice only for a missing file: `recover-admin` revokes the token in a file that this user may not read.
    if file.as_os_str() != "-" && matches!(file.try_exists(), Ok(false)) {
        let what = format!("{} does not exist: its token may have been exchanged already", file.display());
        let next = "make another one on the control plane's machine: gpuaas server recover-admin".to_owned();
        return Err(NotFound { what, next }.into());
    }
    context::read_token(file)
}

pub(crate) async fn run(target: &Target, options: Bootstrap) -> anyhow::Result<()> {
    let one_time = one_time_token(&options.token_file)?;
    // A context in which the token is stored gets the control plane that issues it.
    let target = &connection::with_endpoint(target)?;
    if let Some(name) = &options.save {
        // Before the exchange: the one-time token is spent by it.
        context::check(target, name)?;
    }
    let client = connection::client_with_token(target, &one_time)?;
    let request = gpuaas_api_types::Bootstrap { name: options.name, ttl_seconds: options.ttl.map(|ttl| ttl.as_secs()) };
    let created = client.bootstrap(&request).await?;
    if let Some(name) = options.save {
        return context::save_token(target, name, created.secret);
    }
    if target.output.is_for_people() {
        let until = created.token.expires_at.clone().unwrap_or_default();
        output::message(format_args!(
            "You are platform admin {} until {until}. Your token is shown only once:",
            created.token.name
        ));
    }
    output::one(target.output, &created, |created| created.secret.clone(), &created.secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_token_file_leads_to_another_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = one_time_token(&folder.path().join("admin.token")).expect_err("there is no file");
        assert!(missing.is::<NotFound>(), "{missing:#}");
        // Root may read every file, but nobody can follow this link.
        let unreadable = folder.path().join("loop");
        std::os::unix::fs::symlink(&unreadable, &unreadable).expect("linked");
        let refused = one_time_token(&unreadable).expect_err("it cannot be read");
        assert!(!refused.is::<NotFound>(), "{refused:#}");
    }
}
