//! `artifact.fetch`: downloads artifacts into the staging folder, resumes where an earlier attempt ended, and checks every byte.
//!
//! Guarantees: every artifact that is staged when this task ends has its digest, including those that an earlier task staged. The tenant
//! may change them afterwards: [`gpuaas_handler::staging`] says what the handlers that use them do.

use gpuaas_handler::{
    Context, host_failed,
    staging::{content_id, refetch, staged},
};
use gpuaas_wire::task::{ArtifactFetch, ArtifactFetched, TaskFailure};

/// Fetches the artifacts that are missing or staged with other bytes.
pub(crate) async fn run(task: ArtifactFetch, context: Context) -> Result<ArtifactFetched, TaskFailure> {
    let mut done = ArtifactFetched { fetched_bytes: 0, reused_bytes: 0 };
    for artifact in &task.artifacts {
        if context.host.files().has_content(&staged(artifact)?, content_id(artifact)?).await.map_err(host_failed)? {
            done.reused_bytes += artifact.size_bytes;
        } else {
            done.fetched_bytes += refetch(artifact, &context).await?;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use gpuaas_handler::test_host::{context, sandbox};
    use gpuaas_model::Code;
    use gpuaas_trust::sha256_hex;
    use gpuaas_wire::task::ArtifactRef;

    use super::*;

    #[tokio::test]
    async fn staged_file_with_other_bytes_is_removed_and_not_reused() {
        let (good, evil) = (b"good bytes", "evil bytes");
        let artifact = ArtifactRef { name: "a".to_owned(), sha256: sha256_hex(good), size_bytes: good.len() as u64 };
        let path = staged(&artifact).unwrap();
        let (_folder, host) = sandbox(&[(path.as_str(), evil)]);
        let task = ArtifactFetch { artifacts: vec![artifact.clone()] };
        // It is fetched again, from a control plane that does not exist.
        assert_eq!(run(task.clone(), context(&host)).await.unwrap_err().code, Code::ServerUnreachable);
        assert!(!host.files().exists(&path).await.unwrap());

        let (_folder, host) = sandbox(&[(path.as_str(), "good bytes")]);
        let done = run(task, context(&host)).await.unwrap();
        assert_eq!(done, ArtifactFetched { fetched_bytes: 0, reused_bytes: good.len() as u64 });
    }
}
