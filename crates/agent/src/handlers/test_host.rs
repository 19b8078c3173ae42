//! A host for tests of handlers: a sandbox without an init, whose files are a test's. What asks the init fails.

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

/// With these files; an address of its own, so that nobody else listens there.
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

/// A process that holds something.
pub(crate) fn held_by(program: &str) -> Process {
    Process { pid: 812, program: program.to_owned(), unit: None, cgroup: String::new() }
}

/// What a handler works with there; nobody is to be asked for artifacts.
pub(crate) fn context(host: &Arc<dyn Host>) -> Context {
    static NOBODY: LazyLock<Arc<Fetch>> = LazyLock::new(|| Arc::new(nobody()));
    Context {
        host: host.clone(),
        fetch: NOBODY.clone(),
        cancel: CancellationToken::new(),
        deadline: now().plus(Duration::from_secs(60)),
        progress: Arc::new(|_| {}),
    }
}

fn nobody() -> Fetch {
    Fetch::new(&enrolled_nobody(), Arc::new(Endpoints::new(Vec::new()))).unwrap()
}

/// An identity of an authority that nobody else knows, in the form of an agent that kept its key apart.
pub(crate) fn enrolled_nobody() -> State {
    let authority = Authority::generate("nobody", now()).unwrap();
    let key = NodeKey::generate().unwrap();
    let node = NodeIdentity {
        control_plane: "nobody".to_owned(),
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
