//! Verifies single rows: the document, the columns next to it, its code, and its sealed values.

use std::{fmt::Display, sync::Arc};

use gpuaas_model::{ArchiveId, NodeId, ReplicaId, StreamName, Timestamp};
use serde::de::DeserializeOwned;

use super::{FindingKind, VerifiedRows};
use crate::{
    audit, audit_seal, authority,
    authority::StoredAuthority,
    browser_session,
    database::Cell,
    deleted::name_column,
    dump::RESTORED,
    enrollment,
    error::StoreError,
    event, history,
    query::{Row, get_count, get_int, get_parsed, get_text},
    record::{
        AccessGrantRecord, AllocationRecord, ArchiveRecord, ArchivedRange, ArtifactRecord, AuthorityRecord,
        BrowserSessionRecord, EnrollmentRecord, IdempotencyRecord, MemberRecord, NodeRecord, OperationRecord,
        ProjectRecord, ReplicaRecord, ServiceAccountRecord, SessionRecord, SignInLinkRecord, SigningKeyRecord,
        StepRecord, TaskRecord, TokenRecord, WorkloadRecord, WorkloadReportRecord,
    },
    record_verifier::RecordProof,
    sealing_record::SealingRecord,
    secret, service_account, sign_in_link, signing_key,
    signing_key::StoredSigningKey,
    token,
};

/// The column `deleted_at` of an object that exists.
const NOT_DELETED: Timestamp = Timestamp::from_millis(0);

/// Verifies rows one after the other.
pub(super) struct Rows<'a> {
    verified: &'a mut VerifiedRows,
    proof: Option<Arc<dyn RecordProof>>,
    sealed_settings: &'a [&'a str],
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        verified: &'a mut VerifiedRows,
        proof: Option<Arc<dyn RecordProof>>,
        sealed_settings: &'a [&'a str],
    ) -> Self {
        Self { verified, proof, sealed_settings }
    }

    /// Verifies a row. Always returns true, so that the next row follows.
    pub(super) fn take(&mut self, table: &str, row: &Row) -> bool {
        self.verified.rows += 1;
        if let Err(error) = self.read(table, row)
            && let Err(other) = self.verified.add_error(error)
        {
            self.verified.add_finding(FindingKind::Row, format!("table {table}, row {}", row.key()), other.to_string());
        }
        true
    }

    /// Records the failure of a whole statement.
    pub(super) fn add_error(&mut self, error: StoreError) -> Result<(), StoreError> {
        self.verified.add_error(error)
    }

    /// Reads a row as the record type of its table.
    pub(super) fn read(&mut self, table: &str, row: &Row) -> Result<(), StoreError> {
        match table {
            "settings" => self.setting(row),
            "secrets" => {
                let secret = secret::secret(row)?;
                self.check_sealed_value(row, "sealed", secret.id.to_string().as_bytes(), &secret.sealed);
                Ok(())
            }
            "tokens" => self.check_coded_record::<TokenRecord>(row, token::TABLE, token::matches_row),
            "service_accounts" => self.check_coded_record::<ServiceAccountRecord>(
                row,
                service_account::TABLE,
                service_account::matches_row,
            ),
            "enrollments" => {
                self.check_coded_record::<EnrollmentRecord>(row, enrollment::TABLE, enrollment::matches_row)
            }
            "browser_sessions" => self.check_coded_record::<BrowserSessionRecord>(
                row,
                browser_session::TABLE,
                browser_session::matches_row,
            ),
            "sign_in_links" => {
                self.check_coded_record::<SignInLinkRecord>(row, sign_in_link::TABLE, sign_in_link::matches_row)
            }
            "signing_keys" => self.signing_key(row),
            "authorities" => self.authority(row),
            "idempotency" => self.answer(row),
            "artifacts" => {
                let artifact = artifact(row)?;
                self.verified.artifacts.push(artifact);
                Ok(())
            }
            other => plain(other, row),
        }
    }

    fn setting(&mut self, row: &Row) -> Result<(), StoreError> {
        let (name, value) = (get_text(row, "name")?, row.blob("value")?);
        if self.sealed_settings.contains(&name.as_str()) {
            self.check_sealed_value(row, "value", name.as_bytes(), value);
        }
        if name == SealingRecord::SETTING {
            serde_json::from_slice::<SealingRecord>(value).map_err(|error| row.corrupt("value", error))?;
        }
        if name == RESTORED {
            let detail = "a restore was interrupted: the next start revokes the credentials of the backup";
            self.verified.add_finding(FindingKind::Interrupted, "table settings, row restore.unfinished", detail);
        }
        Ok(())
    }

    fn check_coded_record<T: DeserializeOwned>(
        &mut self,
        row: &Row,
        table: &'static str,
        matches_row: fn(&T, &Row) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let record: T = row.record("doc")?;
        if !matches_row(&record, row)? {
            self.add_forged(row, "the columns disagree with the document");
        }
        self.check_code(row, table, &[])
    }

    fn signing_key(&mut self, row: &Row) -> Result<(), StoreError> {
        let key: SigningKeyRecord = row.record("doc")?;
        check_column(row, "key_id", &key.key_id)?;
        check_column(row, "state", key.state)?;
        check_number_column(row, "version", key.version)?;
        let seed = row.blob("seed")?;
        self.check_sealed_value(row, "seed", &StoredSigningKey::seal_owner(&key.key_id), seed);
        self.check_code(row, signing_key::TABLE, seed)
    }

    fn authority(&mut self, row: &Row) -> Result<(), StoreError> {
        let authority: AuthorityRecord = row.record("doc")?;
        check_column(row, "id", &authority.id)?;
        check_column(row, "state", authority.state)?;
        check_number_column(row, "version", authority.version)?;
        let key = row.blob("sealed_key")?;
        self.check_sealed_value(row, "sealed_key", &StoredAuthority::seal_owner(&authority.id), key);
        self.check_code(row, authority::TABLE, key)
    }

    fn answer(&mut self, row: &Row) -> Result<(), StoreError> {
        let answer: IdempotencyRecord = row.record("doc")?;
        check_column(row, "token_id", answer.token)?;
        check_column(row, "key", &answer.key)?;
        check_time_column(row, "created_at", answer.created_at)?;
        // Answers of earlier versions are not sealed, and are never returned to a client.
        if let Ok(sealed) = hex::decode(&answer.body) {
            self.check_sealed_value(row, "doc", &answer.seal_owner(), &sealed);
        }
        Ok(())
    }

    fn check_code(&mut self, row: &Row, table: &str, more: &[u8]) -> Result<(), StoreError> {
        let (doc, code) = (row.text("doc")?, hex::decode(row.text("code")?).unwrap_or_default());
        let is_proven =
            self.proof.as_ref().is_none_or(|proof| proof.proven_by(table, &[doc.as_bytes(), more], &code).is_some());
        if !is_proven {
            self.add_forged(row, "no available sealing key verifies the row; it is ignored");
        }
        Ok(())
    }

    fn add_forged(&mut self, row: &Row, detail: &str) {
        self.verified.add_finding(FindingKind::Forged, row.place(), detail);
    }

    /// Opens a sealed value; an empty value counts as none.
    fn check_sealed_value(&mut self, row: &Row, column: &str, owner: &[u8], sealed: &[u8]) {
        let Some(proof) = self.proof.as_ref().filter(|_| !sealed.is_empty()) else { return };
        if proof.reseal(None, owner, sealed).is_some() {
            self.verified.sealed += 1;
        } else {
            let place = format!("{}, column {column}", row.place());
            self.verified.add_finding(FindingKind::Sealed, place, "no available sealing key opens the value");
        }
    }
}

