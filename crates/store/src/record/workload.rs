//! Records of workloads, their members, secrets and access grants.

use std::collections::BTreeMap;

use gpuaas_model::{
    AccessGrantId, Endpoint, Fault, Health, Lifecycle, MemberId, MemberPlace, MemberState, Name, OperationId, Progress,
    ProjectId, Recovery, SecretId, ServiceAccountId, Timestamp, WorkloadId,
};
use gpuaas_planner::{
    Drift,
    drift::is_of_drift,
    judgments::{Judgments, Source},
    report::{CountedReport, Judgment, MemberReport, ReportedStatus},
    status::Status,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Successive revisions of a workload between which only a reconciliation by the platform changed it. An `If-Match` with any of them matches
/// the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuietRevisions {
    /// The first of them.
    pub since: u64,
    /// The last of them. If the row has another revision, something else changed it, and the range is void.
    pub until: u64,
}

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
    /// How its nodes and its cluster deviate, and what the platform does about it.
    #[serde(default, skip_serializing_if = "Drift::is_empty")]
    pub drift: Drift,
    /// The revisions before the present one from which only the platform's own reconciliation led here; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietRevisions>,
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
    /// Returns a workload that was requested at `at`, with an empty intent and configuration. `phase` is the first one of its app.
    pub fn requested(
        id: WorkloadId,
        project: ProjectId,
        name: Name,
        (app, version): (String, String),
        phase: String,
        at: Timestamp,
    ) -> Self {
        let Status { lifecycle, phase, health, recovery, progress } = Status::requested(phase);
        Self {
            id,
            project,
            name,
            app,
            version,
            intent: json!({}),
            config: json!({}),
            lifecycle,
            phase,
            progress,
            health,
            recovery,
            fault: None,
            endpoints: Vec::new(),
            facts: BTreeMap::new(),
            reported: None,
            drift: Drift::default(),
            quiet: None,
            generation: 1,
            observed_generation: 0,
            revision: 0,
            created_at: at,
            updated_at: at,
        }
    }

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

    /// Returns true if the row is at this revision, or only the platform's own reconciliation has changed it since.
    pub fn matches_revision(&self, revision: u64) -> bool {
        let is_quiet = |of: QuietRevisions| of.until == self.revision && (of.since..self.revision).contains(&revision);
        revision == self.revision || self.quiet.is_some_and(is_quiet)
    }

    /// Returns the quiet revisions after this row, which is not written yet, replaces `stored` in the course of a reconciliation by the
    /// platform; `None` if they differ in anything that a person decides on.
    pub fn quiet_after(&self, stored: &Self) -> Option<QuietRevisions> {
        if self.apart_from_reconciliation() != stored.apart_from_reconciliation() {
            return None;
        }
        let before = stored.quiet.filter(|quiet| quiet.until == stored.revision);
        let since = before.map_or(stored.revision, |quiet| quiet.since);
        Some(QuietRevisions { since, until: stored.revision + 1 })
    }

    /// Returns the row without what a reconciliation by the platform changes.
    fn apart_from_reconciliation(&self) -> Self {
        let health = if self.health == Health::Progressing { Health::Healthy } else { self.health };
        Self {
            phase: String::new(),
            progress: Progress::default(),
            health,
            recovery: Recovery::None,
            fault: self.fault.clone().filter(|fault| !is_of_drift(fault)),
            drift: Drift::default(),
            quiet: None,
            observed_generation: 0,
            revision: 0,
            updated_at: self.created_at,
            ..self.clone()
        }
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

/// Returns the name of a member from its component and its number, for example `server-1`.
pub(crate) fn member_name(component_key: &str, ordinal: u32) -> String {
    format!("{component_key}-{ordinal}")
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
    /// What each source of the platform's own judgment finds; absent if all find it well.
    #[serde(default, skip_serializing_if = "Judgments::is_empty")]
    pub judgments: Judgments,
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
    /// Returns a member whose node has not been touched.
    pub fn pending(
        id: MemberId,
        workload: WorkloadId,
        (component_key, ordinal): (String, u32),
        place: MemberPlace,
        at: Timestamp,
    ) -> Self {
        Self {
            id,
            workload,
            component_key,
            ordinal,
            place,
            state: MemberState::Pending,
            health: Health::Progressing,
            fault: None,
            reported: None,
            judgments: Judgments::default(),
            touched: false,
            last_operation: None,
            created_at: at,
            updated_at: at,
        }
    }

    /// Returns the name from component and ordinal, for example `server-1`.
    pub fn name(&self) -> String {
        member_name(&self.component_key, self.ordinal)
    }

    /// Returns the platform's own judgment, without what a controller reported.
    pub fn own_judgment(&self) -> Judgment {
        match &self.reported {
            Some(counted) => counted.own.clone(),
            None => Judgment { health: self.health, fault: self.fault.clone() },
        }
    }

    /// Returns what one source of the platform's own judgment finds.
    pub fn judgment_of(&self, source: Source) -> Judgment {
        self.judgments_by_source().of(source)
    }

    /// Replaces what one source of the platform's own judgment finds. What the others find, and what a controller reported, still counts
    /// beside it.
    pub fn set_judgment(&mut self, source: Source, judgment: Judgment) {
        let mut judgments = self.judgments_by_source();
        judgments.set(source, judgment);
        self.set_own_judgment(judgments.gravest());
        self.judgments = judgments;
    }

    /// Forgets what all sources find; health and fault stay as they are.
    pub fn forget_judgments(&mut self) {
        self.judgments = Judgments::default();
    }

    /// Rows of earlier versions have only the sum.
    fn judgments_by_source(&self) -> Judgments {
        if self.judgments.is_empty() { Judgments::of_sum(self.own_judgment()) } else { self.judgments.clone() }
    }

    fn set_own_judgment(&mut self, own: Judgment) {
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
    use gpuaas_model::{FaultClass, NextAction};
    use gpuaas_planner::report::ReportedMember;

    use super::*;

    fn unwell(code: &str) -> Judgment {
        let (class, next) = (FaultClass::Manual, NextAction::text("look"));
        let fault = Fault { code: code.to_owned(), class, summary: code.to_owned(), evidence: None, next };
        Judgment { health: Health::Degraded, fault: Some(fault) }
    }

    fn row() -> Value {
        json!({
            "id": "0198c0de-7a3b-7c11-9b54-0242ac120009", "workload": "0198c0de-7a3b-7c11-9b54-0242ac120008",
            "component_key": "server", "ordinal": 1, "allocation": "0198c0de-7a3b-7c11-9b54-0242ac120006",
            "node": "0198c0de-7a3b-7c11-9b54-0242ac120004", "state": { "name": "pending" }, "health": "healthy",
            "fault": null, "touched": true, "last_operation": null, "created_at": 1_790_000_000_000_i64,
            "updated_at": 1_790_000_000_000_i64,
        })
    }

    #[test]
    fn each_source_clears_only_what_it_found_itself() {
        const WELL: Judgment = Judgment { health: Health::Healthy, fault: None };
        let mut member: MemberRecord = serde_json::from_value(row()).expect("it is readable");
        let code = |member: &MemberRecord| member.fault.as_ref().map(|fault| fault.code.clone());
        member.set_judgment(Source::Unit, unwell("rke2_service_down"));
        member.set_judgment(Source::Cluster, unwell("kube_node_not_ready"));
        assert_eq!(code(&member).as_deref(), Some("rke2_service_down"));
        // A report of the controller that is not worse changes nothing, and its end neither.
        let report = ReportedMember {
            member: member.name(),
            health: Health::Healthy,
            code: None,
            message: None,
            evidence: None,
        };
        let workload = "train".parse().expect("a name");
        member.set_report(Some(MemberReport::of(&report, "x", None, Timestamp::from_millis(1))), &workload);
        member.set_judgment(Source::Unit, WELL);
        assert_eq!(code(&member).as_deref(), Some("kube_node_not_ready"));
        member.forget_report();
        let stored = serde_json::to_value(&member).expect("it is writable");
        let mut member: MemberRecord = serde_json::from_value(stored).expect("it is readable");
        member.set_judgment(Source::Node, unwell("node_unreachable"));
        member.set_judgment(Source::Cluster, WELL);
        assert_eq!(code(&member).as_deref(), Some("node_unreachable"));
        member.set_judgment(Source::Node, WELL);
        assert_eq!((member.health, member.fault, member.judgments.is_empty()), (Health::Healthy, None, true));
    }

    #[test]
    fn judgment_of_an_earlier_version_is_cleared_by_its_source() {
        let (health, fault) = (Health::Degraded, unwell("node_unreachable").fault);
        let mut member: MemberRecord = serde_json::from_value(row()).expect("it is readable");
        (member.health, member.fault) = (health, fault);
        member.set_judgment(Source::Cluster, unwell("kube_node_not_ready"));
        assert_eq!(member.judgment_of(Source::Node).health, Health::Degraded);
        member.set_judgment(Source::Node, Judgment { health: Health::Healthy, fault: None });
        assert_eq!(member.fault.map(|fault| fault.code).as_deref(), Some("kube_node_not_ready"));
    }

    #[test]
    fn row_of_a_member_has_the_fields_of_its_place() {
        let mut row = row();
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
