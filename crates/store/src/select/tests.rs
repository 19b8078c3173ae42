use std::sync::Arc;

use gpuaas_test_support::{DatabaseFile, ManualClock};

use super::*;
use crate::{
    AllocationFilter, AuditFilter, IdKind, IdPrefix, OperationFilter, Store, StoreOptions, TaskFilter, WorkloadFilter,
};

/// Returns the lists with conditions that must stay fast as rows of other projects, nodes, workloads or years
/// accumulate, each with the index columns that the query plan must use.
fn lists() -> Vec<(Select, &'static str)> {
    let (project, node) = (Some(uuid("01")), Some(uuid("02")));
    let prefix = IdPrefix::parse("0198c0de-0000-7000").unwrap();
    let tasks = TaskFilter::default;
    let page = Page { after: Some("0198c0de-0000-7000-8000-000000000006".to_owned()), limit: None };
    let operations = OperationFilter::default;
    let allocations = AllocationFilter::default;
    [
        (crate::workload::list(&WorkloadFilter { project, ..WorkloadFilter::default() }), "project_id=?"),
        (crate::workload::counted(project), "project_id=?"),
        (crate::operation::list(&OperationFilter { project, ..operations() }), "project_id=? AND id>?"),
        (
            crate::operation::list(&OperationFilter { workload: Some(uuid("03")), ..operations() }),
            "workload_id=? AND id>?",
        ),
        (
            crate::operation::list(&OperationFilter { state: "running".parse().ok(), ..operations() }),
            "state=? AND id>?",
        ),
        (crate::task::list(&TaskFilter { project, ..tasks() }), "project_id=? AND id>?"),
        (crate::task::list(&TaskFilter { node, ..tasks() }), "node_id=? AND id>?"),
        (crate::task::list(&TaskFilter { node, newest_first: true, ..tasks() }), "node_id=?"),
        (crate::task::list(&TaskFilter { node, newest_first: true, page, ..tasks() }), "node_id=? AND id<?"),
        (crate::task::list(&TaskFilter { operation: Some(uuid("04")), ..tasks() }), "operation_id=? AND id>?"),
        (crate::allocation::list(&AllocationFilter { project, ..allocations() }), "project_id=? AND id>?"),
        (crate::allocation::list(&AllocationFilter { node, ..allocations() }), "node_id=? AND id>?"),
        (
            crate::allocation::list(&AllocationFilter { state: "active".parse().ok(), ..allocations() }),
            "state=? AND id>?",
        ),
        (crate::token::list(project).page(&Page::default()), "project_id=? AND id>?"),
        (crate::service_account::list(uuid("01")).page(&Page::default()), "project_id=?"),
    ]
    .into_iter()
    .chain(audits())
    // In a project of the caller, the planner may prefer the index of the project.
    .chain(IdKind::ALL.map(|kind| (crate::id_prefix::list(kind, &prefix, None), "id>? AND id<?")))
    .collect()
}

/// The audit with every filter, alone and together with conditions that many records of others fulfil.
fn audits() -> Vec<(Select, &'static str)> {
    let (project, action) = (Some(uuid("01")), "task.dispatch".parse().ok());
    let (actor, target) = (Some("ann".to_owned()), Some("node/a".to_owned()));
    let (workload, correlation) = (Some(uuid("03")), Some(uuid("05")));
    let (since, until) = (Some(Timestamp::from_millis(1)), Some(Timestamp::from_millis(2)));
    let result = "refused".parse().ok();
    let common = AuditFilter { project, action, actor: actor.clone(), ..AuditFilter::default() };
    let all = AuditFilter::default;
    [
        (AuditFilter { project, ..all() }, "project_id=? AND sequence>?"),
        (AuditFilter { target: target.clone(), ..all() }, "target=? AND sequence>?"),
        (AuditFilter { actor: actor.clone(), ..all() }, "actor=? AND sequence>?"),
        (AuditFilter { action, ..all() }, "action=? AND sequence>?"),
        (AuditFilter { workload, ..all() }, "workload_id=? AND sequence>?"),
        (AuditFilter { correlation, ..all() }, "correlation=? AND sequence>?"),
        (AuditFilter { actor, before: Some(AuditFilter::NEWEST), ..all() }, "actor=? AND sequence<?"),
        (common.clone(), "project_id=? AND sequence>?"),
        (AuditFilter { workload, ..common.clone() }, "workload_id=? AND sequence>?"),
        // No index has the results: such a page is read in the order of the numbers.
        (AuditFilter { result, ..all() }, "(sequence>?)"),
        (AuditFilter { result, ..common.clone() }, "project_id=? AND sequence>?"),
        (AuditFilter { correlation, ..common.clone() }, "correlation=? AND sequence>?"),
        (AuditFilter { target, ..common.clone() }, "target=? AND sequence>?"),
        (AuditFilter { since, ..all() }, "COVERING INDEX audit_at (at>?)"),
        (AuditFilter { until, ..all() }, "COVERING INDEX audit_at (at<?)"),
        (AuditFilter { until, ..all() }, "sequence>? AND sequence<?"),
        (AuditFilter { since, until, ..common }, "project_id=? AND sequence>? AND sequence<?"),
    ]
    .map(|(filter, found_by)| (crate::audit::list(&filter), found_by))
    .into()
}

fn uuid<T: std::str::FromStr<Err: std::fmt::Debug>>(end: &str) -> T {
    format!("0198c0de-0000-7000-8000-0000000000{end}").parse().unwrap()
}

#[test]
fn absent_conditions_add_nothing_to_the_statement() {
    let list = Select::all("id, doc from tasks").equal("state", None::<&str>).equal("node_id", Some("n"));
    let list = list.within("tasks", (None, None), (true, true)).page(&Page::default());
    let expected = "select id, doc from tasks where node_id = $1 and id > $2 order by id limit $3";
    assert_eq!((list.sql().as_str(), list.values.len()), (expected, 3));
    assert_eq!(Select::all("id from tasks").then("order by id").sql(), "select id from tasks order by id");
}

#[tokio::test]
async fn filtered_pages_are_found_by_an_index() {
    let database = DatabaseFile::new();
    let options = StoreOptions { url: database.url() };
    Store::open(&options, Arc::new(ManualClock::default())).await.unwrap().close().await;
    let store = rusqlite::Connection::open(database.path()).unwrap();
    for (list, found_by) in lists() {
        let mut plan = store.prepare(&format!("explain query plan {}", list.sql())).unwrap();
        let steps = plan.raw_query().mapped(|row| row.get::<_, String>("detail")).collect::<Result<Vec<_>, _>>();
        let steps = steps.unwrap();
        assert!(steps.iter().any(|step| step.contains(found_by)), "{}: {steps:?}", list.sql());
    }
}
