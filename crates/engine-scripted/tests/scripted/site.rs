//! A project with allocations on connected nodes, and workloads of the test app ([`crate::kit`]) on them.

use std::collections::BTreeMap;

use gpuaas_engine::{
    Engine, Precondition,
    commands::{artifact, node as command, operation, project, workload},
    waiting::unexplained,
};
use gpuaas_model::{
    AllocationId, AllocationState, Connectivity, EnrolledNode, EventKind, NodeId, NodeState, OperationId, ProjectId,
    StreamName, TaskType, Timestamp, WorkloadId,
};
use gpuaas_planner::{StepSpec, WorkloadView};
use gpuaas_store::{
    AllocationRecord, EventRecord, MemberRecord, OperationRecord, StepRecord, TaskRecord, WorkloadRecord,
};
use gpuaas_wire::{
    session::{ConnectionKind, Hello},
    task::TaskSupport,
};
use serde_json::json;
use uuid::Uuid;

use crate::{
    engines::{Engines, admin, eventually},
    kit::{KIT, TASKS},
};

/// A running engine and a project that has one allocation per node.
pub(crate) struct Site {
    pub(crate) engines: Engines,
    pub(crate) project: ProjectId,
    pub(crate) allocations: Vec<AllocationId>,
    pub(crate) nodes: Vec<NodeId>,
}

impl Site {
    pub(crate) async fn of(allocations: u8) -> Self {
        let engines = Engines::new().await;
        let project = project::create(&engines.engine, &admin(), "lab".parse().unwrap()).await.unwrap().id;
        let release = artifact::VerifiedRelease {
            app: KIT.to_owned(),
            version: "1".to_owned(),
            files: vec![("kit.tar".to_owned(), "0".repeat(64), 1)],
            source: "a test".to_owned(),
            stand_in: true,
        };
        artifact::record(&engines.engine, &admin(), release).await.unwrap();
        let mut site = Self { engines, project, allocations: Vec::new(), nodes: Vec::new() };
        for number in 1..=allocations {
            site.allocation(number).await;
        }
        let engine = site.engines.engine.clone();
        engine.join().await.unwrap();
        tokio::spawn(async move { engine.run().await });
        site
    }

    async fn allocation(&mut self, number: u8) {
        let id = self.engines.node(&format!("gpu-{number}")).await;
        let mut tx = self.engines.store().begin().await.unwrap();
        let mut node = tx.node(id).await.unwrap();
        node.state = NodeState::Active;
        node.connectivity = Connectivity::Connected;
        node.support = TASKS.map(support).into();
        tx.update_node(&node).await.unwrap();
        let allocation = self.active_allocation(number.into(), self.project, id);
        tx.insert_allocation(&allocation).await.unwrap();
        tx.commit().await.unwrap();
        self.allocations.push(allocation.id);
        self.nodes.push(id);
    }

    /// An active allocation, which is not stored.
    pub(crate) fn active_allocation(&self, number: u128, project: ProjectId, node: NodeId) -> AllocationRecord {
        AllocationRecord {
            id: AllocationId::from_uuid(Uuid::from_u128(number)),
            project,
            node,
            state: AllocationState::Active,
            detail: None,
            created_at: self.engines.engine.ports().clock.now(),
            generation: 0,
        }
    }

    /// Returns a request to deploy a workload onto all allocations.
    pub(crate) fn request(&self) -> workload::Deploy {
        workload::Deploy {
            project: self.project,
            app: KIT.to_owned(),
            version: None,
            name: "train".parse().unwrap(),
            intent: json!(self.allocations),
            config: json!({}),
        }
    }

    /// Deploys a workload onto all allocations, with the steps that `planned` returns.
    pub(crate) async fn deploy(
        &self,
        planned: impl Fn(&WorkloadView) -> Vec<StepSpec> + Send + 'static,
    ) -> (WorkloadId, OperationId) {
        self.engines.kit.set_plan(planned);
        let accepted = workload::deploy(&self.engines.engine, &admin(), self.request()).await.unwrap();
        (accepted.workload.id, accepted.operation.id)
    }

    /// Deploys like [`Self::deploy`] and waits for the end of the operation.
    pub(crate) async fn deploy_and_wait(
        &self,
        planned: impl Fn(&WorkloadView) -> Vec<StepSpec> + Send + 'static,
    ) -> Ended {
        let (_, operation) = self.deploy(planned).await;
        self.end_of(operation).await
    }

    pub(crate) async fn decommission_and_wait(
        &self,
        workload: WorkloadId,
        planned: impl Fn(&WorkloadView) -> Vec<StepSpec> + Send + 'static,
    ) -> Ended {
        self.engines.kit.set_plan(planned);
        let accepted =
            workload::decommission(&self.engines.engine, &admin(), workload, &Precondition::Any).await.unwrap();
        self.end_of(accepted.operation.id).await
    }

    pub(crate) async fn resume_and_wait(&self, workload: WorkloadId) -> Ended {
        let accepted = workload::resume(&self.engines.engine, &admin(), workload, &Precondition::Any).await.unwrap();
        self.end_of(accepted.operation.id).await
    }

    pub(crate) async fn cancel(&self, operation: OperationId) {
        operation::cancel(&self.engines.engine, &admin(), operation).await.unwrap();
    }

