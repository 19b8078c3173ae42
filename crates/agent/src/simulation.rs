//! The agent as a simulation runs it: the genuine runner with its genuine ledger, on a host, a clock and a runtime of the simulation's own, and
//! with handlers that change nothing but a model.
//!
//! Deliberately absent: the connection (`dial`, `service`), and what the genuine handlers fetch over it.

use std::sync::{Arc, OnceLock};

use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use gpuaas_host::Host;
use gpuaas_model::{Clock, Runtime, TaskId, TaskType, Timestamp};
use gpuaas_trust::{Authority, NodeIdentity, NodeKey, SigningKeySet};
use gpuaas_wire::{
    session::{Refusal, TaskLine},
    task::{TaskFailure, TaskProgress, TaskSupport},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    AgentError,
    catalog::{self, Entry},
    clock::Ports,
    context::Context,
    endpoints::Endpoints,
    fetch::Fetch,
    ledger::{ExpectedLedger, Ledger},
    runner::{Accepted, Addressee, Runner},
    service::until_end,
    state::{self, Identity, State},
};

/// Does a task of that type with those parameters.
pub type Handler = Arc<dyn Fn(TaskType, Value, Work) -> BoxFuture<'static, Result<Value, TaskFailure>> + Send + Sync>;

/// What a handler works with.
#[derive(Clone)]
pub struct Work {
    /// Cancelled when the task is to end early.
    pub cancel: CancellationToken,
    /// By when the task must have ended.
    pub deadline: Timestamp,
    /// Takes progress.
    pub progress: Arc<dyn Fn(TaskProgress) + Send + Sync>,
}

/// One run of an agent.
pub struct SimulatedAgent {
    runner: Arc<Runner>,
}

impl SimulatedAgent {
    /// Starts on that host, from the ledger that lies there.
    pub async fn open(
        host: Arc<dyn Host>,
        identity: &NodeIdentity,
        keys: SigningKeySet,
        (clock, runtime): (Arc<dyn Clock>, Arc<dyn Runtime>),
        handler: &Handler,
    ) -> Result<Self, AgentError> {
        let addressee =
            Addressee { control_plane: identity.control_plane.clone(), node: identity.node, epoch: identity.epoch };
        let entries = catalog::catalog().into_iter().map(|entry| modelled(entry, handler.clone())).collect();
        let mut expected = ExpectedLedger { id: None, node: identity.node, epoch: identity.epoch };
        if !host.exists(&state::path("ledger.jsonl")).await? {
            // What an enrollment does, which is not modelled.
            expected.id = Some(Ledger::prepare(&host, &expected, false, clock.now()).await?);
        }
        let ledger = Ledger::open(host.clone(), &expected, clock.now()).await?;
        let runner = Runner::with(host, nowhere()?, addressee, keys, Ok(ledger), (entries, Ports { clock, runtime }));
        Ok(Self { runner })
    }

    /// Takes an envelope, as the channel's service does.
    pub async fn accept(&self, envelope: &[u8]) -> Result<BoxStream<'static, TaskLine>, Refusal> {
        Ok(match self.runner.accept(envelope).await? {
            Accepted::Known(lines) => stream::iter(lines).boxed(),
            Accepted::Running(lines) => until_end(lines).boxed(),
        })
    }

    /// Ends a task early.
    pub fn cancel(&self, task: TaskId) {
        self.runner.cancel(task);
    }

    /// The catalog and the highest fence, for the hello.
    pub async fn hello(&self) -> (Vec<TaskSupport>, u64) {
        (self.runner.support(), self.runner.fence().await)
    }
}

/// The entry, with its name, schema and check of parameters, and the model's handler in place of its own.
fn modelled(entry: Entry, handler: Handler) -> Entry {
    let task = entry.task_type;
    let run = Box::new(move |params: Value, context: Context| {
        let Context { cancel, deadline, progress, .. } = context;
        handler(task, params, Work { cancel, deadline, progress })
    });
    Entry { run, ..entry }
}

/// A way to no control plane: modelled handlers ask theirs through the simulation.
fn nowhere() -> Result<Arc<Fetch>, AgentError> {
    static NOWHERE: OnceLock<Arc<Fetch>> = OnceLock::new();
    if let Some(fetch) = NOWHERE.get() {
        return Ok(fetch.clone());
    }
    let damaged = |error: &dyn std::fmt::Display| AgentError::State(error.to_string());
    let now = crate::clock::now();
    let authority = Authority::generate("nobody", now).map_err(|error| damaged(&error))?;
    let key = NodeKey::generate().map_err(|error| damaged(&error))?;
    let node = NodeIdentity {
        control_plane: "nobody".to_owned(),
        node: "00000000-0000-7000-8000-000000000000"
            .parse()
            .map_err(|error: gpuaas_model::IdParseError| damaged(&error))?,
        epoch: 0,
    };
    let request = key.request_pem().map_err(|error| damaged(&error))?;
    let set = SigningKeySet { version: 0, keys: Vec::new(), expires_at: now, authorities: Vec::new() };
    let set = set.sign(&authority).map_err(|error| damaged(&error))?;
    let identity = Identity {
        node: node.node,
        channels: Vec::new(),
        authority: authority.certificate_pem().to_owned(),
        certificate: authority.issue_node(&request, &node, now).map_err(|error| damaged(&error))?,
        control_plane: node.control_plane,
        epoch: node.epoch,
        key_set: set,
        name: None,
        url: None,
        enrolled_by: None,
        key: None,
        ledger: None,
    };
    let fetch = Fetch::new(&State { identity, key }, Arc::new(Endpoints::new(Vec::new())))?;
    Ok(NOWHERE.get_or_init(|| Arc::new(fetch)).clone())
}