fn artifact(row: &Row) -> Result<ArtifactRecord, StoreError> {
    let artifact: ArtifactRecord = row.record("doc")?;
    check_column(row, "id", artifact.id)?;
    check_column(row, "app", &artifact.app)?;
    check_column(row, "version", &artifact.version)?;
    check_column(row, "name", &artifact.name)?;
    check_column(row, "sha256", &artifact.sha256)?;
    Ok(artifact)
}

/// Verifies a row without a code and without a sealed value.
fn plain(table: &str, row: &Row) -> Result<(), StoreError> {
    match table {
        "projects" => {
            let of: ProjectRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "name", name_column(&of.name, of.id, of.deleted_at))?;
            check_time_column(row, "deleted_at", of.deleted_at.unwrap_or(NOT_DELETED))
        }
        "nodes" => {
            let of: NodeRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "name", name_column(&of.name, of.id, of.deleted_at))?;
            check_column(row, "state", of.state)?;
            check_column(row, "connectivity", of.connectivity)?;
            check_time_column(row, "deleted_at", of.deleted_at.unwrap_or(NOT_DELETED))?;
            check_number_column(row, "generation", of.generation)
        }
        "allocations" => {
            let of: AllocationRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "project_id", of.project)?;
            check_column(row, "node_id", of.node)?;
            check_column(row, "state", of.state)?;
            check_number_column(row, "generation", of.generation)
        }
        "workloads" => {
            let of: WorkloadRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "project_id", of.project)?;
            check_column(row, "name", &of.name)?;
            check_column(row, "app", &of.app)?;
            check_column(row, "lifecycle", of.lifecycle)?;
            check_column(row, "health", of.health)?;
            check_number_column(row, "revision", of.revision)
        }
        "members" => {
            let of: MemberRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "workload_id", of.workload)?;
            check_optional_column(row, "allocation_id", of.place.allocation())?;
            check_optional_column(row, "node_id", of.place.node())?;
            check_column(row, "state", of.state.name())
        }
        "workload_reports" => {
            let of: WorkloadReportRecord = row.record("doc")?;
            check_column(row, "workload_id", of.workload)?;
            check_column(row, "service_account_id", of.account)
        }
        "access_grants" => {
            let of: AccessGrantRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "workload_id", of.workload)
        }
        "operations" | "steps" | "tasks" => work(table, row),
        other => history(other, row),
    }
}

