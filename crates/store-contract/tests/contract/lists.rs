//! Lists: filters, pages, counts.

use std::time::Duration;

use gpuaas_model::{
    AllocationState, AuditAction, AuditResult, Connectivity, Health, Lifecycle, MemberState, NodeState, OperationState,
    ProjectId, StepState, TaskState, WorkloadId,
};
use gpuaas_store::*;

use super::{
    database::{Database, NOW},
    given,
};

fn page(after: Option<String>, limit: u32) -> Page {
    Page { after, limit: Some(limit) }
}

async fn add_nodes(store: &Store, nodes: &[NodeRecord]) {
    let mut tx = store.begin().await.unwrap();
    for node in nodes {
        tx.insert_node(node).await.unwrap();
    }
    tx.commit().await.unwrap();
}

pub(crate) async fn pages_are_stable_while_rows_are_added(database: Database) {
    let store = database.open().await;
    let nodes: Vec<_> = (0..5).map(|index| given::node(&format!("gpu-{index}"))).collect();
    add_nodes(&store, &nodes).await;
    let (mut seen, mut after) = (Vec::new(), None);
    for turn in 0..4 {
        let filter = NodeFilter { page: page(after.clone(), 2), ..NodeFilter::default() };
        let part = store.read().await.unwrap().nodes(&filter).await.unwrap();
        after = part.last().map(|node| node.id.to_string()).or(after);
        seen.extend(part.into_iter().map(|node| node.name.to_string()));
        if turn == 0 {
            add_nodes(&store, &[given::node("late")]).await;
        }
    }
    assert_eq!(seen, ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4", "late"], "every node is listed exactly once");
}

pub(crate) async fn a_page_has_at_least_one_record_and_at_most_the_limit(database: Database) {
    let store = database.open().await;
    add_nodes(&store, &[given::node("gpu-0"), given::node("gpu-1")]).await;
    let mut reader = store.read().await.unwrap();
    for (limit, expected) in [(0, 1), (1, 1), (2, 2), (u32::MAX, 2)] {
        let filter = NodeFilter { page: page(None, limit), ..NodeFilter::default() };
        assert_eq!(reader.nodes(&filter).await.unwrap().len(), expected, "limit {limit}");
    }
}

pub(crate) async fn ids_are_found_by_their_first_characters(database: Database) {
    let store = database.open().await;
    let ids = [
        "0198c0de-7a00-7000-8000-00000000000a",
        "0198c0de-7a00-7000-8000-00000000000b",
        "0198c0de-8b00-7000-8000-000000000000",
    ];
    let named = |(at, id): (usize, &&str)| NodeRecord { id: id.parse().unwrap(), ..given::node(&format!("gpu-{at}")) };
    let nodes: Vec<_> = ids.iter().enumerate().map(named).collect();
    add_nodes(&store, &nodes).await;
    let mut reader = store.read().await.unwrap();
    for (prefix, expected) in [
        ("0198", &ids[..]),
        ("0198C0DE-7a", &ids[..2]),
        ("0198c0de-7a00-7000-8000-00000000000b", &ids[1..2]),
        ("0199", &ids[..0]),
    ] {
        let prefix = IdPrefix::parse(prefix).unwrap();
        assert_eq!(reader.ids_beginning(IdKind::Node, &prefix, None).await.unwrap(), expected);
    }
    let project = Some(ProjectId::from_uuid(uuid::Uuid::nil()));
    let prefix = IdPrefix::parse("0198").unwrap();
    for kind in IdKind::ALL.into_iter().filter(|kind| *kind != IdKind::Archive) {
        assert_eq!(reader.ids_beginning(kind, &prefix, project).await.unwrap(), [""; 0], "{kind:?} of another project");
    }
}

pub(crate) async fn every_node_is_read_beyond_a_page(database: Database) {
    let store = database.open().await;
    let nodes: Vec<_> = (0..=Page::LIMIT_MAX).map(|index| given::node(&format!("gpu-{index}"))).collect();
    add_nodes(&store, &nodes).await;
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.every_node(|_| true).await.unwrap(), nodes);
    assert_eq!(reader.every_node(|node| node.name == nodes[1_000].name).await.unwrap(), nodes[1_000..]);
}

