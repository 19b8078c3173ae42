//! An app for tests: a test sets its plans and the results of its steps, and chooses the answers of cluster calls.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use gpuaas_app_rke2_tasks::Rke2Stop;
use gpuaas_engine::effects::{AccessRequest, AppEffects, CallContext, Delivered, Observations};
use gpuaas_model::{
    AllocationId, Code, Fault, FaultClass, Health, MemberId, MemberState, NextAction, OperationKind, Reason, TaskType,
};
use gpuaas_planner::{
    App, ClusterCall, ClusterJudgment, Difference, FailureScope, MemberView, OperationRequest, OperationSpec, Plan,
    PlanRefusal, RecordKind, RenderError, Retry, SecretSpec, StepAction, StepKey, StepOutput, StepSpec, StepText,
    Subjects, WorkloadView,
    manifest::Manifest,
    placement::{Candidate, Placed, unusable},
};
use gpuaas_wire::task::{TaskDefinition, TaskFailure, UnitReport};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::followed::{self, FollowedCluster};

/// The app's slug.
pub(crate) const KIT: &str = "kit";
/// The phase of every step.
const PHASE: &str = "working";
/// A phase that no step has.
pub(crate) const SERVING: &str = "serving";
/// Message that makes a failure retryable.
pub(crate) const AGAIN: &str = "again";
/// Message of a failure whose fault advises to repair `unit-1` of `train`.
pub(crate) const BROKEN: &str = "only a repair helps";
/// Name of a cluster call that the app does not have.
pub(crate) const UNKNOWN: &str = "unknown";
/// The app's task types, each with its schema version.
pub(crate) const TASKS: [(TaskType, u32); 2] = [(TaskType::Noop, 3), (TaskType::Rke2Stop, 7)];
/// The one of them that is not general.
const OWN_TASKS: &[TaskDefinition] = &[TaskDefinition::of::<Rke2Stop>()];

type Planned = Box<dyn Fn(&WorkloadView) -> Vec<StepSpec> + Send>;

pub(crate) struct Kit {
    manifest: Manifest,
    planned: Mutex<Planned>,
    /// Every request that was planned, in order.
    pub(crate) requested: Mutex<Vec<OperationRequest>>,
    /// Results of each step's successful attempts, by step key, in order. Further successes and other steps change nothing.
    outputs: Mutex<BTreeMap<String, VecDeque<StepResult>>>,
    /// Every cluster call that was made, in order.
    pub(crate) calls: Mutex<Vec<ClusterCall>>,
    /// Makes deliveries of access and observations wait forever, like a cluster that does not answer.
    pub(crate) is_silent: AtomicBool,
    /// What the cluster shows: an array of deviations.
    pub(crate) observed: Mutex<Result<Value, TaskFailure>>,
    /// Number of observations.
    pub(crate) observations: AtomicU32,
    /// The cluster as its followers see it.
    pub(crate) cluster: FollowedCluster,
    /// How the node of every member deviates, until a task with the key `configure` succeeds.
    pub(crate) drifted: Mutex<Vec<Difference>>,
    /// Makes such a task correct nothing.
    pub(crate) corrects_nothing: AtomicBool,
    /// Revoked ServiceAccounts, in order.
    pub(crate) revoked: Mutex<Vec<String>>,
}

/// Changes that follow from a successful task, or the fault that makes it a failure.
pub(crate) type StepResult = Result<Vec<StepOutput>, Box<Fault>>;

