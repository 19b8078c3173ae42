//! `gpuaas server`: runs the control plane and its maintenance commands.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use gpuaas_model::ExitStatus;
use gpuaas_server::{
    AcceptedHistory, CA_FILE, Deadlines, Finding, Manifest, NextSealingKey, OneTimeAdmin, Rates, Restored, Retention,
    RevokedNode, SUMS_FILE, ServerOptions, Verified, write_private,
};
use sd_notify::NotifyState;
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    signal::unix::{SignalKind, signal},
};

use super::confirm::Loss;
use crate::{
    cli::{Server, ServerVerb},
    connection::{ReadyFile, ReadyReplica},
    environment, output,
    setting::{SETTINGS, Setting},
    table::table,
    target::Target,
    text::Text,
    traces::Collector,
};

/// Runs a subcommand, or serves until SIGTERM, Ctrl-C or, with `--lifeline`, the end of standard input.
pub(crate) async fn run(target: &Target, arguments: Server, settings: &[Setting]) -> anyhow::Result<ExitCode> {
    if matches!(arguments.verb, Some(ServerVerb::CheckConfig)) {
        // Before anything is checked: the table also helps to find what is wrong.
        output::list(target.output, settings, SETTINGS, |setting| setting.key.clone())?;
    }
    let options = server_options(&arguments)?;
    let collector = arguments.collector();
    match arguments.verb {
        Some(ServerVerb::AcceptHistory { keep_credentials, confirm }) => {
            let preview = gpuaas_server::preview_accept_history(&options, keep_credentials);
            let loss = |preview: &AcceptedHistory| acceptance_loss(preview, keep_credentials);
            if !confirm.allows(target, preview, loss, "accepted").await? {
                return Ok(ExitCode::SUCCESS);
            }
            let accepted = gpuaas_server::accept_history(&options, keep_credentials).await?;
            let describe = |accepted: &AcceptedHistory| describe_acceptance(&options, accepted);
            output::one(target.output, &accepted, describe, "accepted")?;
            Ok(ExitCode::SUCCESS)
        }
        Some(ServerVerb::Backup { file, overwrite }) => {
            overwrite.check(&file)?;
            let manifest = gpuaas_server::backup(&options, &file).await?;
            print_backup(target, &manifest, &format!("Backed up into {}", file.display()))
        }
        Some(ServerVerb::Verify) => {
            let verified = gpuaas_server::verify(&options).await?;
            output::one(target.output, &verified, describe_verification, &verified.store)?;
            let status = if verified.findings.is_empty() { ExitStatus::Done } else { ExitStatus::Failed };
            Ok(output::exit(status))
        }
        Some(ServerVerb::Restore { file }) => {
            let restored = gpuaas_server::restore(&options, &file).await?;
            let describe = |restored: &Restored| describe_restore(&options, restored, &file);
            output::one(target.output, &restored, describe, &restored.backup.rows_sha256)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(ServerVerb::NextSealingKey { from }) => {
            let made = gpuaas_server::next_sealing_key(&options, from.as_deref())?;
            output::one(target.output, &made, describe_next_sealing_key, &made.id)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(ServerVerb::RecoverAdmin) => {
            let made = gpuaas_server::recover_admin(&options).await?;
            let describe = |made: &OneTimeAdmin| {
                let url = made.url.clone().unwrap_or_else(|| configured_url(&options));
                let next = exchange_command(&options, &url, &made.token_file);
                format!(
                    "A one-time admin token is in {}, valid until {}. Exchange it for your own:\n\n{next}",
                    made.token_file.display(),
                    made.expires_at
                )
            };
            output::one(target.output, &made, describe, &made.token_file.display().to_string())?;
            Ok(ExitCode::SUCCESS)
        }
        Some(ServerVerb::CheckConfig) => Ok(check_config(target, &options, collector.as_ref())),
        None => serve(&options, arguments).await.map(|()| ExitCode::SUCCESS),
    }
}

/// Describes what `verify` read and lists its findings.
fn describe_verification(verified: &Verified) -> Text {
    let Verified { store, schema, rows, sealed, artifacts, findings } = verified;
    let read = format!("Read {store} (schema {schema}): {rows} rows, {sealed} sealed values, {artifacts} artifacts.");
    if findings.is_empty() {
        return format!("{read} Nothing is wrong.").into();
    }
    let kind = |finding: &Finding| serde_json::to_value(finding.kind).ok()?.as_str().map(str::to_owned);
    let row = |of: &Finding| vec![kind(of).unwrap_or_default(), of.place.clone(), of.detail.clone()];
    let mut text = Text::from(format!("{read} Found {}:\n\n", count(findings.len())));
    text.push(&table(&["KIND", "WHERE", "PROBLEM"], findings.iter().map(row)));
    text.push_str("\n\nWhat to do: docs/operating.md, \"When the store is not as it was\".");
    text
}

fn count(problems: usize) -> String {
    if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") }
}

/// Describes the next sealing key and the steps to take with it.
fn describe_next_sealing_key(made: &NextSealingKey) -> String {
    let file = made.file.display();
    format!(
        "The next sealing key is {id}, in {file}.\n\n\
         What to do:\n  \
         1. Copy that file to the machine of every other replica, and there: gpuaas server next-sealing-key --from COPY\n  \
         2. On each machine, this one too: systemctl reload gpuaas-server\n  \
         3. gpuaas keys rotate sealing --wait",
        id = made.id
    )
}

fn server_options(arguments: &Server) -> anyhow::Result<ServerOptions> {
    let asked = arguments.clone();
    Ok(ServerOptions {
        store_url: environment::store_url(asked.store_url_file.as_deref())?,
        data_dir: asked.data_dir,
        listen: asked.listen,
        channel_listen: asked.channel_listen,
        replica_listen: asked.replica_listen,
        replica_address: asked.replica_address,
        tls_min_version: asked.tls_min_version,
        public_url: asked.public_url,
        sealing_key_file: asked.sealing_key_file,
        artifacts_dir: asked.artifacts_dir,
        packages_dir: asked.packages_dir.or_else(packages_of_this_program),
        release_ca_bundle: asked.release_ca_bundle,
        reimage_hook: asked.reimage_hook,
        release_import_dir: asked.release_import_dir,
        release_private_networks: asked.release_private_networks,
        release_trusted_keys: asked.release_trusted_keys,
        allow_unverified_releases: asked.allow_unverified_releases,
        proxy_protocol_from: asked.proxy_protocol_from,
        rates: Rates {
            per_token: asked.requests_per_token,
            per_project: asked.requests_per_project,
            per_address: asked.requests_per_address,
        },
        retention: Retention {
            operations: asked.keep_operations,
            events: asked.keep_events,
            audit: asked.keep_audit,
            idempotency_keys: asked.keep_idempotency_keys,
            enrollments: asked.keep_enrollments,
            ended_credentials: asked.keep_ended_credentials,
        },
        metrics_over_loopback: asked.metrics_over_loopback,
        rke2_deadlines: Deadlines {
            start: asked.rke2_start_deadline,
            node_ready: asked.rke2_node_ready_deadline,
            ..Deadlines::default()
        },
        reinitialize: asked.reinitialize,
    })
}

/// Returns the URL at which the configured API is reached.
fn configured_url(options: &ServerOptions) -> String {
    options.public_url.clone().unwrap_or_else(|| format!("https://{}", options.listen))
}

/// Returns the command line that exchanges a one-time token for a new admin's own token.
fn exchange_command(options: &ServerOptions, url: &str, token_file: &Path) -> String {
    let ca_file = options.data_dir.join(CA_FILE);
    let (token_file, ca_file) = (token_file.display(), ca_file.display());
    format!("gpuaas bootstrap --url {url} --ca-file {ca_file} --token-file {token_file} --name YOUR-NAME")
}

/// Finds the packages shipped with this program: in its installation prefix, or in the build directory.
fn packages_of_this_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let above = program.parent()?.parent()?;
    let folders = [above.join("share/gpuaas/packages"), above.join("packages")];
    folders.into_iter().find(|folder| folder.join(SUMS_FILE).is_file())
}

fn print_backup(target: &Target, manifest: &Manifest, what: &str) -> anyhow::Result<ExitCode> {
    output::one(target.output, manifest, |of: &Manifest| format_counts(of, what), &manifest.rows_sha256)?;
    Ok(ExitCode::SUCCESS)
}

fn format_counts(of: &Manifest, what: &str) -> String {
    let key = if of.holds_sealing_key { "with its sealing key" } else { "without its sealing key" };
    format!("{what}: {} rows, {} artifacts, {key}.", of.rows, of.artifacts)
}

/// Describes a restore and the steps that an operator takes next.
fn describe_restore(options: &ServerOptions, restored: &Restored, file: &Path) -> Text {
    let Restored { backup, ended, admin } = restored;
    let counted = format_counts(backup, &format!("Restored from {}", file.display()));
    let text = format!(
        "{counted}\n\n\
         Credentials revoked after {made_at} would be valid again, so the restore revoked all of these:\n  \
         every API token ({tokens} were valid), every enrollment string, every task-signing key, every node's identity.\n\n\
         What to do:\n  \
         1. Start the control plane, and sign in as its administrator before {expires_at}: {exchange}\n     \
         Then create tokens for people and programs: gpuaas token create NAME --role ROLE\n  \
         2. Enroll each node again: gpuaas node enroll NODE. First reset nodes that changed tenants after {made_at}: \
         gpuaas node reset NODE\n  \
         3. Look for workloads that were deployed after {made_at}: they keep running but are unmanaged",
        made_at = backup.made_at,
        tokens = ended.tokens,
        expires_at = admin.expires_at,
        exchange = exchange_command(options, &configured_url(options), &admin.token_file),
    );
    with_ended_nodes(text, &ended.nodes)
}

fn acceptance_loss(preview: &AcceptedHistory, keep_credentials: bool) -> Loss {
    let consequence = if keep_credentials {
        "Nothing is revoked: if the database is not the newest, credentials that missing changes revoked are valid again."
    } else {
        "Missing changes are lost, and every API token, enrollment string, task-signing key and node identity is revoked."
    };
    Loss::new("accept the history of this database", format!("{}. {consequence}", preview.found))
}

/// Describes an accepted history and the steps that an operator takes next.
fn describe_acceptance(options: &ServerOptions, accepted: &AcceptedHistory) -> Text {
    let found = &accepted.found;
    let (Some(ended), Some(admin)) = (&accepted.ended, &accepted.admin) else {
        return format!(
            "A new high-water mark was written, and nothing was revoked. Before: {found}\n\nStart the control plane."
        )
        .into();
    };
    let text = format!(
        "Accepted: {found}\n\n\
         Credentials that missing changes revoked would be valid again, so all of these were revoked:\n  \
         every API token ({tokens} were valid), every enrollment string, every task-signing key, every node's identity.\n\n\
         What to do:\n  \
         1. Start every replica of the control plane, and sign in as its administrator before {expires_at}: {exchange}\n     \
         Then create tokens for people and programs: gpuaas token create NAME --role ROLE\n  \
         2. Enroll each node again: gpuaas node enroll NODE. Register nodes that are missing: gpuaas node register NODE. \
         First reset nodes that changed tenants in missing changes: gpuaas node reset NODE\n  \
         3. Look for workloads that missing changes deployed: they keep running but are unmanaged",
        tokens = ended.tokens,
        expires_at = admin.expires_at,
        exchange = exchange_command(options, &configured_url(options), &admin.token_file),
    );
    with_ended_nodes(text, &ended.nodes)
}

/// Appends a table of the nodes that must enroll again, if there are any.
fn with_ended_nodes(text: String, nodes: &[RevokedNode]) -> Text {
    let mut text = Text::from(text);
    if !nodes.is_empty() {
        let held_by = |node: &RevokedNode| node.project_name.clone().unwrap_or_else(|| "-".to_owned());
        let rows = nodes.iter().map(|node| vec![node.name.clone(), node.state.to_string(), held_by(node)]);
        text.push_str("\n\n");
        text.push(&table(&["NODE", "STATE", "PROJECT AT THAT TIME"], rows));
    }
    text
}

/// Reports every problem of the settings.
fn check_config(target: &Target, options: &ServerOptions, collector: Option<&Collector>) -> ExitCode {
    let problems = options.problems().into_iter().map(anyhow::Error::from);
    let problems = problems.chain(collector.and_then(|collector| collector.roots().err()).map(anyhow::Error::from));
    problems.map(|problem| output::report_error(&problem, target.output, "")).last().unwrap_or(ExitCode::SUCCESS)
}

async fn serve(options: &ServerOptions, arguments: Server) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    let store = if options.store_url.is_some() { "postgresql" } else { "sqlite" };
    // Handled before the start: an early SIGHUP would otherwise end the process.
    let mut hangup = signal(SignalKind::hangup())?;
    let control_plane = gpuaas_server::start(options).await?;
    let ca_file = std::path::absolute(&control_plane.ca_file)?;
    output::message(format_args!(
        "control plane   {}   {store}   started in {} ms",
        control_plane.url,
        started.elapsed().as_millis()
    ));
    // A program that asked for the ready file exchanges the token itself.
    if let (Some(token_file), None) = (&control_plane.one_time_admin, &arguments.ready_file) {
        output::message(format_args!("first admin     {}", exchange_command(options, &control_plane.url, token_file)));
    }
    if let Some(path) = &arguments.ready_file {
        let ready = ReadyFile {
            url: control_plane.url.clone(),
            ca_file,
            token: None,
            nodes: Vec::new(),
            replicas: vec![ReadyReplica { url: control_plane.url.clone(), pid: std::process::id() }],
        };
        write_private(path, &serde_json::to_vec_pretty(&ready)?).context("writing the ready file")?;
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let reload = control_plane.reload.clone();
    // Fails in processes that systemd did not start.
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&control_plane.url)]);
    control_plane
        .serve(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = await_lifeline_end(arguments.lifeline) => {}
                () = async { while hangup.recv().await.is_some() { reload.notify_one() } } => {}
            }
        })
        .await;
    Ok(())
}

/// Returns when standard input closes, which means that the parent process ended. Without `--lifeline` it never returns.
async fn await_lifeline_end(is_enabled: bool) {
    let input = rustix::io::dup(std::io::stdin()).map(pipe::Receiver::from_owned_fd);
    let (true, Ok(Ok(mut input))) = (is_enabled, input) else { return std::future::pending().await };
    let mut nothing = [0_u8; 64];
    while matches!(input.read(&mut nothing).await, Ok(1..)) {}
}
