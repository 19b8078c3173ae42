//! `artifact.fetch`: brings artifacts into the staging folder, goes on where an earlier try ended, and checks every byte.

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::no_room;
use gpuaas_model::Code;
use gpuaas_wire::task::{ArtifactFetch, ArtifactFetched, ArtifactRef, TaskFailure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    context::{Context, host_failed},
    http_client::next_piece,
};

/// Where artifacts are staged, by digest.
const STAGING: &str = "/var/lib/gpuaas-agent/artifacts";
/// Bytes read at once when a file is checked.
const CHUNK_BYTES: usize = 256 * 1_024;

/// Where a fetched and verified artifact lies.
pub(crate) fn staged(artifact: &ArtifactRef) -> Result<Utf8PathBuf, TaskFailure> {
    let hex = artifact.sha256.len() == 64 && artifact.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hex {
        Ok(Utf8Path::new(STAGING).join(&artifact.sha256))
    } else {
        Err(TaskFailure::new(Code::TaskParamsInvalid, "a digest has 64 hex digits"))
    }
}

/// Fetches what is missing.
pub(crate) async fn run(task: ArtifactFetch, context: Context) -> Result<ArtifactFetched, TaskFailure> {
    let mut done = ArtifactFetched { fetched_bytes: 0, reused_bytes: 0 };
    for artifact in &task.artifacts {
        let path = staged(artifact)?;
        if context.host.exists(&path).await.map_err(host_failed)? {
            done.reused_bytes += artifact.size_bytes;
            continue;
        }
        context.say(format!("fetching {}", artifact.name));
        done.fetched_bytes += fetch(artifact, &path, &context).await?;
    }
    Ok(done)
}

/// Stages an artifact. What a full disk cut off is removed: kept, it would keep the disk full.
async fn fetch(artifact: &ArtifactRef, path: &Utf8Path, context: &Context) -> Result<u64, TaskFailure> {
    let part = path.with_extension("part");
    let fetched = stage(artifact, path, &part, context).await;
    if fetched.as_ref().is_err_and(|failure| failure.code == Code::DiskFull) {
        context.host.remove(&part).await.map_err(host_failed)?;
    }
    fetched
}

async fn stage(
    artifact: &ArtifactRef,
    path: &Utf8Path,
    part: &Utf8Path,
    context: &Context,
) -> Result<u64, TaskFailure> {
    let have = context.host.size(part).await.map_err(host_failed)?.unwrap_or(0);
    // More than the whole cannot be a beginning of it.
    let have = if have > artifact.size_bytes {
        context.host.remove(part).await.map_err(host_failed)?;
        0
    } else {
        have
    };
    let mut fetched = 0;
    if have < artifact.size_bytes {
        fetched = download(artifact, part, have, context).await?;
    }
    let digest = digest(part, context).await?;
    if digest != artifact.sha256 {
        // Whatever it is, the next try must not build on it.
        context.host.remove(part).await.map_err(host_failed)?;
        let message = format!("{} has digest {digest}, not {}", artifact.name, artifact.sha256);
        return Err(TaskFailure::new(Code::ArtifactDigestMismatch, message));
    }
    context.host.sync(part).await.map_err(host_failed)?;
    context.host.rename(part, path).await.map_err(host_failed)?;
    Ok(fetched)
}

async fn download(artifact: &ArtifactRef, part: &Utf8Path, offset: u64, context: &Context) -> Result<u64, TaskFailure> {
    let lost = |error: &dyn std::fmt::Display| {
        TaskFailure::new(Code::ServerUnreachable, format!("fetching {}: {error}", artifact.name))
    };
    let response = context.fetch.artifact(&artifact.sha256, offset).await.map_err(|error| lost(&error))?;
    let mut body = response.into_body();
    let mut file = context.host.append(part).await.map_err(host_failed)?;
    let (mut fetched, room) = (0_u64, artifact.size_bytes - offset);
    while let Some(data) = next_piece(&mut body).await.map_err(|error| lost(&error))? {
        fetched += data.len() as u64;
        if fetched > room {
            return Err(TaskFailure::new(
                Code::ArtifactDigestMismatch,
                format!("{} is longer than it must be", artifact.name),
            ));
        }
        file.write_all(&data).await.map_err(|error| unstaged(artifact, &error))?;
        if context.cancel.is_cancelled() {
            return Err(TaskFailure::new(Code::TaskCancelled, "the fetch was cancelled; what is staged is kept"));
        }
    }
    file.flush().await.map_err(|error| unstaged(artifact, &error))?;
    if fetched < room {
        return Err(TaskFailure::new(
            Code::ArtifactTruncated,
            format!("{} broke off; what is staged is kept", artifact.name),
        ));
    }
    Ok(fetched)
}

fn unstaged(artifact: &ArtifactRef, error: &std::io::Error) -> TaskFailure {
    let ArtifactRef { name, size_bytes, .. } = artifact;
    if no_room(error) {
        let message = format!("the node's disk has no room for {name}, {} MiB", size_bytes.div_ceil(1 << 20));
        return TaskFailure::new(Code::DiskFull, message);
    }
    TaskFailure::new(Code::HostFailed, format!("staging {name}: {error}"))
}

async fn digest(path: &Utf8Path, context: &Context) -> Result<String, TaskFailure> {
    let mut file = context.host.open(path).await.map_err(host_failed)?;
    let mut hash = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let mut chunk = vec![0_u8; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk).await;
        match read.map_err(|error| TaskFailure::new(Code::HostFailed, format!("{path}: {error}")))? {
            0 => return Ok(hex::encode(hash.finish())),
            read => hash.update(&chunk[..read]),
        }
    }
}