impl Kit {
    pub(crate) fn new() -> Self {
        let manifest = Manifest {
            slug: KIT.to_owned(),
            name: "Kit".to_owned(),
            summary: String::new(),
            placement_schema: json!({}),
            added_members_schema: json!({}),
            config_schema: json!({}),
            promises: Vec::new(),
            not_promised: Vec::new(),
            phases: vec![PHASE.to_owned(), SERVING.to_owned()],
            tasks: TASKS.to_vec(),
            operations: vec![
                OperationSpec::without_parameters(OperationKind::Deploy),
                OperationSpec::without_parameters(OperationKind::AddMember),
                OperationSpec::without_parameters(OperationKind::Repair),
                OperationSpec::without_parameters(OperationKind::Reconcile),
                OperationSpec {
                    kind: OperationKind::RemoveMember,
                    parameters_schema: json!({
                        "type": "object", "additionalProperties": false, "required": ["member"],
                        "properties": {
                            "member": { "type": "string" },
                            "give_up": { "type": "boolean" },
                            "reason": { "type": "string" },
                        },
                    }),
                    is_available: true,
                },
                OperationSpec {
                    kind: OperationKind::Decommission,
                    parameters_schema: json!({
                        "type": "object", "additionalProperties": false,
                        "properties": {
                            "give_up": { "type": "array", "items": { "type": "string" } },
                            "reason": { "type": "string" },
                        },
                    }),
                    is_available: true,
                },
                OperationSpec {
                    kind: OperationKind::Upgrade,
                    parameters_schema: json!({
                        "type": "object", "additionalProperties": false, "required": ["version"],
                        "properties": { "version": { "type": "string" } },
                    }),
                    is_available: true,
                },
            ],
            release_files: vec!["kit.tar".to_owned()],
            release_sums: "sums".to_owned(),
        };
        Self {
            manifest,
            planned: Mutex::new(Box::new(|_| Vec::new())),
            requested: Mutex::default(),
            outputs: Mutex::default(),
            calls: Mutex::default(),
            is_silent: AtomicBool::new(false),
            observed: Mutex::new(Ok(json!([]))),
            observations: AtomicU32::new(0),
            cluster: FollowedCluster::default(),
            drifted: Mutex::default(),
            corrects_nothing: AtomicBool::new(false),
            revoked: Mutex::default(),
        }
    }

    /// Sets the function that plans the steps of later operations.
    pub(crate) fn set_plan(&self, planned: impl Fn(&WorkloadView) -> Vec<StepSpec> + Send + 'static) {
        *self.planned.lock().unwrap() = Box::new(planned);
    }

    pub(crate) fn set_outputs(&self, step: &str, lessons: impl IntoIterator<Item = StepResult>) {
        self.outputs.lock().unwrap().entry(step.to_owned()).or_default().extend(lessons);
    }
}

/// A milestone of the whole workload.
pub(crate) fn milestone(key: &str) -> StepSpec {
    let action = StepAction::Record { record: RecordKind::Milestone };
    StepSpec { retry: Retry::NEVER, ..StepSpec::new(StepKey::named(key), PHASE, action, Duration::from_secs(600)) }
}

/// A no-op task on the node of the member at index `member`.
pub(crate) fn task(key: &str, of: &WorkloadView, member: usize) -> StepSpec {
    let member = &of.members[member];
    let node = member.place.node().unwrap();
    let action = StepAction::NodeTask { node, task: TaskType::Noop };
    StepSpec { member: Some(member.id), action, scope: FailureScope::Member, ..milestone(key) }
}

/// A cluster call. `answers` succeeds, `hangs` never ends, any other call fails as `unavailable`.
pub(crate) fn call(key: &str, call: &str) -> StepSpec {
    StepSpec { action: StepAction::ClusterCall { call: call.to_owned() }, ..milestone(key) }
}

/// A retry policy without delays between attempts.
pub(crate) fn times(attempts_max: u32) -> Retry {
    Retry { attempts_max, base_ms: 0, cap_ms: 0 }
}

pub(crate) fn needs(step: StepSpec, keys: &[&str]) -> StepSpec {
    StepSpec { needs: keys.iter().map(|key| StepKey::named(*key)).collect(), ..step }
}

