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
mod tests;