pub(crate) async fn nodes_are_filtered_by_state_and_connectivity(database: Database) {
    let store = database.open().await;
    let lost = NodeRecord { connectivity: Connectivity::Unreachable, ..given::node("lost") };
    let retired = NodeRecord { state: NodeState::Retired, ..given::node("retired") };
    add_nodes(&store, &[given::node("well"), lost.clone(), retired.clone()]).await;
    let mut reader = store.read().await.unwrap();
    let unreachable = NodeFilter { connectivity: Some(Connectivity::Unreachable), ..NodeFilter::default() };
    assert_eq!(reader.nodes(&unreachable).await.unwrap(), [lost]);
    let gone = NodeFilter { state: Some(NodeState::Retired), ..NodeFilter::default() };
    assert_eq!(reader.nodes(&gone).await.unwrap(), [retired]);
    let neither = NodeFilter { connectivity: Some(Connectivity::Stale), ..gone };
    assert_eq!(reader.nodes(&neither).await.unwrap(), []);
    let counts = reader.node_counts().await.unwrap();
    assert_eq!(counts.get(&Connectivity::Unreachable), Some(&1));
    assert_eq!(counts.values().sum::<u64>(), 3);
}

pub(crate) async fn allocations_are_filtered_by_project_state_and_node(database: Database) {
    let store = database.open().await;
    let (project, _, one) = given::allocated_node(&store, "gpu-1").await;
    let (_, node, two) = given::allocated_node(&store, "gpu-2").await;
    let mut tx = store.begin().await.unwrap();
    let two = tx.update_allocation(&AllocationRecord { state: AllocationState::Releasing, ..two }).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let of_project = AllocationFilter { project: Some(project.id), ..AllocationFilter::default() };
    assert_eq!(reader.allocations(&of_project).await.unwrap(), [one.clone()]);
    let releasing = AllocationFilter { state: Some(AllocationState::Releasing), ..AllocationFilter::default() };
    assert_eq!(reader.allocations(&releasing).await.unwrap(), [two.clone()]);
    let of_node = AllocationFilter { node: Some(node.id), ..AllocationFilter::default() };
    assert_eq!(reader.allocations(&of_node).await.unwrap(), [two.clone()]);
    assert_eq!(reader.allocations_of_ids(&[two.id, one.id]).await.unwrap(), [two.clone(), one.clone()]);
    assert_eq!(reader.open_allocations(two.project, &Page::default()).await.unwrap(), [two]);
    let mut tx = store.begin().await.unwrap();
    tx.update_allocation(&AllocationRecord { state: AllocationState::Released, ..one }).await.unwrap();
    assert_eq!(tx.open_allocations(project.id, &Page::default()).await.unwrap(), [], "released is not open");
    let all = AllocationState::ALL.iter().filter(|state| !state.holds_node()).map(|state| state.as_str());
    assert!(all.eq(["released", "failed"]), "the statement excludes the states that do not hold a node");
}

