//! The folder of downloaded artifacts.
//!
//! The tenant is root on the node and may change them at any time: a handler checks the bytes that it uses, and fetches an artifact again if
//! they differ.

use camino::{Utf8Path, Utf8PathBuf};
use futures::TryStreamExt;
use gpuaas_host::{ContentId, HostError, is_disk_full};
use gpuaas_model::Code;
use gpuaas_wire::task::{ArtifactRef, TaskFailure};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::context::{Context, host_failed};

/// Folder in which artifacts are staged, by digest, for the node's one workload. The uninstall of the workload removes it.
pub const STAGING: &str = "/var/lib/gpuaas-agent/artifacts";

/// Returns the path of a staged artifact.
pub fn staged(artifact: &ArtifactRef) -> Result<Utf8PathBuf, TaskFailure> {
    content_id(artifact)?;
    Ok(Utf8Path::new(STAGING).join(&artifact.sha256))
}

/// Returns the digest and size that an artifact must have.
pub fn content_id(artifact: &ArtifactRef) -> Result<ContentId, TaskFailure> {
    let sha256 = artifact.sha256.parse();
    let sha256 =
        sha256.map_err(|_| TaskFailure::new(Code::TaskParamsInvalid, "a digest must have 64 lower-case hex digits"))?;
    Ok(ContentId { sha256, size_bytes: artifact.size_bytes })
}

/// Removes whatever is staged in the artifact's place, and fetches the artifact.
pub async fn refetch(artifact: &ArtifactRef, context: &Context) -> Result<u64, TaskFailure> {
    let path = staged(artifact)?;
    context.host.files().remove(&path).await.map_err(host_failed)?;
    context.report_progress(format!("fetching {}", artifact.name));
    let part = path.with_extension("part");
    let fetched = stage(artifact, &path, &part, context).await;
    // After `disk_full`, the partial file is removed: it occupies the space.
    if fetched.as_ref().is_err_and(|failure| failure.code == Code::DiskFull) {
        context.host.files().remove(&part).await.map_err(host_failed)?;
    }
    fetched
}

async fn stage(
    artifact: &ArtifactRef,
    path: &Utf8Path,
    part: &Utf8Path,
    context: &Context,
) -> Result<u64, TaskFailure> {
    let (file, have) = open_partial_file(artifact, part, context).await.map_err(host_failed)?;
    let fetched = if have < artifact.size_bytes { download(artifact, file, have, context).await? } else { 0 };
    if !context.host.files().has_content(part, content_id(artifact)?).await.map_err(host_failed)? {
        // The next attempt must not build on these bytes.
        context.host.files().remove(part).await.map_err(host_failed)?;
        let message = format!("the fetched file {} does not have the digest {}", artifact.name, artifact.sha256);
        return Err(TaskFailure::new(Code::ArtifactDigestMismatch, message));
    }
    context.host.files().sync(part).await.map_err(host_failed)?;
    context.host.files().rename(part, path).await.map_err(host_failed)?;
    Ok(fetched)
}

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens what an earlier attempt left, to append to it, and returns its length. Anything that cannot be the beginning of the artifact is
/// removed.
async fn open_partial_file(
    artifact: &ArtifactRef,
    part: &Utf8Path,
    context: &Context,
) -> Result<(Writer, u64), HostError> {
    let host = &context.host;
    match host.files().append(part).await {
        Ok(file) => {
            let have = host.files().size(part).await?.unwrap_or(0);
            if have <= artifact.size_bytes {
                return Ok((file, have));
            }
        }
        Err(HostError::UnsafePath { at, what, .. }) => {
            tracing::warn!(%at, what, "removing an unexpected file at the path of a download")
        }
        Err(error) => return Err(error),
    }
    host.files().remove(part).await?;
    Ok((host.files().append(part).await?, 0))
}

async fn download(
    artifact: &ArtifactRef,
    mut file: Writer,
    offset: u64,
    context: &Context,
) -> Result<u64, TaskFailure> {
    let unreachable = |error: &dyn std::fmt::Display| {
        TaskFailure::new(Code::ServerUnreachable, format!("fetching {}: {error}", artifact.name))
    };
    let requested = context.control_plane.artifact(&artifact.sha256, offset).await;
    let mut body = requested.map_err(|error| unreachable(&error))?;
    let (mut fetched, remaining_bytes) = (0_u64, artifact.size_bytes - offset);
    while let Some(data) = body.try_next().await.map_err(|error| unreachable(&error))? {
        fetched += data.len() as u64;
        if fetched > remaining_bytes {
            return Err(TaskFailure::new(
                Code::ArtifactDigestMismatch,
                format!("{} is longer than its stated size", artifact.name),
            ));
        }
        file.write_all(&data).await.map_err(|error| staging_error(artifact, &error))?;
        if context.cancel.is_cancelled() {
            return Err(TaskFailure::new(Code::TaskCancelled, "the fetch was cancelled; the partial file is kept"));
        }
    }
    file.flush().await.map_err(|error| staging_error(artifact, &error))?;
    if fetched < remaining_bytes {
        return Err(TaskFailure::new(
            Code::ArtifactTruncated,
            format!("the download of {} ended early; the partial file is kept", artifact.name),
        ));
    }
    Ok(fetched)
}

fn staging_error(artifact: &ArtifactRef, error: &std::io::Error) -> TaskFailure {
    let ArtifactRef { name, size_bytes, .. } = artifact;
    if is_disk_full(error) {
        let message = format!("the node's disk has too little space for {name} ({} MiB)", size_bytes.div_ceil(1 << 20));
        return TaskFailure::new(Code::DiskFull, message);
    }
    TaskFailure::new(Code::HostFailed, format!("staging {name}: {error}"))
}
