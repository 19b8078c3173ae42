//! The reimage hook as a program of the operator. It receives a node with the secrets that its reimaged machine needs and passes them to a
//! provisioning system.

use std::{path::PathBuf, process::Stdio};

use async_trait::async_trait;
use gpuaas_engine::port::{ReimageHook, ReimageOrder};
use serde_json::json;
use tokio::{io::AsyncWriteExt, process::Command};
use zeroize::Zeroizing;

/// `PATH` of the hook.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a program that reads one JSON object from its standard input: `node` and `name`, `enrollment` (for the agent's file `enroll`) and
/// `reimage` (for its file `reimage`). Exit status 0 means that it accepted the order. Its arguments and environment hold no secrets, and
/// its output is discarded.
pub(crate) struct HookProgram(pub(crate) PathBuf);

#[async_trait]
impl ReimageHook for HookProgram {
    async fn reimage(&self, order: ReimageOrder) -> Result<(), String> {
        let ReimageOrder { node, name, enrollment, value } = order;
        let order = json!({
            "node": node, "name": name, "enrollment": enrollment.expose(), "reimage": value.expose(),
        });
        let order = Zeroizing::new(order.to_string());
        let mut program = Command::new(&self.0);
        program.env_clear().env("PATH", PATH).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running =
            program.kill_on_drop(true).spawn().map_err(|error| format!("{}: {error}", self.0.display()))?;
        if let Some(mut input) = running.stdin.take() {
            // Ignored: a program may exit without reading, and its exit status decides.
            let _ = input.write_all(order.as_bytes()).await;
        }
        let status = running.wait().await.map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", self.0.display())) }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use gpuaas_trust::SecretText;

    use super::*;

    fn hook(script: &str) -> (tempfile::TempDir, HookProgram) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        (folder, HookProgram(program))
    }

    fn order() -> ReimageOrder {
        ReimageOrder {
            node: "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap(),
            name: "gpu-07".parse().unwrap(),
            enrollment: SecretText::new("gpuaas1.string".to_owned()),
            value: SecretText::new("gpuaas-reimage_value".to_owned()),
        }
    }

    #[tokio::test]
    async fn hook_gets_secrets_only_on_standard_input() {
        let (folder, hook) = hook(
            "cat >\"$(dirname \"$0\")/order\"; env >\"$(dirname \"$0\")/env\"; echo \"$@\" >>\"$(dirname \"$0\")/env\"",
        );
        hook.reimage(order()).await.unwrap();
        let read: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("order")).unwrap()).unwrap();
        assert_eq!((read["name"].as_str(), read["enrollment"].as_str()), (Some("gpu-07"), Some("gpuaas1.string")));
        assert_eq!(read["reimage"].as_str(), Some("gpuaas-reimage_value"));
        let environment = fs::read_to_string(folder.path().join("env")).unwrap();
        assert!(!environment.contains("gpuaas"), "{environment}");
    }

    #[tokio::test]
    async fn hook_error_contains_no_secret() {
        let (_folder, failing) = hook("exit 3");
        let refused = failing.reimage(order()).await.unwrap_err();
        assert!(refused.contains("exit status: 3") && !refused.contains("value"), "{refused}");
        let missing = HookProgram("/nowhere/hook".into());
        assert!(missing.reimage(order()).await.unwrap_err().contains("/nowhere/hook"));
    }
}