pub(crate) async fn workloads_are_filtered_and_counted(database: Database) {
    let store = database.open().await;
    let (ada, train) = given::workload_in_project(&store, "ada").await;
    let (_, other) = given::workload_in_project(&store, "bob").await;
    let running =
        WorkloadRecord { lifecycle: Lifecycle::Running, health: Health::Healthy, ..given::workload(&ada, "w") };
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&running).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let healthy = WorkloadFilter { health: Some(Health::Healthy), ..WorkloadFilter::default() };
    assert_eq!(reader.workloads(&healthy).await.unwrap(), [running.clone()]);
    let requested = WorkloadFilter { lifecycle: Some(Lifecycle::Requested), ..WorkloadFilter::default() };
    assert_eq!(reader.workloads(&requested).await.unwrap(), [train, other]);
    let nothing = WorkloadFilter { app: Some("slurm".into()), ..WorkloadFilter::default() };
    assert_eq!(reader.workloads(&nothing).await.unwrap(), []);
    let all = reader.workload_counts(None).await.unwrap();
    assert_eq!(all.get(&(Lifecycle::Requested, Health::Progressing)), Some(&2));
    let of_ada = reader.workload_counts(Some(ada.id)).await.unwrap();
    let expected = [((Lifecycle::Requested, Health::Progressing), 1), ((Lifecycle::Running, Health::Healthy), 1)];
    assert_eq!(of_ada, WorkloadCounts::from(expected));
}

pub(crate) async fn operations_are_filtered_and_the_open_ones_found(database: Database) {
    let store = database.open().await;
    let (ada, train) = given::workload_in_project(&store, "ada").await;
    let (_, serve) = given::workload_in_project(&store, "bob").await;
    let (ended, open) = (given::operation(&train), given::operation(&serve));
    let ended = OperationRecord { state: OperationState::Succeeded, ..ended };
    let mut tx = store.begin().await.unwrap();
    tx.insert_operation(&ended, &[]).await.unwrap();
    tx.insert_operation(&open, &[]).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.open_operations().await.unwrap(), [open.clone()]);
    assert_eq!(reader.open_operation_count().await.unwrap(), 1);
    let of_project = OperationFilter { project: Some(ada.id), ..OperationFilter::default() };
    assert_eq!(reader.operations(&of_project).await.unwrap(), [ended.clone()]);
    let of_workload = OperationFilter { workload: Some(serve.id), ..OperationFilter::default() };
    assert_eq!(reader.operations(&of_workload).await.unwrap(), [open]);
    let done = OperationFilter { state: Some(OperationState::Succeeded), ..OperationFilter::default() };
    assert_eq!(reader.operations(&done).await.unwrap(), [ended]);
}

pub(crate) async fn tasks_are_filtered_and_the_open_ones_found(database: Database) {
    let store = database.open().await;
    let (one, two) = (given::node("gpu-1"), given::node("gpu-2"));
    let project = Some(ProjectId::from_uuid(given::uuid()));
    let done = TaskRecord { state: TaskState::Succeeded, ..given::task(&one) };
    let (open, of_other_project) = (given::task(&one), TaskRecord { project, ..given::task(&two) });
    add_nodes(&store, &[one.clone(), two.clone()]).await;
    let mut tx = store.begin().await.unwrap();
    for task in [&done, &open, &of_other_project] {
        tx.insert_task(task).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.open_tasks(one.id).await.unwrap(), [open.clone()]);
    let of_node = TaskFilter { node: Some(one.id), ..TaskFilter::default() };
    assert_eq!(reader.tasks(&of_node).await.unwrap(), [done.clone(), open.clone()]);
    let newest = TaskFilter { newest_first: true, ..of_node };
    assert_eq!(reader.tasks(&newest).await.unwrap(), [open.clone(), done.clone()]);
    for (after, expected) in [(None, vec![open.clone()]), (Some(&open), vec![done.clone()]), (Some(&done), vec![])] {
        let after = after.map(|task: &TaskRecord| task.id.to_string());
        let filter = TaskFilter { page: page(after, 1), ..newest.clone() };
        assert_eq!(reader.tasks(&filter).await.unwrap(), expected);
    }
    let succeeded = TaskFilter { state: Some(TaskState::Succeeded), ..TaskFilter::default() };
    assert_eq!(reader.tasks(&succeeded).await.unwrap(), [done]);
    let of_project = TaskFilter { project, ..TaskFilter::default() };
    assert_eq!(reader.tasks(&of_project).await.unwrap(), [of_other_project]);
}

