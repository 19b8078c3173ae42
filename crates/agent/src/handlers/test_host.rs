//! A host for tests of handlers: a sandbox with the test's files and without an init. Every call to the init fails.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use camino::Utf8PathBuf;
use gpuaas_host::{
    Host, Process,
    sandbox::{SandboxEnvironment, SandboxHost},
};
use gpuaas_model::Timestamp;
use gpuaas_trust::{Authority, NodeIdentity, NodeKey, SigningKeySet};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::now,
    context::Context,
    endpoints::Endpoints,
    fetch::Fetch,
    state::{Identity, State},
};

/// Creates the host with these files. Its address is used by no other test or program, so that nothing listens there.
pub(crate) fn sandbox(files: &[(&str, &str)]) -> (tempfile::TempDir, Arc<dyn Host>) {
    let folder = tempfile::tempdir().unwrap();
    let root = Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
    for (path, text) in files {
        let place = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, text).unwrap();
    }
    let (address, socket) = ([127, 91, 8, 1].into(), root.join("run/none"));
    let environment = SandboxEnvironment { root, address, hostname: "n".to_owned(), socket };
    (folder, Arc::new(SandboxHost::new(environment)))
}

/// Returns a process with this program, as the holder of a port.
pub(crate) fn process_of(program: &str) -> Process {
    Process { pid: 812, program: program.to_owned(), unit: None, cgroup: String::new() }
}

/// Returns a context for handlers on that host; its client has no endpoints, so that nothing can be fetched.
pub(crate) fn context(host: &Arc<dyn Host>) -> Context {
    static OFFLINE: LazyLock<Arc<Fetch>> = LazyLock::new(|| Arc::new(offline_fetch()));
    Context {
        host: host.clone(),
        fetch: OFFLINE.clone(),
        cancel: CancellationToken::new(),
        deadline: now().plus(Duration::from_secs(60)),
        progress: Arc::new(|_| {}),
    }
}

fn offline_fetch() -> Fetch {
    Fetch::new(&test_state(), Arc::new(Endpoints::new(Vec::new()))).unwrap()
}

/// Returns an identity from a throw-away authority, in the form in which an older agent keeps the key separately.
pub(crate) fn test_state() -> State {
    let authority = Authority::generate("test", now()).unwrap();
    let key = NodeKey::generate().unwrap();
    let node = NodeIdentity {
        control_plane: "test".to_owned(),
        node: "0198c0de-7a3b-7c11-9b54-0242ac120001".parse().unwrap(),
        epoch: 1,
    };
    let identity = Identity {
        node: node.node,
        control_plane: node.control_plane.clone(),
        epoch: node.epoch,
        channels: Vec::new(),
        authority: authority.certificate_pem().to_owned(),
        certificate: authority.issue_node(&key.request_pem().unwrap(), &node, now()).unwrap(),
        key_set: SigningKeySet {
            version: 0,
            keys: Vec::new(),
            expires_at: Timestamp::from_millis(i64::MAX),
            authorities: Vec::new(),
        }
        .sign(&authority)
        .unwrap(),
        name: None,
        url: None,
        enrolled_by: None,
        key: None,
        ledger: None,
    };
    State { identity, key }
}