fn work(table: &str, row: &Row) -> Result<(), StoreError> {
    match table {
        "operations" => {
            let of: OperationRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "workload_id", of.workload)?;
            check_column(row, "project_id", of.project)?;
            check_column(row, "state", of.state)?;
            check_number_column(row, "is_open", u64::from(!of.state.is_final()))?;
            check_number_column(row, "ended_at", of.ended_at.map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or(0)))
        }
        "steps" => {
            let of: StepRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "operation_id", of.operation)?;
            check_column(row, "state", of.state)?;
            check_number_column(row, "attempts", u64::from(of.attempts))
        }
        _ => {
            let of: TaskRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "node_id", of.node)?;
            check_column(row, "state", of.state)?;
            check_column(row, "key_id", &of.key_id)?;
            check_number_column(row, "is_open", u64::from(!of.state.is_final()))
        }
    }
}

/// Verifies rows of history, leases, node keys and live processes.
fn history(table: &str, row: &Row) -> Result<(), StoreError> {
    match table {
        "events" => event::event(row).map(drop),
        "audit" => audit::audit(row).map(drop),
        "audit_seals" => audit_seal::seal(row).map(drop),
        "archives" => {
            let of: ArchiveRecord = row.record("doc")?;
            check_column(row, "id", of.id)?;
            check_column(row, "kind", of.kind)?;
            check_column(row, "sha256", &of.sha256)
        }
        "archive_ranges" => {
            if row.text("stream")? != ArchivedRange::AUDIT {
                get_parsed::<StreamName>(row, "stream")?;
            }
            get_count(row, "first_sequence")?;
            get_count(row, "last_sequence")?;
            get_parsed::<ArchiveId>(row, "archive_id").map(drop)
        }
        "streams" => {
            let stream = get_text(row, "stream")?;
            if stream != audit::SEQUENCE && !history::is_number(&stream) {
                get_parsed::<StreamName>(row, "stream")?;
            }
            get_count(row, "last_sequence").map(drop)
        }
        "leases" => {
            get_parsed::<ReplicaId>(row, "holder")?;
            get_count(row, "fence")?;
            get_int(row, "expires_at").map(drop)
        }
        "node_keys" => {
            get_parsed::<NodeId>(row, "node_id")?;
            get_count(row, "epoch")?;
            get_int(row, "created_at").map(drop)
        }
        "left_machines" => {
            get_parsed::<NodeId>(row, "node_id")?;
            get_int(row, "left_at").map(drop)
        }
        "replicas" => check_column(row, "id", row.record::<ReplicaRecord>("doc")?.id),
        "sessions" => check_column(row, "node_id", row.record::<SessionRecord>("doc")?.node),
        "schema_versions" => Ok(()),
        unknown => Err(row.corrupt("*", format_args!("table {unknown} is unknown"))),
    }
}

/// Checks that a text column agrees with the document.
fn check_column(row: &Row, column: &str, of_document: impl Display) -> Result<(), StoreError> {
    let of_document = of_document.to_string();
    match row.text(column)? {
        text if text == of_document => Ok(()),
        text => Err(row.corrupt(column, format_args!("the column has {text:?}, the document {of_document:?}"))),
    }
}

/// Like [`check_column`], for a column that is null if the document has no value.
fn check_optional_column(row: &Row, column: &str, of_document: Option<impl Display>) -> Result<(), StoreError> {
    match (row.cell(column)?, of_document) {
        (Cell::Null, None) => Ok(()),
        (_, Some(of_document)) => check_column(row, column, of_document),
        (_, None) => Err(row.corrupt(column, "the column has a value, the document none")),
    }
}

fn check_number_column(row: &Row, column: &str, of_document: u64) -> Result<(), StoreError> {
    match row.int(column)? {
        number if u64::try_from(number) == Ok(of_document) => Ok(()),
        number => Err(row.corrupt(column, format_args!("the column has {number}, the document {of_document}"))),
    }
}

fn check_time_column(row: &Row, column: &str, of_document: gpuaas_model::Timestamp) -> Result<(), StoreError> {
    match row.int(column)? {
        millis if millis == of_document.as_millis() => Ok(()),
        millis => {
            Err(row.corrupt(column, format_args!("the column has {millis}, the document {}", of_document.as_millis())))
        }
    }
}