pub(crate) async fn the_audit_is_filtered_and_paged_by_its_number(database: Database) {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    for target in ["node/a", "node/b", "node/a"] {
        tx.append_audit(&given::audit(target)).await.unwrap();
    }
    tx.commit().await.unwrap();
    database.advance_clock(1_000);
    let mut tx = store.begin().await.unwrap();
    let (action, result) = (AuditAction::NodeRenew, AuditResult::Refused);
    let renewed = NewAudit { action, result, actor: "node/b".into(), ..given::audit("node/b") };
    tx.append_audit(&renewed).await.unwrap();
    let (workload, project) = (WorkloadId::from_uuid(given::uuid()), ProjectId::from_uuid(given::uuid()));
    let of_task =
        NewAudit { workload: Some(workload), project: Some(project), actor: "node/b".into(), ..given::audit("node/b") };
    tx.append_audit(&of_task).await.unwrap();
    tx.commit().await.unwrap();
    // The clock was set back: a later record has an earlier time.
    database.advance_clock(-500);
    let mut tx = store.begin().await.unwrap();
    tx.append_audit(&NewAudit { workload: Some(workload), ..given::audit("workload/train") }).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let (half, second) = (NOW.plus(Duration::from_millis(500)), NOW.plus(Duration::from_secs(1)));
    let (half, second) = (Some(half), Some(second));
    let (workload, project) = (Some(workload), Some(project));
    let newest = Some(AuditFilter::NEWEST);
    let node_b = Some("node/b".to_owned());
    for (filter, expected) in [
        (AuditFilter { workload, ..AuditFilter::default() }, vec![5, 6]),
        (AuditFilter { workload, project, ..AuditFilter::default() }, vec![5]),
        (AuditFilter { correlation: of_task.correlation, ..AuditFilter::default() }, vec![5]),
        (
            AuditFilter { actor: node_b.clone(), action: Some(AuditAction::NodeRegister), ..AuditFilter::default() },
            vec![5],
        ),
        (AuditFilter { actor: node_b.clone(), target: Some("node/a".into()), ..AuditFilter::default() }, vec![]),
        (AuditFilter { until: second, ..AuditFilter::default() }, vec![1, 2, 3, 6]),
        (AuditFilter { since: half, until: second, ..AuditFilter::default() }, vec![6]),
        (AuditFilter { since: half, after: 4, ..AuditFilter::default() }, vec![5, 6]),
        (AuditFilter { since: second, until: second, ..AuditFilter::default() }, vec![]),
        (AuditFilter { before: newest, limit: Some(2), ..AuditFilter::default() }, vec![6, 5]),
        (AuditFilter { before: Some(5), actor: node_b, ..AuditFilter::default() }, vec![4]),
        (AuditFilter { before: newest, until: half, ..AuditFilter::default() }, vec![3, 2, 1]),
        (AuditFilter { before: Some(3), until: half, since: Some(NOW), ..AuditFilter::default() }, vec![2, 1]),
        (AuditFilter { target: Some("node/a".into()), ..AuditFilter::default() }, vec![1, 3]),
        (AuditFilter { actor: Some("node/b".into()), ..AuditFilter::default() }, vec![4, 5]),
        (AuditFilter { action: Some(AuditAction::NodeRegister), after: 1, ..AuditFilter::default() }, vec![2, 3, 5, 6]),
        (AuditFilter { since: second, ..AuditFilter::default() }, vec![4, 5]),
        (AuditFilter { result: Some(AuditResult::Refused), ..AuditFilter::default() }, vec![4]),
        (AuditFilter { result: Some(AuditResult::Failed), ..AuditFilter::default() }, vec![]),
        (
            AuditFilter {
                result: Some(AuditResult::Accepted),
                before: newest,
                limit: Some(3),
                ..AuditFilter::default()
            },
            vec![6, 5, 3],
        ),
        (
            AuditFilter { result: Some(AuditResult::Accepted), actor: Some("node/b".into()), ..AuditFilter::default() },
            vec![5],
        ),
        (AuditFilter { after: 1, limit: Some(2), ..AuditFilter::default() }, vec![2, 3]),
        (AuditFilter { project: Some(ProjectId::from_uuid(given::uuid())), ..AuditFilter::default() }, vec![]),
    ] {
        let found: Vec<_> = reader.audits(&filter).await.unwrap().iter().map(|record| record.sequence).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

pub(crate) async fn related_rows_of_a_page_take_one_statement_each(database: Database) {
    let store = database.open().await;
    let (project, _) = given::workload_in_project(&store, "first").await;
    let mut workloads = vec![given::workload(&project, "bare")];
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&workloads[0]).await.unwrap();
    for called in ["gpu-0", "gpu-1", "gpu-2"] {
        let node = given::node(called);
        let allocation = given::allocation(&project, &node);
        let workload = given::workload(&project, called);
        let operation = given::operation(&workload);
        let steps: Vec<_> = (0..3)
            .map(|position| StepRecord {
                state: if position == 0 { StepState::Succeeded } else { StepState::Backoff },
                ..given::step(&operation, position)
            })
            .collect();
        tx.insert_node(&node).await.unwrap();
        tx.insert_allocation(&allocation).await.unwrap();
        tx.insert_workload(&workload).await.unwrap();
        tx.insert_members(&[given::member(&workload, &allocation)]).await.unwrap();
        tx.insert_operation(&operation, &steps).await.unwrap();
        workloads.push(workload);
    }
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let before = store.counts().statements;
    let parts = reader.workload_parts(&workloads).await.unwrap();
    assert_eq!(store.counts().statements - before, 1);
    assert!(parts[&workloads[0].id].members.is_empty() && parts[&workloads[0].id].newest_operation.is_none());
    let members: Vec<_> = workloads[1..].iter().map(|workload| parts[&workload.id].members[0].clone()).collect();
    assert!(members.iter().zip(&workloads[1..]).all(|(member, workload)| member.workload == workload.id));
    for workload in &workloads[1..] {
        let parts = &parts[&workload.id];
        assert_eq!(parts.open_operation().map(|open| open.workload), Some(workload.id));
        assert_eq!(parts.current_step.as_ref().map(|step| step.position), Some(1), "the first active step");
    }

    let before = store.counts().statements;
    let places: Vec<_> =
        members.iter().filter_map(|member| member.place.node().zip(member.place.allocation())).collect();
    let names = reader.node_names(places.iter().map(|(node, _)| *node)).await.unwrap();
    let nodes = reader.nodes_of_ids(places.iter().map(|(node, _)| *node)).await.unwrap();
    let allocations: Vec<_> = places.iter().map(|(_, allocation)| *allocation).collect();
    let users = reader.allocation_users(&allocations).await.unwrap();
    assert_eq!(store.counts().statements - before, 3);
    assert_eq!(places.len(), members.len());
    for ((node, allocation), workload) in places.iter().zip(&workloads[1..]) {
        assert_eq!((&names[node], &nodes[node].name), (&workload.name, &workload.name));
        let user = &users[allocation];
        assert_eq!((user.workload, &user.workload_name), (workload.id, &workload.name));
        let member = members.iter().find(|member| member.workload == workload.id).unwrap();
        let named = user.member.as_ref().unwrap();
        assert_eq!((named.name(), &named.component_key), (member.name(), &member.component_key));
    }
    let backwards: Vec<_> = allocations.iter().rev().copied().collect();
    let found = reader.allocations_of_ids(&backwards).await.unwrap();
    assert_eq!(found.iter().map(|allocation| allocation.id).collect::<Vec<_>>(), backwards, "in the requested order");
}

pub(crate) async fn workload_parts_leave_out_removed_members_and_have_the_newest_operation(database: Database) {
    let store = database.open().await;
    let (project, _, allocation) = given::allocated_node(&store, "gpu-0").await;
    let (workload, other) = (given::workload(&project, "train"), given::workload(&project, "serve"));
    let (release_file, stand_in) =
        (given::artifact(&workload.version), ArtifactRecord { stand_in: true, ..given::artifact("2") });
    let newer = WorkloadRecord { version: "2".to_owned(), ..given::workload(&project, "newer") };
    let mut tx = store.begin().await.unwrap();
    for workload in [&workload, &other, &newer] {
        tx.insert_workload(workload).await.unwrap();
    }
    tx.insert_artifacts(&[release_file, stand_in]).await.unwrap();
    let member = given::member(&workload, &allocation);
    tx.insert_members(&[member.clone()]).await.unwrap();
    let removed = MemberRecord { state: MemberState::Removed, ..member.clone() };
    tx.update_member(&removed, member.state.name()).await.unwrap();
    let operations = [given::operation(&workload), given::operation(&workload)];
    for operation in &operations {
        tx.insert_operation(operation, &[given::step(operation, 0)]).await.unwrap();
        let ended = OperationRecord { state: OperationState::Succeeded, ..operation.clone() };
        tx.update_operation(&ended, operation.state).await.unwrap();
    }
    tx.commit().await.unwrap();
    let all = [workload, other, newer];
    let parts = store.read().await.unwrap().workload_parts(&all).await.unwrap();
    assert_eq!(parts.len(), 3);
    assert!(
        parts
            .values()
            .all(|parts| parts.members.is_empty() && parts.open_operation().is_none() && parts.current_step.is_none())
    );
    let newest = all.each_ref().map(|workload| parts[&workload.id].newest_operation.as_ref().map(|newest| newest.id));
    let later = operations.iter().map(|operation| operation.id).max();
    assert_eq!(newest, [later, None, None], "the newest one, also after its end");
    assert_eq!(all.each_ref().map(|workload| parts[&workload.id].stand_in), [false, false, true]);
}

pub(crate) async fn what_a_page_waits_for_is_found_in_one_statement_each(database: Database) {
    let store = database.open().await;
    let (_, train) = given::workload_in_project(&store, "ada").await;
    let (_, serve) = given::workload_in_project(&store, "bob").await;
    let (first, second) = (given::operation(&train), given::operation(&serve));
    let in_state =
        |operation: &OperationRecord, position, state| StepRecord { state, ..given::step(operation, position) };
    let steps = [
        in_state(&first, 0, StepState::Succeeded),
        in_state(&first, 1, StepState::Backoff),
        in_state(&first, 2, StepState::Running),
    ];
    let (unused, used, late) = (given::node("gpu-1"), given::node("gpu-2"), given::node("gpu-3"));
    add_nodes(&store, &[unused.clone(), used.clone(), late.clone()]).await;
    let token = given::enrollment(&unused);
    let mut tx = store.begin().await.unwrap();
    tx.insert_operation(&first, &steps).await.unwrap();
    tx.insert_operation(&second, &[given::step(&second, 0)]).await.unwrap();
    tx.insert_enrollment(&token).await.unwrap();
    tx.insert_enrollment(&EnrollmentRecord { used_at: Some(NOW), ..given::enrollment(&used) }).await.unwrap();
    tx.insert_enrollment(&EnrollmentRecord { expires_at: NOW, ..given::enrollment(&late) }).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let current = reader.current_steps([first.id, second.id]).await.unwrap();
    assert_eq!(current.into_values().collect::<Vec<_>>(), [steps[1].clone()], "the first in progress of each");
    let found = reader.steps_of_ids([steps[0].id, steps[2].id]).await.unwrap();
    assert_eq!((found.len(), &found[&steps[2].id]), (2, &steps[2]));
    let redeemable = reader.redeemable_enrollments([unused.id, used.id, late.id], NOW).await.unwrap();
    assert_eq!(redeemable.into_iter().collect::<Vec<_>>(), [(unused.id, token)]);
    assert!(reader.current_steps([]).await.unwrap().is_empty() && reader.steps_of_ids([]).await.unwrap().is_empty());
}
