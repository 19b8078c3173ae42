//! Enrollment of a machine after a tenant: it needs a new key, another machine id and, with a reimage hook, the hook's one-time value.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use gpuaas_engine::{
    CommandError, Engine, Precondition,
    commands::{
        allocation,
        node::{self, Forced},
        node_removal, reimage,
    },
    port::{ReimageHook, ReimageOrder},
};
use gpuaas_model::{AuditAction, Code, Coded, NodeId, Timestamp};
use gpuaas_store::{AuditFilter, MemberRecord, NodeProblem};
use gpuaas_trust::{EnrollmentString, NodeKey, SecretText};
use gpuaas_wire::session::{EnrollRequest, EnrollResponse, ReimageEvidence};
use serde_json::json;

use crate::{
    engines::{Engines, admin},
    kit::milestone,
    site::Site,
};

const MACHINE: &str = "4c4c4544003510568054b7c04f4a3432";

/// Redeems an enrollment string on a machine with this id.
async fn redeem(
    engines: &Engines,
    string: &SecretText,
    key: &NodeKey,
    machine_id: &str,
    reimage: Option<&SecretText>,
) -> Result<EnrollResponse, CommandError> {
    redeem_by(&engines.engine, string, key, machine_id, reimage).await
}

async fn redeem_by(
    engine: &Engine,
    string: &SecretText,
    key: &NodeKey,
    machine_id: &str,
    reimage: Option<&SecretText>,
) -> Result<EnrollResponse, CommandError> {
    let string = EnrollmentString::decode(string.expose()).unwrap();
    let ask = EnrollRequest {
        node: string.node,
        token: string.token.expose().to_owned(),
        csr: key.request_pem().unwrap(),
        machine_id: machine_id.to_owned(),
        agent_version: "1".to_owned(),
        clock: None,
        reimage: reimage.map(|value| ReimageEvidence::OneTimeValue { value: value.expose().to_owned() }),
    };
    node::redeem(engine, admin().correlation, ask).await
}

/// Creates a node that a tenant used and that was then released and reset. Returns the agent's former key and the new enrollment string.
async fn released_node() -> (Site, NodeKey, SecretText) {
    let site = Site::of(1).await;
    let engine = &site.engines.engine;
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut row = tx.node(site.nodes[0]).await.unwrap();
    row.state = gpuaas_model::NodeState::Registered;
    tx.update_node(&row).await.unwrap();
    tx.commit().await.unwrap();
    let (_, string) = node::issue_enrollment(engine, &admin(), site.nodes[0], &Precondition::Any, None).await.unwrap();
    let key = NodeKey::generate().unwrap();
    redeem(&site.engines, &string, &key, MACHINE, None).await.unwrap();
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut row = tx.node(site.nodes[0]).await.unwrap();
    row.state = gpuaas_model::NodeState::Active;
    tx.update_node(&row).await.unwrap();
    tx.commit().await.unwrap();
    allocation::release(engine, &admin(), site.allocations[0], &Precondition::Any).await.unwrap();
    let (_, string) = node::reset(engine, &admin(), site.nodes[0], &Precondition::Any, None).await.unwrap();
    (site, key, string)
}