    /// Closes the channel of the node at this index.
    pub(crate) async fn disconnect(&self, node: usize) {
        let node = self.nodes[node];
        let connection = self.engines.store().read().await.unwrap().session(node).await.unwrap().unwrap().connection;
        assert!(command::disconnected(&self.engines.engine, node, connection).await.unwrap());
    }

    /// Reports that the node at this index did not reconnect in time.
    pub(crate) async fn mark_unreachable(&self, node: usize) {
        command::mark_unreachable(&self.engines.engine, self.nodes[node]).await.unwrap();
    }

    /// Reconnects the node at this index after a reboot, with a new agent process.
    pub(crate) async fn reconnect(&self, node: usize) {
        self.reconnect_to(&self.engines.engine, node).await;
    }

    /// Reconnects the node like [`Self::reconnect`], to another replica.
    pub(crate) async fn reconnect_to(&self, engine: &Engine, node: usize) {
        let (instance, boot_id) = ("restarted".to_owned(), "second".to_owned());
        let hello = Hello { instance, boot_id, ..hello(TASKS.map(support).into()) };
        command::connected(engine, enrolled(self.nodes[node]), Uuid::from_u128(99), &hello).await.unwrap();
    }

    /// Waits until `is_so` holds for the step with this key.
    pub(crate) async fn until(&self, operation: OperationId, key: &str, is_so: impl Fn(&StepRecord) -> bool) {
        eventually(key, async || {
            let steps = self.engines.store().read().await.unwrap().steps_of(operation).await.unwrap();
            steps.iter().any(|step| step.spec.key.as_str() == key && is_so(step))
        })
        .await;
    }

    /// Counts the events of a kind on the project's stream.
    pub(crate) async fn count_events(&self, kind: EventKind) -> usize {
        let mut reader = self.engines.store().read().await.unwrap();
        let events = reader.events(StreamName::Project(self.project), 0, 1_000).await.unwrap();
        events.iter().filter(|event| event.kind == kind).count()
    }

    pub(crate) async fn end_of(&self, id: OperationId) -> Ended {
        eventually("the operation does not end", async || {
            self.engines.store().read().await.unwrap().operation(id).await.unwrap().state.is_final()
        })
        .await;
        let mut reader = self.engines.store().read().await.unwrap();
        let operation = reader.operation(id).await.unwrap();
        let workload = reader.workload(operation.workload).await.unwrap();
        let members = reader.members_of(workload.id).await.unwrap();
        let steps = reader.steps_of(id).await.unwrap();
        assert_explained(&workload, &members, &operation, &steps);
        let mut tasks = BTreeMap::new();
        for step in &steps {
            if let Some(task) = step.task {
                tasks.insert(step.spec.key.to_string(), reader.task(task).await.unwrap());
            }
        }
        let events = reader.events(StreamName::Project(self.project), 0, 1_000).await.unwrap();
        let steps = steps.into_iter().map(|step| (step.spec.key.to_string(), step)).collect();
        Ended { operation, workload, members, steps, tasks, events }
    }
}

/// Fails if something in these rows waits without an explanation. The check is later than every clock of a test: some engines are an hour
/// ahead.
pub(crate) fn assert_explained(
    workload: &WorkloadRecord,
    members: &[MemberRecord],
    operation: &OperationRecord,
    steps: &[StepRecord],
) {
    let never = Timestamp::from_millis(i64::MAX);
    assert_eq!(unexplained(workload, members, Some(operation), steps, never), Vec::<String>::new());
}

/// The first hello message of a node's agent, which has no problem.
pub(crate) fn hello(support: Vec<TaskSupport>) -> Hello {
    Hello {
        agent_version: "1".to_owned(),
        protocols: Vec::new(),
        connection: ConnectionKind::Control,
        instance: "one".to_owned(),
        machine_id: "machine".to_owned(),
        boot_id: "first".to_owned(),
        addresses: Vec::new(),
        support,
        fence: 0,
        key_set_version: 0,
        clock: None,
        problem: None,
        ledger: None,
    }
}

/// The node with epoch 0, before its first enrollment.
pub(crate) fn enrolled(node: NodeId) -> EnrolledNode {
    EnrolledNode { node, epoch: 0 }
}

fn support((task, schema): (TaskType, u32)) -> TaskSupport {
    TaskSupport { task: task.as_str().to_owned(), schemas: vec![schema] }
}

/// The rows and events after the end of an operation.
pub(crate) struct Ended {
    pub(crate) operation: OperationRecord,
    pub(crate) workload: WorkloadRecord,
    pub(crate) members: Vec<MemberRecord>,
    /// The operation's steps, by step key.
    pub(crate) steps: BTreeMap<String, StepRecord>,
    /// Tasks of the steps' last attempts, by step key.
    pub(crate) tasks: BTreeMap<String, TaskRecord>,
    /// All events of the project, in order.
    pub(crate) events: Vec<EventRecord>,
}

impl Ended {
    /// Counts the events of a kind about the subject with this id.
    pub(crate) fn count_events(&self, kind: EventKind, of: &str) -> usize {
        self.events.iter().filter(|event| event.kind == kind && event.subject_id == of).count()
    }
}
