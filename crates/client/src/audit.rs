//! Audit records.

use gpuaas_api_types::{AuditChain, AuditEntry, AuditHead, AuditVerification, List, VerifyAudit};

use crate::{error::ClientError, operations::query, transport::Client};

/// Most records on one page.
const PAGE_MAX: usize = 1_000;

/// Selects audit records; absent conditions match all that the caller may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Name of the actor.
    pub actor: Option<String>,
    /// Target, for example `node/gpu-07`.
    pub target: Option<String>,
    /// Action, for example `task.dispatch`.
    pub action: Option<String>,
    /// Result, for example `refused`.
    pub result: Option<String>,
    /// Name or id of the project.
    pub project: Option<String>,
    /// Name or id of a workload.
    pub workload: Option<String>,
    /// Correlation id.
    pub correlation: Option<String>,
    /// Records at or after this time, in RFC 3339.
    pub since: Option<String>,
    /// Records before this time, in RFC 3339.
    pub until: Option<String>,
    /// Only this many newest records.
    pub newest: Option<usize>,
}

impl Client {
    /// Returns the state of the audit's chain, without verifying it.
    pub async fn get_audit_chain(&self) -> Result<AuditChain, ClientError> {
        self.get("/api/v1/audit/chain").await
    }

    /// Verifies the audit from its first record, and that its chain contains `expected_head`.
    pub async fn verify_audit(&self, expected_head: Option<AuditHead>) -> Result<AuditVerification, ClientError> {
        self.post("/api/v1/audit/verify", &VerifyAudit { expected_head }).await
    }

    /// Lists audit records, oldest first.
    pub async fn list_audit(&self, of: &AuditQuery) -> Result<List<AuditEntry>, ClientError> {
        let AuditQuery { actor, target, action, result, project, workload, correlation, since, until, newest } =
            of.clone();
        let filters = [
            ("actor", actor),
            ("target", target),
            ("action", action),
            ("result", result),
            ("project", project),
            ("workload", workload),
            ("correlation", correlation),
            ("since", since),
            ("until", until),
        ];
        let (mut records, mut after): (Vec<AuditEntry>, _) = (Vec::new(), None);
        loop {
            let limit = newest.map(|newest| (newest - records.len()).min(PAGE_MAX).to_string());
            let page = [("order", newest.map(|_| "newest".to_owned())), ("limit", limit), ("after", after)];
            let query = query(&[&filters[..], &page].concat());
            let page: List<AuditEntry> = self.get(&format!("/api/v1/audit{query}")).await?;
            records.extend(page.items);
            after = page.next_cursor;
            if after.is_none() || newest.is_some_and(|newest| records.len() >= newest) {
                break;
            }
        }
        if newest.is_some() {
            records.reverse();
        }
        Ok(List::new(records, None))
    }
}