fn code(refused: Result<EnrollResponse, CommandError>) -> Option<Code> {
    refused.err().map(|error| error.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_that_was_not_reimaged_is_refused_after_a_tenant() {
    let (site, _, string) = released_node().await;
    let fresh = NodeKey::generate().unwrap();
    let refused = redeem(&site.engines, &string, &fresh, MACHINE, None).await;
    assert_eq!(code(refused), Some(Code::MachineNotReimaged));
    // A refusal does not use up the token: the reimaged machine enrolls with the same string.
    assert_eq!(code(redeem(&site.engines, &string, &fresh, "another", None).await), None);
    let row = site.engines.store().read().await.unwrap().node(site.nodes[0]).await.unwrap();
    assert_eq!((row.left_by_tenant, row.machine_id.as_deref()), (None, Some("another")));
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_that_was_not_reimaged_is_refused_under_another_name() {
    let (site, _, _) = released_node().await;
    let (engine, former) = (&site.engines.engine, site.nodes[0]);
    let register = async |name: &str| {
        let named = name.parse().unwrap();
        node::register(engine, &admin(), named, None, BTreeMap::new()).await.unwrap()
    };
    let fresh = || NodeKey::generate().unwrap();
    let (_, second) = register("gpu-2").await;
    assert_eq!(code(redeem(&site.engines, &second, &fresh(), MACHINE, None).await), Some(Code::MachineNotReimaged));
    node_removal::retire(engine, &admin(), former, &Precondition::Any).await.unwrap();
    node_removal::delete(engine, &admin(), former, &Precondition::Any).await.unwrap();
    assert_eq!(code(redeem(&site.engines, &second, &fresh(), MACHINE, None).await), Some(Code::MachineNotReimaged));
    let (same_name, third) = register("gpu-1").await;
    assert_eq!(code(redeem(&site.engines, &third, &fresh(), MACHINE, None).await), Some(Code::MachineNotReimaged));
    assert_eq!(code(redeem(&site.engines, &second, &fresh(), "another", None).await), None, "it was reimaged");

    let forced = Forced { reason: "disks wiped by hand".to_owned() };
    let issue = async |forced| {
        node::issue_enrollment(engine, &admin(), same_name.id, &Precondition::Any, forced).await.unwrap().1
    };
    assert_eq!(code(redeem(&site.engines, &issue(Some(&forced)).await, &fresh(), MACHINE, None).await), None);
    let again = redeem(&site.engines, &issue(None).await, &fresh(), MACHINE, None).await;
    assert_eq!(code(again), None, "the requirement has ended");
}

/// Enrolls the machine that a tenant left as another node, by force, and returns that node. With `was_left`, a tenant has left that node with
/// the same machine id, too.
async fn accepted_by_force(site: &Site, was_left: bool) -> NodeId {
    let engine = &site.engines.engine;
    let (other, _) = node::register(engine, &admin(), "gpu-2".parse().unwrap(), None, BTreeMap::new()).await.unwrap();
    if was_left {
        let mut tx = site.engines.store().begin().await.unwrap();
        tx.remember_left_machine(MACHINE, other.id, Timestamp::from_millis(2)).await.unwrap();
        tx.commit().await.unwrap();
    }
    let forced = Forced { reason: "its tenant may have chosen its id".to_owned() };
    let (_, string) =
        node::issue_enrollment(engine, &admin(), other.id, &Precondition::Any, Some(&forced)).await.unwrap();
    let accepted = redeem(&site.engines, &string, &NodeKey::generate().unwrap(), MACHINE, None).await;
    assert_eq!(code(accepted), None);
    other.id
}

async fn assert_force_frees_no_other_node(was_left: bool) {
    let (site, _, string) = released_node().await;
    accepted_by_force(&site, was_left).await;
    let named = "gpu-3".parse().unwrap();
    let (_, third) = node::register(&site.engines.engine, &admin(), named, None, BTreeMap::new()).await.unwrap();
    for unforced in [string, third] {
        let refused = redeem(&site.engines, &unforced, &NodeKey::generate().unwrap(), MACHINE, None).await;
        assert_eq!(code(refused), Some(Code::MachineNotReimaged));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_enrollment_under_another_name_frees_no_other_node() {
    assert_force_frees_no_other_node(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_was_left_with_the_id_of_another_frees_no_other_node() {
    assert_force_frees_no_other_node(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_that_was_accepted_by_force_enrolls_again_in_place() {
    let (site, _, _) = released_node().await;
    let engine = &site.engines.engine;
    let fresh = || NodeKey::generate().unwrap();
    let other = accepted_by_force(&site, false).await;
    // After a restore, a node with an identity is enrolled.
    let (_, restored) = node::issue_enrollment(engine, &admin(), other, &Precondition::Any, None).await.unwrap();
    assert_eq!(code(redeem(&site.engines, &restored, &fresh(), MACHINE, None).await), None);
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut row = tx.node(other).await.unwrap();
    row.state = gpuaas_model::NodeState::Active;
    let detail = "ledger.jsonl is missing".to_owned();
    let since = Timestamp::from_millis(1);
    row.agent_problem = Some(NodeProblem { code: Code::AgentLedgerDamaged, detail, since });
    tx.update_node(&row).await.unwrap();
    tx.commit().await.unwrap();
    let (_, again) = node::issue_enrollment(engine, &admin(), other, &Precondition::Any, None).await.unwrap();
    assert_eq!(code(redeem(&site.engines, &again, &fresh(), MACHINE, None).await), None);
    // A machine that the node itself was when its tenant left was not accepted, although its agent reports its id again.
    let problem = row.agent_problem;
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut row = tx.node(other).await.unwrap();
    row.agent_problem = problem;
    tx.update_node(&row).await.unwrap();
    tx.remember_left_machine(MACHINE, other, Timestamp::from_millis(2)).await.unwrap();
    tx.commit().await.unwrap();
    let (_, left) = node::issue_enrollment(engine, &admin(), other, &Precondition::Any, None).await.unwrap();
    assert_eq!(code(redeem(&site.engines, &left, &fresh(), MACHINE, None).await), Some(Code::MachineNotReimaged));
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_is_refused_although_another_one_took_its_place() {
    let (site, _, string) = released_node().await;
    let engine = &site.engines.engine;
    let fresh = || NodeKey::generate().unwrap();
    assert_eq!(code(redeem(&site.engines, &string, &fresh(), "another", None).await), None);
    let (_, second) = node::register(engine, &admin(), "gpu-9".parse().unwrap(), None, BTreeMap::new()).await.unwrap();
    assert_eq!(code(redeem(&site.engines, &second, &fresh(), MACHINE, None).await), Some(Code::MachineNotReimaged));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_of_a_held_node_has_nothing_of_its_members() {
    let site = Site::of(2).await;
    let engine = &site.engines.engine;
    let workload = site.deploy_and_wait(|_| vec![milestone("ready")]).await.workload.id;
    let mut tx = site.engines.store().begin().await.unwrap();
    let members = tx.members_of(workload).await.unwrap();
    let mut row = tx.workload(workload).await.unwrap();
    for member in &members {
        row.facts.insert(format!("installed/{}", member.name()), json!(true));
        let state = member.state.name();
        tx.update_member(&MemberRecord { touched: true, ..member.clone() }, state).await.unwrap();
    }
    row.facts.insert("ca".to_owned(), json!("abc"));
    tx.update_workload(&row).await.unwrap();
    tx.commit().await.unwrap();
    let forced = Forced { reason: "its disk was replaced".to_owned() };
    let enroll = async |machine: &str| {
        let (_, string) =
            node::issue_enrollment(engine, &admin(), site.nodes[0], &Precondition::Any, Some(&forced)).await.unwrap();
        redeem(&site.engines, &string, &NodeKey::generate().unwrap(), machine, None).await.unwrap();
        let mut reader = site.engines.store().read().await.unwrap();
        let facts = reader.workload(workload).await.unwrap().facts.into_keys().collect::<Vec<_>>();
        let touched =
            reader.members_of(workload).await.unwrap().iter().map(|member| member.touched).collect::<Vec<_>>();
        (facts, touched)
    };
    let [first, second] = [0, 1].map(|at: usize| format!("installed/{}", members[at].name()));
    let all = vec!["ca".to_owned(), first, second.clone()];
    assert_eq!(enroll(MACHINE).await, (all.clone(), vec![true, true]));
    assert_eq!(enroll(MACHINE).await, (all, vec![true, true]), "the same machine keeps what is on it");
    assert_eq!(enroll("another").await, (vec!["ca".to_owned(), second], vec![false, true]));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_an_earlier_enrollment_is_refused() {
    let (site, former, string) = released_node().await;
    let refused = redeem(&site.engines, &string, &former, "another", None).await;
    assert_eq!(code(refused), Some(Code::KeyReused));
    let fresh = NodeKey::generate().unwrap();
    assert_eq!(code(redeem(&site.engines, &string, &fresh, "another", None).await), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_enrollment_records_its_reason() {
    let (site, _, _) = released_node().await;
    let engine = &site.engines.engine;
    for reason in ["", "  ", "two\nlines", &"x".repeat(501)] {
        let forced = Forced { reason: reason.to_owned() };
        let refused = node::issue_enrollment(engine, &admin(), site.nodes[0], &Precondition::Any, Some(&forced)).await;
        assert_eq!(refused.err().map(|error| error.code()), Some(Code::FieldInvalid), "{reason:?}");
    }
    let forced = Forced { reason: "disks wiped by hand".to_owned() };
    let issued = node::issue_enrollment(engine, &admin(), site.nodes[0], &Precondition::Any, Some(&forced)).await;
    let fresh = NodeKey::generate().unwrap();
    assert_eq!(code(redeem(&site.engines, &issued.unwrap().1, &fresh, MACHINE, None).await), None);
    let filter = AuditFilter { action: Some(AuditAction::NodeEnrollmentCreate), ..AuditFilter::default() };
    let records = site.engines.store().read().await.unwrap().audits(&filter).await.unwrap();
    assert_eq!(records.last().unwrap().metadata["forced"], "disks wiped by hand");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_hook_the_machine_must_present_the_value_of_the_hook() {
    let (site, _, by_hand) = released_node().await;
    let hook = Arc::new(Hook::default());
    let engine = site.engines.with_reimage_hook(hook.clone()).await;
    let fresh = || NodeKey::generate().unwrap();
    let refused = redeem_by(&engine, &by_hand, &fresh(), "another", None).await;
    assert_eq!(code(refused), Some(Code::ReimageUnverified), "a string alone is not enough");
    reimage::reimage(&engine, &admin(), site.nodes[0], &Precondition::Any).await.unwrap();
    reimage::reimage(&engine, &admin(), site.nodes[0], &Precondition::Any).await.unwrap();
    let orders = hook.0.lock().unwrap().drain(..).collect::<Vec<_>>();
    let [older, newer] = &orders[..] else { panic!("two orders") };
    for (why, value) in
        [("none", None), ("the previous order", Some(&older.value)), ("the string", Some(&newer.enrollment))]
    {
        let refused = redeem_by(&engine, &newer.enrollment, &fresh(), "another", value).await;
        assert_eq!(code(refused), Some(Code::ReimageUnverified), "{why}");
    }
    let same_machine = redeem_by(&engine, &newer.enrollment, &fresh(), MACHINE, Some(&newer.value)).await;
    assert_eq!(code(same_machine), Some(Code::MachineNotReimaged));
    let taken = redeem_by(&engine, &newer.enrollment, &fresh(), "another", Some(&newer.value)).await;
    assert_eq!(code(taken), None);
    let again = redeem_by(&engine, &newer.enrollment, &fresh(), "another", Some(&newer.value)).await;
    assert_eq!(code(again), Some(Code::EnrollmentUsed));
}

#[tokio::test(flavor = "multi_thread")]
async fn reimage_can_be_repeated_after_the_hook_failed() {
    let (site, _, _) = released_node().await;
    let refused = reimage::reimage(&site.engines.engine, &admin(), site.nodes[0], &Precondition::Any).await;
    assert_eq!(refused.err().map(|error| error.code()), Some(Code::ReimageHookMissing));
    let engine = site.engines.with_reimage_hook(Arc::new(Failing)).await;
    let failed = reimage::reimage(&engine, &admin(), site.nodes[0], &Precondition::Any).await;
    assert_eq!(failed.err().map(|error| error.code()), Some(Code::ReimageHookFailed));
    let hook = Arc::new(Hook::default());
    let engine = site.engines.with_reimage_hook(hook.clone()).await;
    reimage::reimage(&engine, &admin(), site.nodes[0], &Precondition::Any).await.unwrap();
    assert_eq!(hook.0.lock().unwrap().len(), 1);
}

/// A hook that accepts and keeps every order.
#[derive(Default)]
struct Hook(Mutex<Vec<ReimageOrder>>);

#[async_trait]
impl ReimageHook for Hook {
    async fn reimage(&self, order: ReimageOrder) -> Result<(), String> {
        self.0.lock().unwrap().push(order);
        Ok(())
    }
}

struct Failing;

#[async_trait]
impl ReimageHook for Failing {
    async fn reimage(&self, _: ReimageOrder) -> Result<(), String> {
        Err("no answer from the provisioner".to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn enrollment_string_expires_fifteen_minutes_after_it_was_issued() {
    let engines = Engines::new().await;
    let named = "gpu-1".parse().unwrap();
    node::register(&engines.engine, &admin(), named, None, BTreeMap::new()).await.unwrap();
    let now = engines.engine.ports().clock.now();
    let authority = engines.engine.keys().authority().digest();
    let mut reader = engines.store().read().await.unwrap();
    let minutes = |minutes: u64| now.plus(std::time::Duration::from_secs(minutes * 60));
    assert_eq!(reader.open_enrollments("another", minutes(14)).await.unwrap().len(), 1);
    assert_eq!(reader.open_enrollments("another", minutes(16)).await.unwrap().len(), 0);
    assert_eq!(reader.open_enrollments(&authority, now).await.unwrap().len(), 0, "only strings of other authorities");
}
