//! Records of workloads, their members, secrets and access grants.

use std::collections::BTreeMap;

use gpuaas_model::{
    AccessGrantId, Endpoint, Fault, Health, Lifecycle, MemberId, MemberPlace, MemberState, Name, OperationId, Progress,
    ProjectId, Recovery, SecretId, ServiceAccountId, Timestamp, WorkloadId,
};
use gpuaas_planner::{
    report::{CountedReport, Judgment, MemberReport, ReportedStatus},
    status::Status,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A deployed app, with its desired and its observed state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    /// Unique id of the workload.
    pub id: WorkloadId,
    /// The project that it belongs to.
    pub project: ProjectId,
    /// The workload's name.
    pub name: Name,
    /// The slug of the app.
    pub app: String,
    /// The version of the app.
    pub version: String,
    /// The requested placement, as it was accepted.
    pub intent: Value,
    /// The tenant's configuration.
    pub config: Value,
    /// Lifecycle state of the workload.
    pub lifecycle: Lifecycle,
    /// The app's own name of the current phase.
    pub phase: String,
    /// Step counts of the newest operation.
    pub progress: Progress,
    /// The health of the workload.
    pub health: Health,
    /// The available way to recover.
    pub recovery: Recovery,
    /// The fault of the workload as a whole; members have their own.
    pub fault: Option<Fault>,
    /// The endpoints for clients.
    pub endpoints: Vec<Endpoint>,
    /// Facts that steps reported, by name.
    pub facts: BTreeMap<String, Value>,
    /// What the workload's controller reported about the present generation; absent if nothing counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<ReportedStatus>,
    /// Raised by every accepted change of the desired state.
    pub generation: u64,
    /// The last generation that was applied completely.
    pub observed_generation: u64,
    /// Raised by every change of this row; used for compare-and-swap.
    pub revision: u64,
    /// When the workload was created.
    pub created_at: Timestamp,
    /// When the row last changed.
    pub updated_at: Timestamp,
}

impl WorkloadRecord {
    /// Returns the address of the first endpoint for this purpose.
    pub fn endpoint(&self, purpose: &str) -> Option<&str> {
        self.endpoints.iter().find(|endpoint| endpoint.purpose == purpose).map(|endpoint| endpoint.address.as_str())
    }

    /// Forgets what steps reported of a member's machine: its endpoints, and facts whose names end in `/MEMBER`.
    pub fn forget_machine_of(&mut self, member: &MemberRecord) {
        self.endpoints.retain(|endpoint| endpoint.member != Some(member.id));
        let suffix = format!("/{}", member.name());
        self.facts.retain(|name, _| !name.ends_with(&suffix));
    }

    /// Returns the status fields in the form that the planner uses.
    pub fn status(&self) -> Status {
        Status {
            lifecycle: self.lifecycle,
            phase: self.phase.clone(),
            health: self.health,
            recovery: self.recovery,
            progress: self.progress,
        }
    }

    /// Sets the status fields from the planner's result.
    pub fn set_status(&mut self, status: &Status) {
        self.lifecycle = status.lifecycle;
        self.phase.clone_from(&status.phase);
        self.health = status.health;
        self.recovery = status.recovery;
        self.progress = status.progress;
    }
}

/// A workload's part on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Unique id of the member.
    pub id: MemberId,
    /// The workload that it belongs to.
    pub workload: WorkloadId,
    /// The key of its component in the app.
    pub component_key: String,
    /// Number within the component, from 1.
    pub ordinal: u32,
    /// The machine that it runs on.
    #[serde(flatten)]
    pub place: MemberPlace,
    /// Lifecycle state of the member.
    pub state: MemberState,
    /// The health of the member.
    pub health: Health,
    /// The reason for the health, where the state does not give one.
    pub fault: Option<Fault>,
    /// What the workload's controller reported about it; absent if nothing counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<CountedReport>,
    /// Whether its installation was begun. From then on, files on the node are its own and not those of an earlier
    /// installation.
    #[serde(default)]
    pub touched: bool,
    /// The last operation that changed it.
    pub last_operation: Option<OperationId>,
    /// When the member was created.
    pub created_at: Timestamp,
    /// When the row last changed.
    pub updated_at: Timestamp,
}

