//! `rke2.configure`: writes the configuration and the token files that it names.

use camino::Utf8Path;
use gpuaas_app_rke2_tasks::{Rke2Configure, Rke2Configured};
use gpuaas_handler::{Context, host_failed};
use gpuaas_host::{Changed, FileSpec};
use gpuaas_model::Code;
use gpuaas_wire::task::{SecretRef, TaskFailure};

/// Writes the files that differ.
pub(crate) async fn run(task: Rke2Configure, context: Context) -> Result<Rke2Configured, TaskFailure> {
    context.host.files().make_folder(Utf8Path::new("/etc/rancher/rke2"), 0o700).await.map_err(host_failed)?;
    let mut changed = secret_file(&task.token, Rke2Configure::TOKEN_PATH, &context).await?;
    if let Some(token) = &task.agent_token {
        changed = changed.or(secret_file(token, Rke2Configure::AGENT_TOKEN_PATH, &context).await?);
    }
    // The configuration is written last, so that RKE2 always finds the files that the configuration names.
    let file = FileSpec { path: Rke2Configure::CONFIG_PATH.into(), mode: 0o600, content: task.config.into_bytes() };
    changed = changed.or(context.host.files().write(&file).await.map_err(host_failed)?);
    Ok(Rke2Configured { changed: changed == Changed::Yes })
}

async fn secret_file(secret: &SecretRef, path: &str, context: &Context) -> Result<Changed, TaskFailure> {
    let bytes = context.control_plane.secret(secret).await;
    let bytes =
        bytes.map_err(|error| TaskFailure::new(Code::ServerUnreachable, format!("fetching a secret: {error}")))?;
    let file = FileSpec { path: path.into(), mode: 0o600, content: bytes.to_vec() };
    context.host.files().write(&file).await.map_err(host_failed)
}
