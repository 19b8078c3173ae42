//! Resources that have at most one holder at a time: nodes, allocations, workloads.

use gpuaas_model::{AllocationState, MemberPlace, MemberState, MemberStateName, OperationState};
use gpuaas_store::{AllocationRecord, MemberRecord, OperationRecord, StoreError};

use super::{
    database::{Database, run_concurrently},
    given,
};

pub(crate) async fn node_has_one_open_allocation_and_is_free_after_its_release(database: Database) {
    let store = database.open().await;
    let (project, node, first) = given::allocated_node(&store, "gpu-1").await;
    let second = given::allocation(&project, &node);
    let mut tx = store.begin().await.unwrap();
    match tx.insert_allocation(&second).await {
        Err(StoreError::NodeAllocated { node }) => assert_eq!(node, "gpu-1"),
        other => panic!("the node is already allocated: {other:?}"),
    }
    let released = AllocationRecord { state: AllocationState::Released, ..first };
    tx.update_allocation(&released).await.unwrap();
    tx.insert_allocation(&second).await.expect("a released node is free");
    tx.commit().await.unwrap();
    let open = store.read().await.unwrap().open_allocations_of([node.id]).await.unwrap();
    assert_eq!(open.iter().map(|allocation| allocation.id).collect::<Vec<_>>(), [second.id]);
}

pub(crate) async fn the_database_itself_refuses_a_second_open_allocation_of_a_node(database: Database) {
    let store = database.open().await;
    given::allocated_node(&store, "gpu-1").await;
    let copy = |id: &str, state: &str| {
        format!(
            "insert into allocations (id, project_id, node_id, state, generation, doc) \
             select '{id}', project_id, node_id, '{state}', 1, doc from allocations limit 1"
        )
    };
    database.sql(&copy("a", "requested")).await.expect_err("the node has two open allocations");
    database.sql(&copy("b", "release_failed")).await.expect_err("an allocation whose release failed is still open");
    database.sql(&copy("c", "released")).await.expect("a released allocation is not open");
}

pub(crate) async fn an_allocation_carries_one_member_and_the_refusal_names_the_workload(database: Database) {
    let store = database.open().await;
    let (project, _, allocation) = given::allocated_node(&store, "gpu-1").await;
    let (train, serve) = (given::workload(&project, "train"), given::workload(&project, "serve"));
    let first = given::member(&train, &allocation);
    let second = given::member(&serve, &allocation);
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&train).await.unwrap();
    tx.insert_workload(&serve).await.unwrap();
    tx.insert_members(std::slice::from_ref(&first)).await.unwrap();
    match tx.insert_members(std::slice::from_ref(&second)).await {
        Err(StoreError::AllocationInUse { allocation: used, workload }) => {
            assert_eq!((used, workload.as_str()), (allocation.id, "train"));
        }
        other => panic!("the allocation is used: {other:?}"),
    }
    let removed = MemberRecord { state: MemberState::Removed, ..first };
    tx.update_member(&removed, MemberStateName::Pending).await.unwrap();
    tx.insert_members(&[second]).await.expect("a removed member frees its allocation");
    tx.commit().await.unwrap();
    let user = store.read().await.unwrap().allocation_user(allocation.id).await.unwrap().unwrap();
    assert_eq!((user.workload, user.workload_name), (serve.id, serve.name));
}

pub(crate) async fn members_on_external_machines_have_neither_allocation_nor_node(database: Database) {
    let store = database.open().await;
    let (project, node, allocation) = given::allocated_node(&store, "gpu-1").await;
    let train = given::workload(&project, "train");
    let on = |place| MemberRecord { place, ..given::member(&train, &allocation) };
    let external = |machine| on(MemberPlace::External { machine: given::name(machine), address: "192.0.2.7".into() });
    let held = MemberPlace::Allocation { allocation: allocation.id, node: node.id };
    let members = [external("edge-1"), on(held), external("edge-2")];
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&train).await.unwrap();
    tx.insert_members(&members).await.unwrap();
    tx.commit().await.unwrap();
    store.read_every_row().await.expect("columns and documents agree");
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.members_of(train.id).await.unwrap(), members);
    assert_eq!(reader.members_on(node.id).await.unwrap(), [members[1].clone()]);
    drop(reader);
    let removed = MemberRecord { state: MemberState::Removed, ..members[0].clone() };
    let mut tx = store.begin().await.unwrap();
    tx.update_member(&removed, MemberStateName::Pending).await.unwrap();
    tx.commit().await.unwrap();
    let mut dumped = Vec::new();
    store.dump(&mut dumped).await.expect("null columns are dumped");
    assert_eq!(
        database.number("select count(*) from members where allocation_id is null and node_id is null").await,
        2
    );
}

