//! The network between control planes and nodes: messages are delayed, lost, duplicated, or arrive long after the sender gave up.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{
    StreamExt,
    channel::mpsc::{self, UnboundedReceiver, UnboundedSender},
    stream::BoxStream,
};
use gpuaas_engine::{
    ownership::NodeAccess,
    port::{DispatchError, Nodes},
};
use gpuaas_model::{NodeId, TaskId};
use gpuaas_trust::{Envelope, TaskStatement};
use gpuaas_wire::{
    session::TaskLine,
    task::{TaskFailure, TaskOutcome},
};

use crate::{
    node::{Link, Node},
    oracles::{self, Effect},
    plane::{signer, signing_keys},
    scheduler::{Process, yield_once},
    simulation::Simulation,
};

type Update = Result<TaskLine, DispatchError>;

/// An envelope on its way, with the task in it or the reason why it cannot be opened.
struct Message {
    envelope: String,
    task: Result<TaskStatement, String>,
}

impl Message {
    fn new(envelope: String) -> Arc<Self> {
        let task = Envelope::open(envelope.as_bytes(), signing_keys()).map_err(|error| error.to_string());
        Arc::new(Self { envelope, task })
    }

    /// Describes the task for the trace.
    fn describe(&self) -> String {
        match &self.task {
            Ok(task) => format!("{} {} (attempt {}, fence {})", task.task_type, task.task, task.attempt, task.fence),
            Err(error) => error.clone(),
        }
    }
}

/// One control plane's access to the network.
pub(crate) struct Network {
    pub(crate) simulation: std::sync::Weak<Simulation>,
    pub(crate) plane: Process,
}

impl Network {
    fn simulation(&self) -> Result<Arc<Simulation>, DispatchError> {
        self.simulation.upgrade().ok_or(DispatchError::NotConnected)
    }
}

#[async_trait]
impl Nodes for Network {
    async fn dispatch(&self, access: &NodeAccess, envelope: &str) -> Result<BoxStream<'static, Update>, DispatchError> {
        let simulation = self.simulation()?;
        // A process that is frozen at this point has not sent anything.
        yield_once().await;
        let node = simulation.node(access.node().node);
        let link = node.link().filter(|link| link.enrolled == access.node()).ok_or(DispatchError::NotConnected)?;
        if link.plane != self.plane && simulation.scheduler.is_frozen(link.plane) {
            simulation.scheduler.sleep(Duration::from_secs(5)).await;
            return Err(DispatchError::Lost("the replica that holds the channel does not answer".to_owned()));
        }
        let message = Message::new(envelope.to_owned());
        simulation.log(&format!("{} → {}: {}", simulation.plane_name(self.plane), node.name, message.describe()));
        let (updates, stream) = mpsc::unbounded();
        if simulation.happens(|faults| faults.duplicated) {
            simulation.count("messages repeated");
            replay_later(&simulation, &node, message.clone());
        }
        replay_with_old_fence(&simulation, &node, &message);
        let lost = simulation.happens(|faults| faults.lost);
        let within = simulation.clone();
        simulation.scheduler.spawn(simulation.outside, async move {
            within.scheduler.sleep(within.latency()).await;
            if lost {
                within.count("messages lost");
                within.log(&format!("{}: a task was lost on its way", node.name));
                return send(&updates, Err(DispatchError::Lost("the message was lost".to_owned())));
            }
            let (lines, answers) = mpsc::unbounded();
            deliver(&within, &node, &message, lines);
            forward_updates(&within, &node, &link, answers, &updates).await;
        });
        Ok(stream.boxed())
    }

    async fn cancel(&self, node: NodeId, task: TaskId) {
        let Ok(simulation) = self.simulation() else { return };
        let node = simulation.node(node);
        if node.link().is_none() || simulation.happens(|faults| faults.lost) {
            return;
        }
        let within = simulation.clone();
        simulation.scheduler.spawn(simulation.outside, async move {
            within.scheduler.sleep(within.latency()).await;
            if let Some((_, agent)) = node.agent() {
                agent.cancel(task);
            }
        });
    }

    async fn observe(&self, node: NodeId, _units: Vec<String>) {
        if let Ok(simulation) = self.simulation() {
            simulation.node(node).begin_observation(&simulation);
        }
    }

    async fn send_keys(&self, _node: NodeId, _signed_set: &str) -> bool {
        false
    }

    fn recheck(&self, node: NodeId) {
        let Ok(simulation) = self.simulation() else { return };
        if let Some(node) = simulation.nodes().iter().find(|known| known.id == node) {
            node.recheck(&simulation, self.plane);
        }
    }

    fn recheck_all(&self) {
        let Ok(simulation) = self.simulation() else { return };
        simulation.nodes().iter().for_each(|node| node.recheck(&simulation, self.plane));
    }

    fn expect_reconnect(&self, node: NodeId) {
        let Ok(simulation) = self.simulation() else { return };
        if let Some(plane) = simulation.plane_of(self.plane) {
            simulation.node(node).expect_reconnect(&simulation, &plane);
        }
    }

    fn broadcast_endpoints(&self) {}

    fn close_channels(&self) {
        let Ok(simulation) = self.simulation() else { return };
        for node in simulation.nodes() {
            node.disconnect(Some(self.plane));
        }
    }
}

