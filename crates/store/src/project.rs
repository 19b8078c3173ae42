//! Projects.

use gpuaas_model::ProjectId;

use crate::{
    error::StoreError,
    page::Page,
    query::{document, text},
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
}

impl Reader {
    /// Returns the project with this id.
    pub async fn project(&mut self, id: ProjectId) -> Result<ProjectRecord, StoreError> {
        let found = self.find("select id, doc from projects where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("project", id))
    }

    /// Returns the project with this name, if there is one.
    pub async fn project_by_name(&mut self, name: &str) -> Result<Option<ProjectRecord>, StoreError> {
        self.find("select id, doc from projects where name = $1", vec![text(name)]).await
    }

    /// Returns a page of projects, oldest first; with an id, only that project.
    pub async fn projects(&mut self, id: Option<ProjectId>, page: &Page) -> Result<Vec<ProjectRecord>, StoreError> {
        self.records(Select::all("id, doc from projects").equal("id", id).page(page)).await
    }
}
