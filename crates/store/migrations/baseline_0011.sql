-- The schema of version 11, all at once: what a new database begins with instead of migrations 1 to 11. `tests/contract/versions.rs` holds the two
-- ways to the same schema. Columns are what rules and filters need; `doc` is the record as JSON. Times are milliseconds since the epoch, ids are text.
create table projects (id text primary key, name text not null unique, doc text not null);
create table tokens (
    id text primary key, sha256 text not null unique, project_id text not null, doc text not null,
    service_account_id text not null default '', ends_at bigint not null default 0, code text not null default ''
);
create index tokens_service_account on tokens (service_account_id);
create index tokens_end on tokens (ends_at) where ends_at > 0;
create index tokens_project on tokens (project_id, id);
create table service_accounts (
    id text primary key, project_id text not null references projects (id), name text not null, deleted_at bigint not null,
    doc text not null, code text not null default ''
);
create unique index service_accounts_name on service_accounts (project_id, name) where deleted_at = 0;
create table nodes (
    id text primary key, name text not null unique, state text not null, connectivity text not null,
    generation bigint not null, doc text not null
);
create table node_keys (
    sha256 text primary key, node_id text not null references nodes (id), epoch bigint not null, created_at bigint not null
);
create index node_keys_node on node_keys (node_id);
create table enrollments (
    id text primary key, node_id text not null references nodes (id), sha256 text not null unique, doc text not null,
    code text not null, ends_at bigint not null default 0
);
create index enrollments_node on enrollments (node_id);
create index enrollments_end on enrollments (ends_at);
create table sessions (
    node_id text primary key references nodes (id), connection text not null, replica_id text not null, doc text not null,
    since bigint not null default 0
);
create index sessions_replica on sessions (replica_id);
create table replicas (id text primary key, doc text not null);
create table allocations (
    id text primary key, project_id text not null references projects (id), node_id text not null references nodes (id),
    state text not null, generation bigint not null, doc text not null
);
create unique index allocations_open on allocations (node_id) where state not in ('released', 'failed');
create index allocations_project on allocations (project_id, id);
create index allocations_node on allocations (node_id, id);
create index allocations_state on allocations (state, id);
create table artifacts (
    id text primary key, app text not null, version text not null, name text not null, sha256 text not null,
    imported_at bigint not null, doc text not null, unique (app, version, name)
);
create index artifacts_sha256 on artifacts (sha256);
create table workloads (
    id text primary key, project_id text not null references projects (id), name text not null, app text not null,
    lifecycle text not null, health text not null, revision bigint not null, doc text not null
);
create unique index workloads_name on workloads (project_id, name) where lifecycle <> 'decommissioned';
create index workloads_called on workloads (project_id, name, id);
create table members (
    id text primary key, workload_id text not null references workloads (id), position bigint not null,
    allocation_id text not null references allocations (id), node_id text not null references nodes (id),
    state text not null, doc text not null
);
create unique index members_allocation on members (allocation_id) where state <> 'removed';
create index members_workload on members (workload_id);
create index members_node on members (node_id);
create table operations (
    id text primary key, workload_id text not null references workloads (id), project_id text not null,
    state text not null, is_open bigint not null, doc text not null, ended_at bigint not null default 0,
    archive_id text not null default ''
);
create unique index operations_open on operations (workload_id) where is_open = 1;
create index operations_unended on operations (id) where is_open = 1;
create index operations_workload on operations (workload_id, id);
create index operations_project on operations (project_id, id);
create index operations_state on operations (state, id);
create index operations_ended on operations (ended_at) where ended_at > 0 and archive_id = '';
create index operations_archived on operations (archive_id) where archive_id <> '';
create table steps (
    id text primary key, operation_id text not null references operations (id), position bigint not null,
    state text not null, attempts bigint not null, doc text not null, unique (operation_id, position)
);
create table tasks (
    id text primary key, node_id text not null references nodes (id), operation_id text not null, workload_id text not null,
    project_id text not null, state text not null, is_open bigint not null, doc text not null,
    key_id text not null default '', archive_id text not null default ''
);
create index tasks_open on tasks (is_open) where is_open = 1;
create index tasks_key on tasks (key_id) where is_open = 1;
create index tasks_node on tasks (node_id, id);
create index tasks_operation on tasks (operation_id, id);
create index tasks_project on tasks (project_id, id) where project_id <> '';
create index tasks_archived on tasks (archive_id) where archive_id <> '';
create index tasks_alone on tasks (id) where operation_id = '' and archive_id = '';
create table secrets (
    id text primary key, workload_id text not null, name text not null, sha256 text not null, sealed blob not null,
    created_at bigint not null, unique (workload_id, name)
);
create table access_grants (
    id text primary key, workload_id text not null references workloads (id), doc text not null,
    ends_at bigint not null default 0
);
create index access_grants_end on access_grants (ends_at);
create index access_grants_workload on access_grants (workload_id, id);
create table signing_keys (
    key_id text primary key, state text not null, version bigint not null, seed blob not null, doc text not null,
    code text not null default ''
);
create unique index signing_keys_staged on signing_keys (state) where state = 'staged';
create unique index signing_keys_active on signing_keys (state) where state = 'active';
create table authorities (
    id text primary key, state text not null, version bigint not null, sealed_key blob not null, doc text not null, code text not null
);
create unique index authorities_staged on authorities (state) where state = 'staged';
create unique index authorities_active on authorities (state) where state = 'active';
create table leases (name text primary key, holder text not null, fence bigint not null, expires_at bigint not null);
create table streams (stream text primary key, last_sequence bigint not null);
create table events (
    stream text not null, sequence bigint not null, at bigint not null, kind text not null, subject_kind text not null,
    subject_id text not null, correlation text not null, data text not null, primary key (stream, sequence)
);
create table audit (
    sequence bigint primary key, at bigint not null, actor text not null, actor_type text not null, action text not null,
    target text not null, project_id text not null, result text not null, correlation text not null, metadata text not null
);
create index audit_project on audit (project_id, sequence) where project_id <> '';
create index audit_target on audit (target, sequence);
create table archives (id text primary key, kind text not null, sha256 text not null, doc text not null);
create table archive_ranges (
    stream text not null, first_sequence bigint not null, last_sequence bigint not null,
    archive_id text not null references archives (id), is_deleted bigint not null default 0, primary key (stream, first_sequence)
);
create index archive_ranges_archive on archive_ranges (archive_id);
create index archive_ranges_to_delete on archive_ranges (stream, first_sequence) where is_deleted = 0;
create table idempotency (
    token_id text not null, key text not null, created_at bigint not null, doc text not null, primary key (token_id, key)
);
create index idempotency_age on idempotency (created_at);
create table settings (name text primary key, value blob not null);