pub(crate) fn fault(code: Code, summary: &str) -> Fault {
    let (class, next) = match summary {
        AGAIN => (FaultClass::Retryable, NextAction::text("look")),
        BROKEN => (FaultClass::Repairable, NextAction::repair_member("it is broken", "train", "unit-1")),
        _ => (FaultClass::Manual, NextAction::text("look")),
    };
    Fault { code: code.to_string(), class, summary: summary.to_owned(), evidence: None, next }
}

impl App for Kit {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn tasks(&self) -> &'static [TaskDefinition] {
        OWN_TASKS
    }

    fn place(&self, _: &Value, candidates: &[Candidate], of: &[MemberView]) -> Result<Vec<Placed>, Vec<Reason>> {
        let first = of.iter().map(|member| member.ordinal).max().unwrap_or(0) + 1;
        let placed = candidates.iter().zip(first..).map(|(candidate, ordinal)| Placed {
            component_key: "unit".to_owned(),
            ordinal,
            allocation: candidate.allocation,
            node: candidate.node.id,
        });
        let placed = placed.collect();
        let reasons: Vec<Reason> =
            candidates.iter().flat_map(|candidate| unusable("intent", candidate, &self.manifest)).collect();
        if reasons.is_empty() { Ok(placed) } else { Err(reasons) }
    }

    fn named_allocations(&self, intent: &Value) -> Vec<AllocationId> {
        serde_json::from_value(intent.clone()).unwrap()
    }

    fn check_config(&self, _: &Value) -> Vec<Reason> {
        Vec::new()
    }

    fn initial_secrets(&self) -> Vec<SecretSpec> {
        let secret = |name: &str, random_bytes| SecretSpec { name: name.to_owned(), random_bytes };
        vec![secret("join", 16), secret("deposited", 0)]
    }

    /// The named member, otherwise all.
    fn subjects(&self, request: &OperationRequest, of: &WorkloadView) -> Result<Subjects, PlanRefusal> {
        let named = request.parameters.get("member").and_then(Value::as_str);
        let is_wanted = |member: &&MemberView| named.is_none_or(|name| member.name == name);
        let present = of.members.iter().filter(|member| member.state != MemberState::Removed).filter(is_wanted);
        Ok(Subjects { existing: present.map(|member| member.id).collect(), added: None })
    }

    fn plan(&self, request: &OperationRequest, of: &WorkloadView, targets: &[MemberId]) -> Result<Plan, PlanRefusal> {
        self.requested.lock().unwrap().push(request.clone());
        let mut of = of.clone();
        of.members.retain(|member| targets.contains(&member.id));
        Ok(Plan { kind: request.kind, steps: (self.planned.lock().unwrap())(&of) })
    }

    fn render(&self, step: &StepSpec, _: &OperationRequest, of: &WorkloadView) -> Result<Value, RenderError> {
        match &step.action {
            StepAction::ClusterCall { call } if call == UNKNOWN => {
                Err(RenderError::UnknownCall { step: step.key.clone(), call: call.clone() })
            }
            StepAction::ClusterCall { .. } => Ok(json!({ "facts": of.facts })),
            StepAction::NodeTask { .. } | StepAction::Record { .. } => Ok(json!({})),
        }
    }

    fn step_outputs(&self, step: &StepSpec, _: &Value, _: &WorkloadView) -> StepResult {
        if step.key.as_str() == "configure" && !self.corrects_nothing.load(Ordering::SeqCst) {
            self.drifted.lock().unwrap().clear();
        }
        let mut lessons = self.outputs.lock().unwrap();
        lessons.get_mut(step.key.as_str()).and_then(VecDeque::pop_front).unwrap_or(Ok(Vec::new()))
    }

    fn diagnose(&self, _: &StepSpec, failure: &TaskFailure, _: &WorkloadView) -> Fault {
        fault(failure.code, &failure.message)
    }

    fn units(&self, component: &str) -> Vec<String> {
        vec![format!("{component}.service")]
    }

    fn judge(&self, _: &MemberView, _: &WorkloadView, report: &UnitReport) -> (Health, Option<Fault>) {
        match report.active.as_str() {
            "failed" => (Health::Degraded, Some(fault(Code::ClusterNotReady, "the unit failed"))),
            _ => (Health::Healthy, None),
        }
    }

    fn describe(&self, step: &StepSpec, _: &OperationRequest, _: &WorkloadView) -> StepText {
        let interrupts = step.member.map(|_| format!("{} interrupts", step.key));
        StepText { does: format!("do {}", step.key), interrupts }
    }

    /// Each observed text is a deviation of the workload as a whole.
    fn compare(&self, _: &WorkloadView, observed: &Value) -> Result<Vec<Difference>, TaskFailure> {
        let deviations = observed.as_array().ok_or_else(|| TaskFailure::new(Code::Internal, "unreadable"))?;
        let difference = |observed: &Value| Difference {
            member: None,
            field: "cluster".to_owned(),
            desired: "as wanted".to_owned(),
            observed: observed.as_str().unwrap_or_default().to_owned(),
            since: None,
            action: NextAction::text("look"),
        };
        Ok(deviations.iter().map(difference).collect())
    }

    fn followed_through(&self, of: &WorkloadView) -> Option<MemberId> {
        self.cluster.through(of)
    }

    fn judge_cluster(
        &self,
        of: &WorkloadView,
        observed: Result<&Value, &TaskFailure>,
    ) -> Result<ClusterJudgment, TaskFailure> {
        followed::judge(of, observed)
    }

    fn observation(&self, _: &MemberView, _: &WorkloadView) -> Option<(TaskType, Value)> {
        Some((TaskType::Noop, json!({})))
    }

    fn node_differences(
        &self,
        member: &MemberView,
        _: &WorkloadView,
        _: &Value,
    ) -> Result<Vec<Difference>, TaskFailure> {
        let member = Some(member.name.clone());
        let of_member = |difference: &Difference| Difference { member: member.clone(), ..difference.clone() };
        Ok(self.drifted.lock().unwrap().iter().map(of_member).collect())
    }

    fn not_compared(&self) -> Vec<String> {
        vec!["files; gpuaas workload reconcile NAME".to_owned()]
    }
}

