//! A project with allocations on connected nodes, and workloads of the kit deployed on them.

use std::collections::BTreeMap;

use gpuaas_engine::{
    Seen,
    commands::{artifact, node as command, operation, project, workload},
};
use gpuaas_model::{
    AllocationId, AllocationState, Connectivity, EnrolledNode, EventKind, NodeId, NodeState, OperationId, ProjectId,
    StreamName, TaskType, WorkloadId,
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
    kit::{KIT, TASKS},
    world::{World, admin, eventually},
};

/// A world whose engine runs, with so many allocations.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) project: ProjectId,
    pub(crate) allocations: Vec<AllocationId>,
    pub(crate) nodes: Vec<NodeId>,
}

impl Site {
    pub(crate) async fn of(allocations: u8) -> Self {
        let world = World::new().await;
        let project = project::create(&world.engine, &admin(), "lab".parse().unwrap()).await.unwrap().id;
        let release = artifact::VerifiedRelease {
            app: KIT.to_owned(),
            version: "1".to_owned(),
            files: vec![("kit.tar".to_owned(), "0".repeat(64), 1)],
            source: "a test".to_owned(),
            stand_in: true,
        };
        artifact::record(&world.engine, &admin(), release).await.unwrap();
        let mut site = Self { world, project, allocations: Vec::new(), nodes: Vec::new() };
        for number in 1..=allocations {
            site.allocation(number).await;
        }
        let engine = site.world.engine.clone();
        engine.join().await.unwrap();
        tokio::spawn(async move { engine.run().await });
        site
    }

    async fn allocation(&mut self, number: u8) {
        let id = self.world.node(&format!("gpu-{number}")).await;
        let mut tx = self.world.store().begin().await.unwrap();
        let mut node = tx.node(id).await.unwrap();
        node.state = NodeState::Active;
        node.connectivity = Connectivity::Connected;
        node.support = TASKS.map(support).into();
        tx.update_node(&node).await.unwrap();
        let allocation = AllocationRecord {
            id: AllocationId::from_uuid(Uuid::from_u128(number.into())),
            project: self.project,
            node: id,
            state: AllocationState::Active,
            detail: None,
            created_at: self.world.engine.ports().clock.now(),
            generation: 0,
        };
        tx.insert_allocation(&allocation).await.unwrap();
        tx.commit().await.unwrap();
        self.allocations.push(allocation.id);
        self.nodes.push(id);
    }

    /// Deploys onto all allocations; what is planned is the test's.
    pub(crate) async fn deploy(
        &self,
        planned: impl Fn(&WorkloadView) -> Vec<StepSpec> + Send + 'static,
    ) -> (WorkloadId, OperationId) {
        self.world.kit.will_plan(planned);
        let ask = workload::Deploy {
            project: self.project,
            app: KIT.to_owned(),
            version: None,
            name: "train".parse().unwrap(),
            intent: json!(self.allocations),
            config: json!({}),
        };
        let accepted = workload::deploy(&self.world.engine, &admin(), ask).await.unwrap();
        (accepted.workload.id, accepted.operation.id)
    }

    /// Deploys, and waits for the end.
    pub(crate) async fn deployed(&self, planned: impl Fn(&WorkloadView) -> Vec<StepSpec> + Send + 'static) -> Ended {
        let (_, operation) = self.deploy(planned).await;
        self.end_of(operation).await
    }

    pub(crate) async fn decommissioned(
        &self,
        workload: WorkloadId,
        planned: impl Fn(&WorkloadView) -> Vec<StepSpec> + Send + 'static,
    ) -> Ended {
        self.world.kit.will_plan(planned);
        let asked = workload::decommission(&self.world.engine, &admin(), workload, &Seen::Whatever).await.unwrap();
        self.end_of(asked.operation.id).await
    }

    pub(crate) async fn resumed(&self, workload: WorkloadId) -> Ended {
        let asked = workload::resume(&self.world.engine, &admin(), workload, &Seen::Whatever).await.unwrap();
        self.end_of(asked.operation.id).await
    }

    pub(crate) async fn cancel(&self, operation: OperationId) {
        operation::cancel(&self.world.engine, &admin(), operation).await.unwrap();
    }

    /// The channel of the so-manieth node ends.
    pub(crate) async fn goes_away(&self, node: usize) {
        let node = self.nodes[node];
        let connection = self.world.store().read().await.unwrap().session(node).await.unwrap().unwrap().connection;
        assert!(command::disconnected(&self.world.engine, node, connection).await.unwrap());
    }

    /// It did not come back in time.
    pub(crate) async fn does_not_return(&self, node: usize) {
        command::did_not_return(&self.world.engine, self.nodes[node]).await.unwrap();
    }

    /// It comes back.
    pub(crate) async fn returns(&self, node: usize) {
        let hello = Hello {
            agent_version: "1".to_owned(),
            protocols: Vec::new(),
            connection: ConnectionKind::Control,
            instance: "anew".to_owned(),
            machine_id: "machine".to_owned(),
            boot_id: "second".to_owned(),
            addresses: Vec::new(),
            support: TASKS.map(support).into(),
            fence: 0,
            key_set_version: 0,
            clock: None,
            problem: None,
            ledger: None,
        };
        command::connected(&self.world.engine, enrolled(self.nodes[node]), Uuid::from_u128(99), &hello).await.unwrap();
    }

    /// Waits until a step is as the test wants it.
    pub(crate) async fn until(&self, operation: OperationId, key: &str, is_so: impl Fn(&StepRecord) -> bool) {
        eventually(key, async || {
            let steps = self.world.store().read().await.unwrap().steps_of(operation).await.unwrap();
            steps.iter().any(|step| step.spec.key.as_str() == key && is_so(step))
        })
        .await;
    }

    /// How often something was told on the project's stream.
    pub(crate) async fn told(&self, kind: EventKind) -> usize {
        let mut reader = self.world.store().read().await.unwrap();
        let events = reader.events(StreamName::Project(self.project), 0, 1_000).await.unwrap();
        events.iter().filter(|event| event.kind == kind).count()
    }

    pub(crate) async fn end_of(&self, id: OperationId) -> Ended {
        eventually("the operation does not end", async || {
            self.world.store().read().await.unwrap().operation(id).await.unwrap().state.is_final()
        })
        .await;
        let mut reader = self.world.store().read().await.unwrap();
        let operation = reader.operation(id).await.unwrap();
        let workload = reader.workload(operation.workload).await.unwrap();
        let members = reader.members_of(workload.id).await.unwrap();
        let steps = reader.steps_of(id).await.unwrap();
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

/// The node in the enrollment of its registration.
pub(crate) fn enrolled(node: NodeId) -> EnrolledNode {
    EnrolledNode { node, epoch: 0 }
}

fn support((task, schema): (TaskType, u32)) -> TaskSupport {
    TaskSupport { task: task.as_str().to_owned(), schemas: vec![schema] }
}

/// All that an operation left.
pub(crate) struct Ended {
    pub(crate) operation: OperationRecord,
    pub(crate) workload: WorkloadRecord,
    pub(crate) members: Vec<MemberRecord>,
    /// By key.
    pub(crate) steps: BTreeMap<String, StepRecord>,
    /// Those of the steps' last attempts, by key.
    pub(crate) tasks: BTreeMap<String, TaskRecord>,
    /// All of the project's, in order.
    pub(crate) events: Vec<EventRecord>,
}

impl Ended {
    /// How often something was told of somebody, whoever that is.
    pub(crate) fn told(&self, kind: EventKind, of: &str) -> usize {
        self.events.iter().filter(|event| event.kind == kind && event.subject_id == of).count()
    }
}
