//! Imported artifacts.

use gpuaas_model::VerifiedBy;

use crate::{
    error::StoreError,
    page::Page,
    query::{Value, document, text},
    record::ArtifactRecord,
    select::Select,
    store::{Reader, Tx},
};

impl Tx {
    /// Inserts the files of a release. Importing the same bytes again changes only `verified_by`, and only if it was
    /// unverified. Fails with [`StoreError::NameTaken`] for other bytes under the same name.
    pub async fn insert_artifacts(&mut self, artifacts: &[ArtifactRecord]) -> Result<(), StoreError> {
        for artifact in artifacts {
            let known = self
                .release(&artifact.app, &artifact.version)
                .await?
                .into_iter()
                .find(|known| known.name == artifact.name);
            match known {
                Some(known) if known.sha256 == artifact.sha256 => {
                    self.verify_artifact(known, artifact).await?;
                    continue;
                }
                Some(known) => {
                    let name = format!("{} {} of {}", known.app, known.version, known.name);
                    return Err(StoreError::NameTaken { what: "artifact", name });
                }
                None => {}
            }
            let values = vec![
                text(artifact.id),
                text(&artifact.app),
                text(&artifact.version),
                text(&artifact.name),
                text(&artifact.sha256),
                Value::Int(artifact.imported_at.as_millis()),
                document(artifact)?,
            ];
            let sql = "insert into artifacts (id, app, version, name, sha256, imported_at, doc) \
                       values ($1, $2, $3, $4, $5, $6, $7)";
            self.execute(sql, values).await?;
        }
        Ok(())
    }

    /// Stores how an artifact was verified if it was unverified before.
    async fn verify_artifact(&mut self, known: ArtifactRecord, again: &ArtifactRecord) -> Result<(), StoreError> {
        let is_verified = |artifact: &ArtifactRecord| !matches!(artifact.verified_by, None | Some(VerifiedBy::Nothing));
        if is_verified(&known) || !is_verified(again) {
            return Ok(());
        }
        let verified = ArtifactRecord { verified_by: again.verified_by.clone(), ..known };
        let values = vec![document(&verified)?, text(verified.id)];
        self.execute("update artifacts set doc = $1 where id = $2", values).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns artifacts, oldest first, optionally only those of one app and version.
    pub async fn artifacts(
        &mut self,
        app: Option<&str>,
        version: Option<&str>,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        let all = Select::all("id, doc from artifacts").equal("app", app).equal("version", version);
        self.records(all.then("order by id")).await
    }

    /// Returns a page of all artifacts, oldest first.
    pub async fn artifact_page(&mut self, page: &Page) -> Result<Vec<ArtifactRecord>, StoreError> {
        let sql = "select id, doc from artifacts where id > $1 order by id limit $2";
        self.list(sql, vec![page.after(), page.limit()]).await
    }

    /// Returns the files of one release.
    pub async fn release(&mut self, app: &str, version: &str) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.artifacts(Some(app), Some(version)).await
    }
}