pub(crate) async fn the_database_itself_refuses_a_second_member_on_an_allocation(database: Database) {
    let store = database.open().await;
    let (project, _, allocation) = given::allocated_node(&store, "gpu-1").await;
    let train = given::workload(&project, "train");
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&train).await.unwrap();
    tx.insert_members(&[given::member(&train, &allocation)]).await.unwrap();
    tx.commit().await.unwrap();
    let copy = "insert into members (id, workload_id, position, allocation_id, node_id, state, doc) \
                select 'x', workload_id, 9, allocation_id, node_id, 'failed', doc from members limit 1";
    database.sql(copy).await.expect_err("an allocation has two members");
}

pub(crate) async fn a_workload_has_one_open_operation_and_the_refusal_names_it(database: Database) {
    let store = database.open().await;
    let (_, train) = given::workload_in_project(&store, "train").await;
    let first = given::operation(&train);
    let second = given::operation(&train);
    let mut tx = store.begin().await.unwrap();
    tx.insert_operation(&first, &[given::step(&first, 0), given::step(&first, 1)]).await.unwrap();
    match tx.insert_operation(&second, &[]).await {
        Err(StoreError::OperationInProgress { operation, kind }) => {
            assert_eq!((operation, kind), (first.id, first.kind));
        }
        other => panic!("an operation is open: {other:?}"),
    }
    let attention = OperationRecord { state: OperationState::NeedsAttention, ..first.clone() };
    tx.update_operation(&attention, OperationState::Queued).await.unwrap();
    let open = !OperationState::NeedsAttention.is_final();
    assert_eq!(tx.open_operations().await.unwrap().len(), usize::from(open), "open until its state is final");
    let ended = OperationRecord { state: OperationState::Succeeded, ..first.clone() };
    tx.update_operation(&ended, OperationState::NeedsAttention).await.unwrap();
    tx.insert_operation(&second, &[]).await.expect("the first has ended");
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.newest_operation(train.id).await.unwrap(), Some(second));
    let steps = reader.steps_of(first.id).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.position).collect::<Vec<_>>(), [0, 1]);
}

pub(crate) async fn the_database_itself_refuses_a_second_open_operation_of_a_workload(database: Database) {
    let store = database.open().await;
    let (_, train) = given::workload_in_project(&store, "train").await;
    let mut tx = store.begin().await.unwrap();
    tx.insert_operation(&given::operation(&train), &[]).await.unwrap();
    tx.commit().await.unwrap();
    let copy = "insert into operations (id, workload_id, project_id, state, is_open, doc) \
                select 'x', workload_id, project_id, state, is_open, doc from operations limit 1";
    database.sql(copy).await.expect_err("the workload has two open operations");
}

pub(crate) async fn one_of_many_concurrent_allocations_of_a_node_succeeds(database: Database) {
    let (one, other) = (database.open().await, database.open().await);
    let (project, node) = (given::project("ada"), given::node("gpu-1"));
    let mut tx = one.begin().await.unwrap();
    tx.insert_project(&project).await.unwrap();
    tx.insert_node(&node).await.unwrap();
    tx.commit().await.unwrap();
    let outcomes = run_concurrently(10, |index| {
        let store = if index % 2 == 0 { one.clone() } else { other.clone() };
        let allocation = given::allocation(&project, &node);
        async move {
            let mut tx = store.begin().await?;
            tx.insert_allocation(&allocation).await?;
            tx.commit().await
        }
    })
    .await;
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::NodeAllocated { .. }))).count();
    assert_eq!(refused, 9, "{outcomes:?}");
}

pub(crate) async fn one_of_many_concurrent_operations_of_a_workload_is_accepted(database: Database) {
    let (one, other) = (database.open().await, database.open().await);
    let (_, train) = given::workload_in_project(&one, "train").await;
    let outcomes = run_concurrently(10, |index| {
        let store = if index % 2 == 0 { one.clone() } else { other.clone() };
        let operation = given::operation(&train);
        async move {
            let mut tx = store.begin().await?;
            tx.insert_operation(&operation, &[given::step(&operation, 0)]).await?;
            tx.commit().await
        }
    })
    .await;
    let in_progress = |outcome: &&Result<(), _>| matches!(outcome, Err(StoreError::OperationInProgress { .. }));
    assert_eq!(outcomes.iter().filter(in_progress).count(), 9, "{outcomes:?}");
    assert_eq!(database.number("select count(*) from steps").await, 1);
}

pub(crate) async fn members_keep_the_order_of_their_placement(database: Database) {
    let store = database.open().await;
    let (project, _, first) = given::allocated_node(&store, "gpu-1").await;
    let (_, _, second) = given::allocated_node(&store, "gpu-2").await;
    let train = given::workload(&project, "train");
    let (late_id, early_id) = (given::member(&train, &first), given::member(&train, &second));
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&train).await.unwrap();
    tx.insert_members(&[early_id.clone()]).await.unwrap();
    tx.insert_members(&[late_id.clone()]).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let ids: Vec<_> = reader.members_of(train.id).await.unwrap().into_iter().map(|member| member.id).collect();
    assert_eq!(ids, [early_id.id, late_id.id]);
    assert_eq!(reader.members_on(second.node).await.unwrap().len(), 1);
}
