//! Related rows of workloads for lists, read with one statement for a whole page.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_model::WorkloadId;

use crate::{
    error::StoreError,
    query::{get_parsed, list_of},
    record::{ArtifactRecord, MemberRecord, OperationRecord, StepRecord, WorkloadRecord},
    store::Reader,
};

/// The rows of a workload besides its own.
#[derive(Clone, Debug, Default)]
pub struct WorkloadParts {
    /// Its members in the order of their placement, without removed ones.
    pub members: Vec<MemberRecord>,
    /// Its newest operation.
    pub newest_operation: Option<OperationRecord>,
    /// The first step of its open operation that is running or in backoff.
    pub current_step: Option<StepRecord>,
    /// Whether any file of its release is a stand-in.
    pub stand_in: bool,
}

impl WorkloadParts {
    /// Returns its open operation: none begins while another one is open, so only the newest can be.
    pub fn open_operation(&self) -> Option<&OperationRecord> {
        self.newest_operation.as_ref().filter(|operation| !operation.state.is_final())
    }
}

impl Reader {
    /// Returns the parts of each of these workloads.
    pub async fn workload_parts(
        &mut self,
        workloads: &[WorkloadRecord],
    ) -> Result<BTreeMap<WorkloadId, WorkloadParts>, StoreError> {
        let sql = "select 'members' as kind, id, workload_id as owner, position as place, doc from members \
                   where workload_id in (select value from json_each($1)) and state <> 'removed' \
                   union all select 'operations', operations.id, operations.workload_id, 0, operations.doc from workloads \
                   join operations on operations.id = (select max(newest.id) from operations as newest \
                   where newest.workload_id = workloads.id) \
                   where workloads.id in (select value from json_each($1)) \
                   union all select 'steps', steps.id, operations.workload_id, steps.position, steps.doc from operations \
                   join steps on steps.operation_id = operations.id \
                   where operations.workload_id in (select value from json_each($1)) and operations.is_open = 1 \
                   and steps.state in ('running', 'backoff') \
                   union all select 'artifacts', id, app, 0, doc from artifacts \
                   where app in (select value from json_each($2)) and version in (select value from json_each($3)) \
                   order by place";
        let ids = list_of(workloads.iter().map(|workload| workload.id));
        let apps = list_of(workloads.iter().map(|workload| &workload.app));
        let versions = list_of(workloads.iter().map(|workload| &workload.version));
        let mut parts: BTreeMap<WorkloadId, WorkloadParts> = BTreeMap::new();
        let mut stand_ins = BTreeSet::new();
        for row in self.rows_with_lists(sql, vec![ids, apps, versions]).await? {
            let table = row.text("kind")?;
            if table == "artifacts" {
                let file: ArtifactRecord = row.record_of(table, "doc")?;
                if file.stand_in {
                    stand_ins.insert((file.app, file.version));
                }
                continue;
            }
            let of = parts.entry(get_parsed(&row, "owner")?).or_default();
            match table {
                "members" => of.members.push(row.record_of(table, "doc")?),
                "operations" => of.newest_operation = Some(row.record_of(table, "doc")?),
                _ if of.current_step.is_none() => of.current_step = Some(row.record_of(table, "doc")?),
                _ => {}
            }
        }
        for workload in workloads {
            let release = (workload.app.clone(), workload.version.clone());
            parts.entry(workload.id).or_default().stand_in = stand_ins.contains(&release);
        }
        Ok(parts)
    }
}
