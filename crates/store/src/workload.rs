//! Workloads.

use std::collections::BTreeMap;

use gpuaas_model::{Health, Lifecycle, Name, ProjectId, WorkloadId};

use crate::{
    error::StoreError,
    page::Page,
    query::{Value, document, get_count, get_parsed, int, list_of, text},
    record::WorkloadRecord,
    select::Select,
    store::{Reader, Tx},
};

/// Selects workloads; absent conditions match all.
#[derive(Clone, Debug, Default)]
pub struct WorkloadFilter {
    /// Only workloads of this project.
    pub project: Option<ProjectId>,
    /// Only workloads in this lifecycle state.
    pub lifecycle: Option<Lifecycle>,
    /// Only workloads with this health.
    pub health: Option<Health>,
    /// Only workloads of this app.
    pub app: Option<String>,
    /// The page to return.
    pub page: Page,
}

/// Number of workloads by lifecycle and health.
pub type WorkloadCounts = BTreeMap<(Lifecycle, Health), u64>;

impl Tx {
    /// Inserts a workload. Fails with [`StoreError::NameTaken`] if the project has a workload with this name that is
    /// not decommissioned.
    pub async fn insert_workload(&mut self, workload: &WorkloadRecord) -> Result<(), StoreError> {
        let known = self.workload_by_name(workload.project, workload.name.as_str()).await?;
        if known.is_some_and(|known| known.lifecycle != Lifecycle::Decommissioned) {
            return Err(StoreError::NameTaken { what: "workload", name: workload.name.to_string() });
        }
        let values = vec![
            text(workload.id),
            text(workload.project),
            text(&workload.name),
            text(&workload.app),
            text(workload.lifecycle),
            text(workload.health),
            int(workload.revision),
            document(workload)?,
        ];
        let sql = "insert into workloads (id, project_id, name, app, lifecycle, health, revision, doc) \
                   values ($1, $2, $3, $4, $5, $6, $7, $8)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Updates a workload that is still at its given revision, and returns it with the next one.
    pub async fn update_workload(&mut self, workload: &WorkloadRecord) -> Result<WorkloadRecord, StoreError> {
        let next = WorkloadRecord { revision: workload.revision + 1, updated_at: self.clock.now(), ..workload.clone() };
        let values = vec![
            text(workload.id),
            int(workload.revision),
            text(next.lifecycle),
            text(next.health),
            int(next.revision),
            document(&next)?,
        ];
        let sql =
            "update workloads set lifecycle = $3, health = $4, revision = $5, doc = $6 where id = $1 and revision = $2";
        match self.execute(sql, values).await? {
            1 => Ok(next),
            _ => Err(StoreError::Stale { what: "workload" }),
        }
    }
}

impl Reader {
    /// Returns the workload with this id.
    pub async fn workload(&mut self, id: WorkloadId) -> Result<WorkloadRecord, StoreError> {
        let found = self.find("select id, doc from workloads where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("workload", id))
    }

    /// Returns the names of the workloads with these ids.
    pub async fn workload_names(
        &mut self,
        ids: impl IntoIterator<Item = WorkloadId>,
    ) -> Result<BTreeMap<WorkloadId, Name>, StoreError> {
        let sql = "select id, name from workloads where id in (select value from json_each($1))";
        let rows = self.rows_with_lists(sql, vec![list_of(ids)]).await?;
        rows.iter().map(|row| Ok((get_parsed(row, "id")?, get_parsed(row, "name")?))).collect()
    }

    /// Returns the newest workload with this name in a project. Names of decommissioned workloads can be reused.
    pub async fn workload_by_name(
        &mut self,
        project: ProjectId,
        name: &str,
    ) -> Result<Option<WorkloadRecord>, StoreError> {
        let sql = "select id, doc from workloads where project_id = $1 and name = $2 order by id desc limit 1";
        self.find(sql, vec![text(project), text(name)]).await
    }

    /// Returns the projects that have or had a workload with this name, by name. Deleted projects are left out.
    pub async fn projects_with_workload(&mut self, name: &str, at_most: usize) -> Result<Vec<Name>, StoreError> {
        let sql = "select distinct projects.name as name from workloads join projects on projects.id = project_id \
                   where workloads.name = $1 and projects.deleted_at = 0 order by name limit $2";
        self.rows(sql, vec![text(name), Value::Int(i64::try_from(at_most).unwrap_or(i64::MAX))])
            .await?
            .iter()
            .map(|row| get_parsed(row, "name"))
            .collect()
    }

    /// Returns a page of workloads, oldest first.
    pub async fn workloads(&mut self, filter: &WorkloadFilter) -> Result<Vec<WorkloadRecord>, StoreError> {
        self.records(list(filter)).await
    }

    /// Returns the counts of a project's workloads, or of all.
    pub async fn workload_counts(&mut self, project: Option<ProjectId>) -> Result<WorkloadCounts, StoreError> {
        let rows = self.selected(counted(project)).await?;
        let count = |row| Ok(((get_parsed(row, "lifecycle")?, get_parsed(row, "health")?), get_count(row, "n")?));
        rows.iter().map(count).collect()
    }
}

/// Returns the statement for a page of workloads.
pub(crate) fn list(filter: &WorkloadFilter) -> Select {
    Select::all("id, doc from workloads")
        .equal("project_id", filter.project)
        .equal("lifecycle", filter.lifecycle)
        .equal("health", filter.health)
        .equal("app", filter.app.as_ref())
        .page(&filter.page)
}

/// Returns the statement that counts workloads by lifecycle and health.
pub(crate) fn counted(project: Option<ProjectId>) -> Select {
    Select::all("lifecycle, health, count(*) as n from workloads")
        .equal("project_id", project)
        .then("group by lifecycle, health")
}
