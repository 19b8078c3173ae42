//! Enrollment tokens: each is valid once, for one node, until it expires. Each row carries a code that proves that the
//! platform wrote it ([`crate::record_verifier`]).

use std::collections::BTreeMap;

use gpuaas_model::{NodeId, Timestamp};

use crate::{
    error::{EnrollmentRefusal, StoreError},
    query::{Row, Value, get_text, list_of, text},
    record::EnrollmentRecord,
    store::{Reader, Tx},
};

pub(crate) const TABLE: &str = "enrollments";

impl Tx {
    /// Inserts a token and ends the node's earlier unused ones.
    pub async fn insert_enrollment(&mut self, enrollment: &EnrollmentRecord) -> Result<(), StoreError> {
        self.expire_enrollments(enrollment.node, enrollment.created_at).await?;
        let [doc, code] = self.doc_and_code(TABLE, enrollment, &[]).await?;
        let (id, node, sha256) = (text(enrollment.id), text(enrollment.node), text(&enrollment.sha256));
        let values = vec![id, node, sha256, ends_at(enrollment), doc, code];
        let sql = "insert into enrollments (id, node_id, sha256, ends_at, doc, code) values ($1, $2, $3, $4, $5, $6)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Ends the unused tokens of a node.
    pub async fn expire_enrollments(&mut self, node: NodeId, now: Timestamp) -> Result<(), StoreError> {
        for mut earlier in self.enrollments_of(node).await? {
            if earlier.used_at.is_none() && earlier.expires_at > now {
                earlier.expires_at = now;
                self.update_enrollment(&earlier).await?;
            }
        }
        Ok(())
    }

    /// Redeems the token and returns its terms. Fails with [`StoreError::EnrollmentRefused`] if it is unknown, used,
    /// expired or for another node.
    pub async fn redeem_enrollment(
        &mut self,
        sha256: &str,
        node: NodeId,
        now: Timestamp,
    ) -> Result<EnrollmentTerms, StoreError> {
        let mut enrollment = self.check_enrollment(sha256, node, now).await?;
        enrollment.used_at = Some(now);
        self.update_enrollment(&enrollment).await?;
        Ok(EnrollmentTerms { is_forced: enrollment.is_forced, reimage_sha256: enrollment.reimage_sha256 })
    }

    /// Deletes every token, used or not. Returns how many there were.
    pub async fn remove_enrollments(&mut self) -> Result<u64, StoreError> {
        self.execute("delete from enrollments", Vec::new()).await
    }

    async fn update_enrollment(&mut self, enrollment: &EnrollmentRecord) -> Result<(), StoreError> {
        let [doc, code] = self.doc_and_code(TABLE, enrollment, &[]).await?;
        let sql = "update enrollments set ends_at = $2, doc = $3, code = $4 where id = $1";
        self.execute(sql, vec![text(enrollment.id), ends_at(enrollment), doc, code]).await?;
        Ok(())
    }
}

/// Returns the value of the column by which old tokens are deleted.
fn ends_at(enrollment: &EnrollmentRecord) -> Value {
    Value::Int(enrollment.used_at.unwrap_or(enrollment.expires_at).as_millis())
}

/// The terms of a redeemed enrollment token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrollmentTerms {
    /// Whether an operator forced the enrollment of the machine in its current state.
    pub is_forced: bool,
    /// SHA-256 of the value that proves that the machine was reimaged, 64 hex digits; absent if no such value was
    /// issued.
    pub reimage_sha256: Option<String>,
}

impl Reader {
    /// Returns the token if it is valid for this node now; fails like [`Tx::redeem_enrollment`] otherwise. Changes
    /// nothing, so guesses never take the write lock.
    pub async fn check_enrollment(
        &mut self,
        sha256: &str,
        node: NodeId,
        now: Timestamp,
    ) -> Result<EnrollmentRecord, StoreError> {
        let sql = "select id, node_id, sha256, doc, code from enrollments where sha256 = $1";
        let row = self.row(sql, vec![text(sha256)]).await?;
        let refusal = match self.verified_enrollments(row)?.pop() {
            None => EnrollmentRefusal::Unknown,
            Some(other) if other.node != node => EnrollmentRefusal::OtherNode,
            Some(used) if used.used_at.is_some() => EnrollmentRefusal::Used,
            Some(late) if late.expires_at <= now => EnrollmentRefusal::Expired,
            Some(good) => return Ok(good),
        };
        Err(StoreError::EnrollmentRefused(refusal))
    }

    /// Returns tokens of all nodes that can still be redeemed at `now` and pin another authority than `active`.
    pub async fn open_enrollments(
        &mut self,
        active: &str,
        now: Timestamp,
    ) -> Result<Vec<EnrollmentRecord>, StoreError> {
        let rows = self.rows("select id, node_id, sha256, doc, code from enrollments", Vec::new()).await?;
        let mut open = self.verified_enrollments(rows)?;
        let pins_another = |token: &EnrollmentRecord| token.pinned.as_deref() != Some(active);
        open.retain(|token| token.used_at.is_none() && token.expires_at > now && pins_another(token));
        Ok(open)
    }

    /// Returns the token of each of these nodes that can be redeemed at `now`.
    pub async fn redeemable_enrollments(
        &mut self,
        nodes: impl IntoIterator<Item = NodeId>,
        now: Timestamp,
    ) -> Result<BTreeMap<NodeId, EnrollmentRecord>, StoreError> {
        let sql = "select id, node_id, sha256, doc, code from enrollments \
                   where node_id in (select value from json_each($1))";
        let rows = self.rows_with_lists(sql, vec![list_of(nodes)]).await?;
        let mut open = self.verified_enrollments(rows)?;
        open.retain(|token| token.used_at.is_none() && token.expires_at > now);
        Ok(open.into_iter().map(|token| (token.node, token)).collect())
    }

    async fn enrollments_of(&mut self, node: NodeId) -> Result<Vec<EnrollmentRecord>, StoreError> {
        let sql = "select id, node_id, sha256, doc, code from enrollments where node_id = $1";
        let rows = self.rows(sql, vec![text(node)]).await?;
        self.verified_enrollments(rows)
    }

    fn verified_enrollments(&self, rows: impl IntoIterator<Item = Row>) -> Result<Vec<EnrollmentRecord>, StoreError> {
        self.verified_records(TABLE, rows, matches_row)
    }
}

/// Returns whether the columns used in queries agree with the record.
pub(crate) fn matches_row(enrollment: &EnrollmentRecord, row: &Row) -> Result<bool, StoreError> {
    Ok(get_text(row, "id")? == enrollment.id.to_string()
        && get_text(row, "node_id")? == enrollment.node.to_string()
        && get_text(row, "sha256")? == enrollment.sha256)
}
