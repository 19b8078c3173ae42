-- A member on an external machine has neither an allocation nor a node: both columns are null then.
create table members_13 (
    id text primary key, workload_id text not null references workloads (id), position bigint not null,
    allocation_id text references allocations (id), node_id text references nodes (id), state text not null, doc text not null
);
insert into members_13 (id, workload_id, position, allocation_id, node_id, state, doc)
    select id, workload_id, position, allocation_id, node_id, state, doc from members;
drop table members;
alter table members_13 rename to members;
create unique index members_allocation on members (allocation_id) where state <> 'removed';
create index members_workload on members (workload_id);
create index members_node on members (node_id);
-- Machines that tenants have left. A reimaged machine has another id, so a machine with one of these was not reimaged.
-- Machines report their ids themselves, so several nodes can have been left with the same one.
create table left_machines (
    machine_id text not null, node_id text not null references nodes (id), left_at bigint not null, primary key (machine_id, node_id)
);
create index left_machines_node on left_machines (node_id);
