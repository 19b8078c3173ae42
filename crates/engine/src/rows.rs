//! Reads an operation with everything that its steps need, and converts it to the views of planner and apps.

use std::collections::{BTreeMap, btree_map::Entry};

use gpuaas_model::{Connectivity, Lifecycle, MemberPlace, NodeId, OperationId, StepState, Timestamp, WorkloadId};
use gpuaas_planner::{
    ArtifactView, MachineView, MemberView, NewestOperation, ReleaseView, SecretView, StepProgress, WorkloadView,
};
use gpuaas_store::{
    MemberRecord, NodeRecord, OperationRecord, Page, Reader, SecretRecord, StepRecord, Store, StoreError, Tx,
    WorkloadFilter, WorkloadRecord,
};

/// A workload with its members and their nodes, from one consistent read.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadRows {
    pub(crate) workload: WorkloadRecord,
    pub(crate) members: Vec<MemberRecord>,
    pub(crate) nodes: BTreeMap<NodeId, NodeRecord>,
    pub(crate) release: ReleaseView,
    pub(crate) secrets: BTreeMap<String, SecretView>,
}

/// An operation with its steps and its workload.
#[derive(Clone, Debug)]
pub(crate) struct OperationRows {
    pub(crate) operation: OperationRecord,
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) of: WorkloadRows,
}

impl WorkloadRows {
    /// Reads the workload with everything that belongs to it.
    pub(crate) async fn load(reader: &mut Reader, id: WorkloadId) -> Result<Self, StoreError> {
        let workload = reader.workload(id).await?;
        let members = reader.members_of(id).await?;
        let secrets = reader.secrets_of(id).await?;
        Self::draft(reader, workload, members, &secrets).await
    }

    /// Builds the rows of a workload that is not written yet.
    pub(crate) async fn draft(
        reader: &mut Reader,
        workload: WorkloadRecord,
        members: Vec<MemberRecord>,
        secrets: &[SecretRecord],
    ) -> Result<Self, StoreError> {
        let mut rows = Self {
            release: release(reader, &workload).await?,
            secrets: secrets.iter().map(|secret| (secret.name.clone(), secret_view(secret))).collect(),
            workload,
            members: Vec::new(),
            nodes: BTreeMap::new(),
        };
        rows.add_members(reader, members).await?;
        Ok(rows)
    }

    /// Adds members with their nodes, in memory only.
    pub(crate) async fn add_members(
        &mut self,
        reader: &mut Reader,
        members: Vec<MemberRecord>,
    ) -> Result<(), StoreError> {
        for member in members {
            if let Some(node) = member.place.node()
                && let Entry::Vacant(vacant) = self.nodes.entry(node)
            {
                vacant.insert(reader.node(node).await?);
            }
            self.members.push(member);
        }
        Ok(())
    }

    /// Writes the last `count` members, which are new.
    pub(crate) async fn write_added(&mut self, tx: &mut Tx, count: usize) -> Result<(), StoreError> {
        let added = &self.members[self.members.len().saturating_sub(count)..];
        if added.is_empty() { Ok(()) } else { tx.insert_members(added).await }
    }

    /// The view for planner and apps.
    pub(crate) fn view(&self) -> WorkloadView {
        let members = self.members.iter().map(|member| self.member_view(member)).collect();
        WorkloadView {
            id: self.workload.id,
            project: self.workload.project,
            name: self.workload.name.clone(),
            lifecycle: self.workload.lifecycle,
            config: self.workload.config.clone(),
            release: self.release.clone(),
            members,
            facts: self.workload.facts.clone(),
            secrets: self.secrets.clone(),
        }
    }

    fn member_view(&self, member: &MemberRecord) -> MemberView {
        let machine = match &member.place {
            MemberPlace::Allocation { node, .. } => {
                let node = self.nodes.get(node).expect("load() read the node of every member");
                let (name, address) = (node.name.clone(), node.address().to_owned());
                MachineView {
                    name,
                    address,
                    clock_skew_seconds: node.clock_skew_seconds,
                    unreachable_since: unreachable_since(node),
                }
            }
            MemberPlace::External { machine, address } => {
                let (name, address) = (machine.clone(), address.clone());
                MachineView { name, address, clock_skew_seconds: None, unreachable_since: None }
            }
        };
        let own = member.own_judgment();
        MemberView {
            id: member.id,
            name: member.name(),
            component_key: member.component_key.clone(),
            ordinal: member.ordinal,
            place: member.place.clone(),
            machine,
            state: member.state.clone(),
            health: member.health,
            fault: member.fault.clone(),
            own_health: own.health,
            own_fault: own.fault,
            touched: member.touched,
        }
    }
}

impl OperationRows {
    /// Reads the operation with its steps and its workload.
    pub(crate) async fn load(reader: &mut Reader, id: OperationId) -> Result<Self, StoreError> {
        let operation = reader.operation(id).await?;
        let steps = reader.steps_of(id).await?;
        let of = WorkloadRows::load(reader, operation.workload).await?;
        Ok(Self { operation, steps, of })
    }

    /// The steps in the scheduler's form.
    pub(crate) fn progress(&self) -> Vec<StepProgress> {
        self.steps.iter().map(progress).collect()
    }

    /// Steps that run now, or that ran when their process ended.
    pub(crate) fn running(&self) -> impl Iterator<Item = &StepRecord> {
        self.steps.iter().filter(|step| step.state == StepState::Running)
    }
}

/// The step in the scheduler's form.
pub(crate) fn progress(step: &StepRecord) -> StepProgress {
    StepProgress { spec: step.spec.clone(), state: step.state, attempts: step.attempts, not_before: step.not_before }
}

/// The newest operation in the form that decides about its control.
pub(crate) const fn newest_operation(record: &OperationRecord) -> NewestOperation {
    let OperationRecord { id, kind, state, cancel_requested, .. } = record;
    NewestOperation { id: *id, kind: *kind, state: *state, cancel_requested: *cancel_requested }
}

/// Returns every running workload. Each page is a read of its own.
pub(crate) async fn running_workloads(store: &Store) -> Result<Vec<WorkloadRecord>, StoreError> {
    let mut filter = WorkloadFilter { lifecycle: Some(Lifecycle::Running), ..WorkloadFilter::default() };
    let mut running = Vec::new();
    loop {
        let page = store.read().await?.workloads(&filter).await?;
        let is_last = page.len() < Page::LIMIT_MAX as usize;
        filter.page.after = page.last().map(|workload| workload.id.to_string());
        running.extend(page);
        if is_last {
            return Ok(running);
        }
    }
}

/// Returns the time since which a node is unreachable or has never connected; `None` for a connected or `stale` one.
pub(crate) fn unreachable_since(node: &NodeRecord) -> Option<Timestamp> {
    match node.connectivity {
        Connectivity::Never | Connectivity::Unreachable => Some(node.connectivity_since),
        Connectivity::Connected | Connectivity::Stale => None,
    }
}

async fn release(reader: &mut Reader, workload: &WorkloadRecord) -> Result<ReleaseView, StoreError> {
    let artifacts = reader.release(&workload.app, &workload.version).await?;
    let view = |artifact: gpuaas_store::ArtifactRecord| ArtifactView {
        name: artifact.name,
        sha256: artifact.sha256,
        size_bytes: artifact.size_bytes,
    };
    Ok(ReleaseView { version: workload.version.clone(), artifacts: artifacts.into_iter().map(view).collect() })
}

fn secret_view(secret: &SecretRecord) -> SecretView {
    SecretView { id: secret.id, sha256: secret.sha256.clone() }
}
