//! A host for tests of handlers: a sandbox with the test's files and without an init. Every call to the init fails, and so does every request
//! to the control plane.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use camino::Utf8PathBuf;
use gpuaas_host::{
    Host, Process, now,
    sandbox::{SandboxEnvironment, SandboxHost},
};
use gpuaas_model::SecretId;
use gpuaas_wire::task::SecretRef;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::{
    context::Context,
    control_plane::{ByteStream, ControlPlane, RequestError},
};

/// Creates the host with these files. Its address is used by no other test or program, so that nothing listens there.
pub fn sandbox(files: &[(&str, &str)]) -> (tempfile::TempDir, Arc<dyn Host>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().canonicalize().expect("the folder exists");
    let root = Utf8PathBuf::from_path_buf(root).expect("its path is text");
    for (path, text) in files {
        let place = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().expect("a file is in a folder")).expect("a folder of the test");
        std::fs::write(place, text).expect("a file of the test");
    }
    let (address, socket) = ([127, 91, 8, 1].into(), root.join("run/none"));
    let environment = SandboxEnvironment { root, address, hostname: "n".to_owned(), socket };
    (folder, Arc::new(SandboxHost::new(environment)))
}

/// Returns a process with this program, as the holder of a port.
pub fn process_of(program: &str) -> Process {
    Process { pid: 812, program: program.to_owned(), unit: None, cgroup: String::new() }
}

/// Returns a context for handlers on that host; its control plane cannot be reached.
pub fn context(host: &Arc<dyn Host>) -> Context {
    Context {
        host: host.clone(),
        control_plane: Arc::new(Unreachable),
        cancel: CancellationToken::new(),
        deadline: now().plus(Duration::from_secs(60)),
        progress: Arc::new(|_| {}),
    }
}

/// A control plane that cannot be reached.
pub struct Unreachable;

#[async_trait]
impl ControlPlane for Unreachable {
    async fn artifact(&self, _: &str, _: u64) -> Result<ByteStream, RequestError> {
        Err(unreachable())
    }

    async fn secret(&self, _: &SecretRef) -> Result<Zeroizing<Vec<u8>>, RequestError> {
        Err(unreachable())
    }

    async fn deposit(&self, _: SecretId, _: &[u8]) -> Result<(), RequestError> {
        Err(unreachable())
    }
}

fn unreachable() -> RequestError {
    RequestError("the control plane cannot be reached".to_owned())
}
