//! Projects.

use std::collections::BTreeMap;

use gpuaas_model::{Name, ProjectId, Timestamp};

use crate::{
    deleted::{deleted_at_column, get_name, name_column},
    error::StoreError,
    page::Page,
    query::{Value, document, get_parsed, get_text, list_of, text},
    record::ProjectRecord,
    select::Select,
    store::{Reader, Tx},
};

impl Tx {
    /// Inserts a project. Fails with [`StoreError::NameTaken`] if the name is in use.
    pub async fn insert_project(&mut self, project: &ProjectRecord) -> Result<(), StoreError> {
        if self.project_by_name(project.name.as_str()).await?.is_some() {
            return Err(StoreError::NameTaken { what: "project", name: project.name.to_string() });
        }
        let values = vec![text(project.id), text(&project.name), document(project)?];
        self.execute("insert into projects (id, name, doc) values ($1, $2, $3)", values).await?;
        Ok(())
    }

    /// Deletes a project: its name can be used again, and its row stays for its history.
    pub async fn delete_project(
        &mut self,
        project: &ProjectRecord,
        at: Timestamp,
    ) -> Result<ProjectRecord, StoreError> {
        let deleted = ProjectRecord { deleted_at: Some(at), ..project.clone() };
        let values = vec![
            text(deleted.id),
            text(name_column(&deleted.name, deleted.id, deleted.deleted_at)),
            deleted_at_column(deleted.deleted_at),
            document(&deleted)?,
        ];
        self.execute("update projects set name = $2, deleted_at = $3, doc = $4 where id = $1", values).await?;
        Ok(deleted)
    }
}

impl Reader {
    /// Returns the project with this id, unless it is deleted.
    pub async fn project(&mut self, id: ProjectId) -> Result<ProjectRecord, StoreError> {
        let found = self.find("select id, doc from projects where id = $1 and deleted_at = 0", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("project", id))
    }

    /// Returns the names of the projects with these ids, deleted or not.
    pub async fn project_names(
        &mut self,
        ids: impl IntoIterator<Item = ProjectId>,
    ) -> Result<BTreeMap<ProjectId, Name>, StoreError> {
        let sql = "select id, name from projects where id in (select value from json_each($1))";
        let rows = self.rows_with_lists(sql, vec![list_of(ids)]).await?;
        rows.iter().map(|row| Ok((get_parsed(row, "id")?, get_name(row)?))).collect()
    }

    /// Returns the project with this name, if there is one.
    pub async fn project_by_name(&mut self, name: &str) -> Result<Option<ProjectRecord>, StoreError> {
        self.find("select id, doc from projects where name = $1", vec![text(name)]).await
    }

    /// Returns what a project contains at this time, at most `limit` objects: workloads that are not decommissioned, open
    /// allocations, service accounts, and valid tokens of people. Each is its kind and its name or id.
    pub async fn project_contents(
        &mut self,
        id: ProjectId,
        at: Timestamp,
        limit: u32,
    ) -> Result<Vec<String>, StoreError> {
        let sql = "select 'workload ' || name as object from workloads \
                   where project_id = $1 and lifecycle <> 'decommissioned' \
                   union all select 'allocation ' || id from allocations \
                   where project_id = $1 and state not in ('released', 'failed') \
                   union all select 'service account ' || name from service_accounts \
                   where project_id = $1 and deleted_at = 0 \
                   union all select 'token ' || id from tokens \
                   where project_id = $1 and service_account_id = '' and (ends_at = 0 or ends_at > $2) limit $3";
        let values = vec![text(id), Value::Int(at.as_millis()), Value::Int(i64::from(limit))];
        self.rows(sql, values).await?.iter().map(|row| get_text(row, "object")).collect()
    }

    /// Returns a page of projects, without deleted ones, oldest first; with an id, only that project.
    pub async fn projects(&mut self, id: Option<ProjectId>, page: &Page) -> Result<Vec<ProjectRecord>, StoreError> {
        self.records(Select::all("id, doc from projects").only("deleted_at = 0").equal("id", id).page(page)).await
    }
}
