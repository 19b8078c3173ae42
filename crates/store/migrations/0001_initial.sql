-- Columns are what rules and filters need; `doc` is the record as JSON. Times are milliseconds since the epoch, ids are text.
create table projects (id text primary key, name text not null unique, doc text not null);
create table tokens (id text primary key, sha256 text not null unique, project_id text not null, doc text not null);
create table nodes (
    id text primary key, name text not null unique, state text not null, connectivity text not null,
    generation bigint not null, doc text not null
);
create table enrollments (
    id text primary key, node_id text not null references nodes (id), sha256 text not null unique,
    expires_at bigint not null, used_at bigint
);
create table allocations (
    id text primary key, project_id text not null references projects (id), node_id text not null references nodes (id),
    state text not null, generation bigint not null, doc text not null
);
-- A node is held by one project at a time.
create unique index allocations_open on allocations (node_id) where state not in ('released', 'failed');
create table artifacts (
    id text primary key, app text not null, version text not null, name text not null, sha256 text not null,
    imported_at bigint not null, doc text not null, unique (app, version, name)
);
create index artifacts_sha256 on artifacts (sha256);
create table workloads (
    id text primary key, project_id text not null references projects (id), name text not null, app text not null,
    lifecycle text not null, health text not null, revision bigint not null, doc text not null
);
-- A name is free again once its workload is gone.
create unique index workloads_name on workloads (project_id, name) where lifecycle <> 'decommissioned';
create table members (
    id text primary key, workload_id text not null references workloads (id), position bigint not null,
    allocation_id text not null references allocations (id), node_id text not null references nodes (id),
    state text not null, doc text not null
);
-- An allocation carries one member at a time.
create unique index members_allocation on members (allocation_id) where state <> 'removed';
create index members_workload on members (workload_id);
create index members_node on members (node_id);
create table operations (
    id text primary key, workload_id text not null references workloads (id), project_id text not null,
    state text not null, is_open bigint not null, doc text not null
);
-- One mutating operation per workload at a time.
create unique index operations_open on operations (workload_id) where is_open = 1;
create index operations_project on operations (project_id);
create table steps (
    id text primary key, operation_id text not null references operations (id), position bigint not null,
    state text not null, attempts bigint not null, doc text not null, unique (operation_id, position)
);
create table tasks (
    id text primary key, node_id text not null references nodes (id), operation_id text not null, workload_id text not null,
    project_id text not null, state text not null, is_open bigint not null, doc text not null
);
create index tasks_node on tasks (node_id);
create index tasks_operation on tasks (operation_id);
create table secrets (
    id text primary key, workload_id text not null, name text not null, sha256 text not null, sealed blob not null,
    created_at bigint not null, unique (workload_id, name)
);
create table access_grants (id text primary key, workload_id text not null references workloads (id), doc text not null);
-- Fences outlive their leases: a row stays when nobody holds it.
create table leases (name text primary key, holder text not null, fence bigint not null, expires_at bigint not null);
-- The last number of every event stream, and of the audit.
create table streams (stream text primary key, last_sequence bigint not null);
create table events (
    stream text not null, sequence bigint not null, at bigint not null, kind text not null, subject_kind text not null,
    subject_id text not null, correlation text not null, data text not null, primary key (stream, sequence)
);
create table audit (
    sequence bigint primary key, at bigint not null, actor text not null, actor_type text not null, action text not null,
    target text not null, project_id text not null, result text not null, correlation text not null, metadata text not null
);
create table idempotency (
    token_id text not null, key text not null, created_at bigint not null, doc text not null, primary key (token_id, key)
);
create table settings (name text primary key, value blob not null);