#[async_trait]
impl AppEffects for Kit {
    async fn call(&self, call: ClusterCall, context: CallContext) -> Result<Value, TaskFailure> {
        self.calls.lock().unwrap().push(call.clone());
        match call.call.as_str() {
            "answers" => Ok(json!({})),
            "hangs" => {
                // Twice, as watches do: unchanged progress emits no event.
                (context.progress)("waiting for the cluster".to_owned());
                (context.progress)("waiting for the cluster".to_owned());
                std::future::pending().await
            }
            other => Err(TaskFailure::new(Code::Unavailable, other.to_owned())),
        }
    }

    async fn deliver_access(&self, ask: AccessRequest, context: CallContext) -> Result<Delivered, TaskFailure> {
        if self.is_silent.load(Ordering::SeqCst) {
            std::future::pending().await
        }
        Ok(Delivered {
            kubeconfig: Zeroizing::new("kind: Config".to_owned()),
            service_account: ask.name,
            expires_at: context.now.plus(Duration::from_secs(ask.ttl_seconds)),
        })
    }

    async fn revoke_access(&self, service_account: &str, _: CallContext) -> Result<(), TaskFailure> {
        self.revoked.lock().unwrap().push(service_account.to_owned());
        Ok(())
    }

    async fn observe(&self, _: CallContext) -> Result<Value, TaskFailure> {
        self.observations.fetch_add(1, Ordering::SeqCst);
        if self.is_silent.load(Ordering::SeqCst) {
            std::future::pending().await
        }
        self.observed.lock().unwrap().clone()
    }

    fn follow(&self, _: CallContext) -> Observations {
        self.cluster.follow()
    }
}
