//! Commands for imported releases.

use gpuaas_model::{ArtifactId, AuditAction, Code, EventKind, Permission, VerifiedBy};
use gpuaas_store::ArtifactRecord;
use serde_json::json;

use super::audit;
use crate::{caller::Caller, catalog::AppEntry, engine::Engine, error::CommandError, record::platform_event};

/// Maximum length of a version, in bytes.
const VERSION_BYTES_MAX: usize = 64;

/// A release whose files are verified and stored in the artifact store.
#[derive(Clone, Debug)]
pub struct VerifiedRelease {
    /// The app's slug.
    pub app: String,
    /// The version of the release.
    pub version: String,
    /// Name, SHA-256 digest and length in bytes of every file.
    pub files: Vec<(String, String, u64)>,
    /// The source of the release, as named by the importer.
    pub source: String,
    /// `true` if the release declares itself a stand-in.
    pub stand_in: bool,
}

/// Returns the app of a release if the caller may import it under `version`. Called before any file is read.
pub fn importable<'a>(
    engine: &'a Engine,
    caller: &Caller,
    app: &str,
    version: Option<&str>,
) -> Result<&'a AppEntry, CommandError> {
    caller.require(Permission::ArtifactsWrite)?;
    let entry = engine.catalog().require(app)?;
    version.map_or(Ok(()), check_version)?;
    Ok(entry)
}

fn check_version(version: &str) -> Result<(), CommandError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-~".contains(&byte);
    if version.is_empty() || version.len() > VERSION_BYTES_MAX || !version.bytes().all(plain) {
        let detail = format!("a version has 1 to {VERSION_BYTES_MAX} letters, digits and . + - ~");
        return Err(CommandError::new(Code::FieldInvalid, detail).about("version"));
    }
    Ok(())
}

/// Offers a release that only its own checksum file verified.
pub async fn record(
    engine: &Engine,
    caller: &Caller,
    release: VerifiedRelease,
) -> Result<Vec<ArtifactRecord>, CommandError> {
    record_verified(engine, caller, release, VerifiedBy::Nothing).await
}

/// Offers a release and stores how it was verified. Repeating the call can only change how the release is verified.
pub async fn record_verified(
    engine: &Engine,
    caller: &Caller,
    release: VerifiedRelease,
    verified_by: VerifiedBy,
) -> Result<Vec<ArtifactRecord>, CommandError> {
    importable(engine, caller, &release.app, Some(&release.version))?;
    let ports = engine.ports();
    let records: Vec<ArtifactRecord> = release
        .files
        .into_iter()
        .map(|(name, sha256, size_bytes)| ArtifactRecord {
            id: ArtifactId::generate(&*ports.clock, &*ports.entropy),
            app: release.app.clone(),
            version: release.version.clone(),
            name,
            sha256,
            size_bytes,
            source: release.source.clone(),
            stand_in: release.stand_in,
            verified_by: Some(verified_by.clone()),
            imported_at: ports.clock.now(),
        })
        .collect();
    let mut tx = engine.store().begin().await?;
    tx.insert_artifacts(&records).await?;
    let data = json!({
        "app": release.app,
        "version": release.version,
        "stand_in": release.stand_in,
        "files": records.len(),
        "verified_by": verified_by.to_string(),
    });
    let (subject, correlation) = (format!("{}/{}", release.app, release.version), Some(caller.correlation));
    platform_event(&mut tx, EventKind::ArtifactImported, "release", subject.clone(), correlation, data.clone()).await?;
    // Every project may deploy the release. A tenant sees neither its source nor what verified it in the catalog.
    let offered = json!({ "app": release.app, "version": release.version, "stand_in": release.stand_in });
    tx.append_event_to_every_project(EventKind::ArtifactImported, ("release", &subject), correlation, &offered).await?;
    audit(&mut tx, caller, AuditAction::ArtifactImport, format!("release/{subject}"), None, data).await?;
    let stored = tx.release(&release.app, &release.version).await?;
    tx.commit().await?;
    Ok(stored)
}
