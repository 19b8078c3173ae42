//! The agent in a simulation: the genuine runner with its genuine ledger on a simulated host, clock and runtime; its handlers change only a
//! model.
//!
//! Deliberately absent: the connection (`control_connection`, `service`), and the requests that the genuine handlers send (`fetch`).

use std::sync::Arc;

use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use gpuaas_handler::{Context, Entry, test_host::Unreachable};
use gpuaas_host::Host;
use gpuaas_model::{Clock, Runtime, TaskId, TaskType, Timestamp};
use gpuaas_trust::{NodeIdentity, SigningKeySet};
use gpuaas_wire::{
    session::{Refusal, TaskLine},
    task::{TaskFailure, TaskProgress, TaskSupport},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    AgentError, catalog,
    clock::Ports,
    ledger::{ExpectedLedger, Ledger},
    paths,
    runner::{Accepted, Addressee, Runner},
    service::until_end,
};

/// Executes a task of the given type with the given parameters.
pub type Handler = Arc<dyn Fn(TaskType, Value, Work) -> BoxFuture<'static, Result<Value, TaskFailure>> + Send + Sync>;

/// Context of a simulated handler.
#[derive(Clone)]
pub struct Work {
    /// Cancelled when the task must end early.
    pub cancel: CancellationToken,
    /// Time by which the task must have ended.
    pub deadline: Timestamp,
    /// Accepts progress reports.
    pub progress: Arc<dyn Fn(TaskProgress) + Send + Sync>,
}

/// One run of a simulated agent.
pub struct SimulatedAgent {
    runner: Arc<Runner>,
}

impl SimulatedAgent {
    /// Starts an agent on `host`, with the ledger that is there; creates the ledger if there is none.
    pub async fn open(
        host: Arc<dyn Host>,
        identity: &NodeIdentity,
        keys: SigningKeySet,
        (clock, runtime): (Arc<dyn Clock>, Arc<dyn Runtime>),
        handler: &Handler,
    ) -> Result<Self, AgentError> {
        let addressee =
            Addressee { control_plane: identity.control_plane.clone(), node: identity.node, epoch: identity.epoch };
        let entries =
            catalog::catalog(|all, _| all).into_iter().map(|entry| simulated(entry, handler.clone())).collect();
        let mut expected = ExpectedLedger { id: None, node: identity.node, epoch: identity.epoch };
        if !host.files().exists(&paths::path("ledger.jsonl")).await? {
            // An enrollment would do this; enrollment is not simulated.
            expected.id = Some(Ledger::prepare(&host, &expected, false, clock.now()).await?);
        }
        let ledger = Ledger::open(host.clone(), &expected, clock.now()).await?;
        let runner = Runner::with_catalog(
            host,
            Arc::new(Unreachable),
            addressee,
            keys,
            Ok(ledger),
            (entries, Ports { clock, runtime }),
        );
        Ok(Self { runner })
    }

    /// Accepts an envelope and returns the task's lines, like `service`.
    pub async fn accept(&self, envelope: &[u8]) -> Result<BoxStream<'static, TaskLine>, Refusal> {
        Ok(match self.runner.accept(envelope).await? {
            Accepted::Known(lines) => stream::iter(lines).boxed(),
            Accepted::Running(lines) => until_end(lines).boxed(),
        })
    }

    /// Cancels a running task.
    pub fn cancel(&self, task: TaskId) {
        self.runner.cancel(task);
    }

    /// Returns the catalog and the highest accepted fence, for the hello message.
    pub async fn hello(&self) -> (Vec<TaskSupport>, u64) {
        (self.runner.support(), self.runner.fence().await)
    }
}

/// Returns the entry with its name, schemas and check of parameters, and with the model's handler instead of its own.
fn simulated(entry: Entry, handler: Handler) -> Entry {
    let task = entry.task_type;
    let run = Box::new(move |params: Value, context: Context| {
        let Context { cancel, deadline, progress, .. } = context;
        handler(task, params, Work { cancel, deadline, progress })
    });
    Entry { run, ..entry }
}
