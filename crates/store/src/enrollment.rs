//! Enrollment tokens: each works once, for one node, for a while.

use gpuaas_model::{NodeId, Timestamp};

use crate::{
    error::{EnrollmentRefusal, StoreError},
    query::{Value, get_int, get_parsed, get_text, text, text_or_empty},
    record::EnrollmentRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Adds a token; those issued to the node before and not used yet stop working.
    pub async fn insert_enrollment(&mut self, enrollment: &EnrollmentRecord) -> Result<(), StoreError> {
        let values = vec![text(enrollment.node), Value::Int(enrollment.created_at.as_millis())];
        let sql = "update enrollments set expires_at = $2 where node_id = $1 and used_at is null and expires_at > $2";
        self.execute(sql, values).await?;
        let values = vec![
            text(enrollment.id),
            text(enrollment.node),
            text(&enrollment.sha256),
            Value::Int(enrollment.expires_at.as_millis()),
            Value::Int(i64::from(enrollment.is_forced)),
            text_or_empty(enrollment.reimage_sha256.as_ref()),
        ];
        let sql = "insert into enrollments (id, node_id, sha256, expires_at, is_forced, reimage_sha256) \
                   values ($1, $2, $3, $4, $5, $6)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Uses the token up, if it is unused, unexpired and this node's, and returns what it allows; else says which of these it is not.
    pub async fn redeem_enrollment(
        &mut self,
        sha256: &str,
        node: NodeId,
        now: Timestamp,
    ) -> Result<EnrollmentTerms, StoreError> {
        let values = vec![text(sha256), text(node), Value::Int(now.as_millis())];
        let sql = "update enrollments set used_at = $3 \
                   where sha256 = $1 and node_id = $2 and used_at is null and expires_at > $3";
        if self.execute(sql, values).await? == 1 {
            return self.enrollment_terms(sha256).await;
        }
        self.look_at_enrollment(sha256, node, now).await?;
        // What is good and cannot be used up has changed since.
        Err(StoreError::EnrollmentRefused(EnrollmentRefusal::Used))
    }
}

/// What a good enrollment token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrollmentTerms {
    /// Whether an operator has forced the machine to be taken as it is.
    pub is_forced: bool,
    /// SHA-256 of the value that shows that the machine was reimaged; absent where none was made.
    pub reimage_sha256: Option<String>,
}

impl Reader {
    async fn enrollment_terms(&mut self, sha256: &str) -> Result<EnrollmentTerms, StoreError> {
        let sql = "select is_forced, reimage_sha256 from enrollments where sha256 = $1";
        let row = self.row(sql, vec![text(sha256)]).await?;
        let row = row.ok_or(StoreError::EnrollmentRefused(EnrollmentRefusal::Unknown))?;
        let reimage = get_text(&row, "reimage_sha256")?;
        Ok(EnrollmentTerms {
            is_forced: get_int(&row, "is_forced")? != 0,
            reimage_sha256: (!reimage.is_empty()).then_some(reimage),
        })
    }

    /// Says what [`Tx::redeem_enrollment`] would say of the token, and changes nothing: whoever guesses needs no writer.
    pub async fn look_at_enrollment(&mut self, sha256: &str, node: NodeId, now: Timestamp) -> Result<(), StoreError> {
        let sql = "select node_id, expires_at, coalesce(used_at, 0) as used_at from enrollments where sha256 = $1";
        let refusal = match self.row(sql, vec![text(sha256)]).await? {
            None => EnrollmentRefusal::Unknown,
            Some(row) if get_parsed::<NodeId>(&row, "node_id")? != node => EnrollmentRefusal::Foreign,
            Some(row) if get_int(&row, "used_at")? != 0 => EnrollmentRefusal::Used,
            Some(row) if get_int(&row, "expires_at")? <= now.as_millis() => EnrollmentRefusal::Expired,
            Some(_) => return Ok(()),
        };
        Err(StoreError::EnrollmentRefused(refusal))
    }
}