/// Delivers the envelope to the node's agent, which answers into `lines`. If no agent runs, or when it dies, `lines` is dropped.
fn deliver(simulation: &Arc<Simulation>, node: &Arc<Node>, message: &Arc<Message>, lines: UnboundedSender<TaskLine>) {
    let Some((process, agent)) = node.agent() else { return };
    let (within, node, message) = (simulation.clone(), node.clone(), message.clone());
    simulation.scheduler.spawn(process, async move {
        match agent.accept(message.envelope.as_bytes()).await {
            Ok(mut answer) => {
                while let Some(line) = answer.next().await {
                    if let (TaskLine::Accepted, Ok(task)) = (&line, &message.task) {
                        oracles::check_effect(&within, Effect::Begun(Box::new(task.clone())));
                    }
                    // If the receiver is gone, the result remains in the ledger.
                    let _ = lines.unbounded_send(line);
                }
            }
            Err(refusal) => {
                within.log(&format!("{} refuses {}: {}", node.name, message.describe(), refusal.code));
                let failure = TaskFailure::new(refusal.code, refusal.message);
                let _ = lines.unbounded_send(TaskLine::Ended(TaskOutcome::Failed { failure }));
            }
        }
    });
}

/// Delivers the same envelope again up to 30 s later, when its sender may be dead. The answer is discarded.
fn replay_later(simulation: &Arc<Simulation>, node: &Arc<Node>, message: Arc<Message>) {
    let (within, node) = (simulation.clone(), node.clone());
    let wait = Duration::from_millis(simulation.between(1, 30_000));
    simulation.scheduler.spawn(simulation.outside, async move {
        within.scheduler.sleep(wait).await;
        within.log(&format!("{}: {} is delivered again", node.name, message.describe()));
        deliver(&within, &node, &message, mpsc::unbounded().0);
    });
}

/// Occasionally sends a copy of the task, under a new task id, signed with the previous fence, as a deposed leader could. No row exists for
/// that task, and the node must refuse it.
fn replay_with_old_fence(simulation: &Arc<Simulation>, node: &Arc<Node>, message: &Message) {
    let Ok(task) = &message.task else { return };
    if task.fence < 2 || !simulation.happens(|faults| faults.old_leader) {
        return;
    }
    let present = task.fence;
    let old = TaskStatement { task: TaskId::from_uuid(simulation.uuid()), fence: present - 1, ..task.clone() };
    let Ok(envelope) = signer().sign(&old) else { return };
    let (within, node, old) = (simulation.clone(), node.clone(), Message::new(envelope.to_json()));
    simulation.scheduler.spawn(simulation.outside, async move {
        within.scheduler.sleep(within.latency()).await;
        let Some((_, agent)) = node.agent() else { return };
        // An agent that has not seen the current fence cannot detect the old one.
        if agent.hello().await.1 >= present {
            within.count("old leaders");
            deliver(&within, &node, &old, mpsc::unbounded().0);
        }
    });
}

/// Carries a task's lines back to the control plane, in order, while the connection is up.
async fn forward_updates(
    simulation: &Arc<Simulation>,
    node: &Node,
    link: &Link,
    mut lines: UnboundedReceiver<TaskLine>,
    updates: &UnboundedSender<Update>,
) {
    let broken = |why: &str| Err(DispatchError::Lost(why.to_owned()));
    loop {
        let line = tokio::select! {
            biased;
            () = link.ended.cancelled() => return send(updates, broken("the connection ended")),
            line = lines.next() => line,
        };
        let Some(line) = line else { return send(updates, broken("the agent closed the connection")) };
        tokio::select! {
            biased;
            () = link.ended.cancelled() => return send(updates, broken("the connection ended")),
            () = simulation.scheduler.sleep(simulation.latency()) => {}
        }
        if simulation.happens(|faults| faults.lost) {
            simulation.count("messages lost");
            simulation.log(&format!("{}: an answer was lost on its way", node.name));
            return send(updates, broken("the answer was lost"));
        }
        if matches!(line, TaskLine::Ended(_) | TaskLine::Interrupted) {
            simulation.log(&format!("{} ← {}", node.name, describe(&line)));
        }
        send(updates, Ok(line));
    }
}

fn send(updates: &UnboundedSender<Update>, update: Update) {
    // The receiver is dropped if the sender of the task gave up or died.
    let _ = updates.unbounded_send(update);
}

fn describe(line: &TaskLine) -> String {
    match line {
        TaskLine::Ended(TaskOutcome::Failed { failure }) => format!("failed: {}", failure.code),
        TaskLine::Ended(TaskOutcome::Succeeded { .. }) => "succeeded".to_owned(),
        TaskLine::Interrupted => "interrupted".to_owned(),
        TaskLine::Accepted | TaskLine::Progress(_) => "in progress".to_owned(),
    }
}