impl MemberRecord {
    /// Returns the name from component and ordinal, for example `server-1`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.component_key, self.ordinal)
    }

    /// Returns the platform's own judgment, without what a controller reported.
    pub fn own_judgment(&self) -> Judgment {
        match &self.reported {
            Some(counted) => counted.own.clone(),
            None => Judgment { health: self.health, fault: self.fault.clone() },
        }
    }

    /// Sets the platform's own judgment. What a controller reported still counts beside it.
    pub fn set_own_judgment(&mut self, own: Judgment) {
        match self.reported.take() {
            Some(counted) => self.count(CountedReport { own, ..counted }),
            None => (self.health, self.fault) = (own.health, own.fault),
        }
    }

    /// Sets what the controller of the workload named `workload` reported; `None` leaves the platform's own judgment alone.
    pub fn set_report(&mut self, report: Option<MemberReport>, workload: &Name) {
        let own = self.own_judgment();
        self.reported = None;
        match report {
            Some(report) => {
                let reported = report.judgment(&self.name(), workload);
                self.count(CountedReport { report, reported, own });
            }
            None => (self.health, self.fault) = (own.health, own.fault),
        }
    }

    /// Forgets what a controller reported.
    pub fn forget_report(&mut self) {
        if let Some(counted) = self.reported.take() {
            (self.health, self.fault) = (counted.own.health, counted.own.fault);
        }
    }

    fn count(&mut self, counted: CountedReport) {
        let Judgment { health, fault } = Judgment::worse(&counted.own, &counted.reported).clone();
        (self.health, self.fault, self.reported) = (health, fault, Some(counted));
    }
}

/// The last report of a workload's controller. What it says is with the workload and its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadReportRecord {
    /// The workload.
    pub workload: WorkloadId,
    /// The controller's service account.
    pub account: ServiceAccountId,
    /// The account's name, as audit records show it.
    pub by: String,
    /// The generation of the workload that the report is about.
    pub generation: u64,
    /// The number of the report within its generation; absent if the controller does not count.
    pub sequence: Option<u64>,
    /// SHA-256 of the report, 64 hex digits.
    pub content: String,
    /// When this account first reported.
    pub since: Timestamp,
    /// When the last report came; equal reports within a short time leave it unchanged.
    pub reported_at: Timestamp,
}

/// A sealed secret. It is opened only outside of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretRecord {
    /// Unique id of the secret.
    pub id: SecretId,
    /// The workload that it belongs to.
    pub workload: Option<WorkloadId>,
    /// The app's name for the secret.
    pub name: String,
    /// The sealed bytes.
    pub sealed: Vec<u8>,
    /// SHA-256 of the plain bytes, 64 hex digits.
    pub sha256: String,
    /// When the secret was created.
    pub created_at: Timestamp,
}

/// A record of one delivered kubeconfig.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccessGrantRecord {
    /// Unique id of the grant.
    pub id: AccessGrantId,
    /// The workload that it gives access to.
    pub workload: WorkloadId,
    /// `direct` or `break-glass`.
    pub kind: String,
    /// The role that it grants.
    pub role: String,
    /// The actor that requested it.
    pub requested_by: String,
    /// The reason given for the request.
    pub reason: Option<String>,
    /// The Kubernetes ServiceAccount created for it.
    pub service_account: String,
    /// When the grant was created.
    pub created_at: Timestamp,
    /// When the grant expires.
    pub expires_at: Timestamp,
    /// When the grant was revoked.
    pub revoked_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn row_of_a_member_has_the_fields_of_its_place() {
        let mut row = json!({
            "id": "0198c0de-7a3b-7c11-9b54-0242ac120009", "workload": "0198c0de-7a3b-7c11-9b54-0242ac120008",
            "component_key": "server", "ordinal": 1, "allocation": "0198c0de-7a3b-7c11-9b54-0242ac120006",
            "node": "0198c0de-7a3b-7c11-9b54-0242ac120004", "state": { "name": "pending" }, "health": "healthy",
            "fault": null, "touched": true, "last_operation": null, "created_at": 1_790_000_000_000_i64,
            "updated_at": 1_790_000_000_000_i64,
        });
        let member = |row: &Value| serde_json::from_value::<MemberRecord>(row.clone());
        let on_node = member(&row).expect("it is readable");
        assert_eq!(serde_json::to_value(&on_node).expect("it is writable"), row);
        assert_eq!(on_node.place.node().map(|node| node.to_string()).as_deref(), row["node"].as_str());
        let fields = row.as_object_mut().expect("an object");
        fields.remove("allocation");
        member(&json!(fields)).expect_err("a node without an allocation is no place");
        let fields = row.as_object_mut().expect("an object");
        fields.remove("node");
        fields.extend([("machine".to_owned(), json!("edge-1")), ("address".to_owned(), json!("192.0.2.7"))]);
        let external = member(&row).expect("it is readable");
        assert_eq!((external.place.allocation(), external.place.node()), (None, None));
        assert_eq!(serde_json::to_value(&external).expect("it is writable"), row);
    }
}
