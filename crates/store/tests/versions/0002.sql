-- A database of schema version 2 with rows in every table, as that version wrote them. `for` lines say for which database the lines below are;
-- ` blob ` and `x'…'` are written as PostgreSQL takes them when it is the one.
-- for both
create table schema_versions (version bigint primary key, checksum text not null);
-- for both
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
-- for sqlite
create trigger events_are_not_updated before update on events begin select raise(abort, 'events are append-only'); end;
create trigger events_are_not_deleted before delete on events begin select raise(abort, 'events are append-only'); end;
create trigger audit_is_not_updated before update on audit begin select raise(abort, 'the audit is append-only'); end;
create trigger audit_is_not_deleted before delete on audit begin select raise(abort, 'the audit is append-only'); end;
-- for sqlite
insert into schema_versions (version, checksum) values (1, '37188f36507d2aee');
-- for postgres
create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name;
end;
$$;
create trigger events_are_append_only before update or delete on events for each row execute function refuse_change();
create trigger events_are_not_truncated before truncate on events for each statement execute function refuse_change();
create trigger audit_is_append_only before update or delete on audit for each row execute function refuse_change();
create trigger audit_is_not_truncated before truncate on audit for each statement execute function refuse_change();
-- for postgres
insert into schema_versions (version, checksum) values (1, '4002e8bb798c74e8');
-- for both
-- The processes that are this control plane together; a row is taken out when its replica ends or is found dead.
create table replicas (id text primary key, doc text not null);
-- Which replica holds a node's channel. A connection is named, so that the end of an older one takes no newer one's row away.
create table sessions (
    node_id text primary key references nodes (id), connection text not null, replica_id text not null, doc text not null
);
create index sessions_replica on sessions (replica_id);
-- for sqlite
insert into schema_versions (version, checksum) values (2, 'c8e844c9d8d49cb9');
-- for postgres
insert into schema_versions (version, checksum) values (2, 'c8e844c9d8d49cb9');
-- for both
insert into projects (id, name, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120001', 'lab', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120001","name":"lab","created_at":1790000000000}');
insert into tokens (id, sha256, project_id, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120002', '2222222222222222222222222222222222222222222222222222222222222222', '0198c0de-7a3b-7c11-9b54-0242ac120001', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120002","name":"ada","sha256":"2222222222222222222222222222222222222222222222222222222222222222","role":"project-admin","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","created_at":1790000000000,"expires_at":1790086400000,"revoked_at":null}');
insert into tokens (id, sha256, project_id, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120003', '3333333333333333333333333333333333333333333333333333333333333333', '0198c0de-7a3b-7c11-9b54-0242ac120001', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120003","name":"ada","sha256":"3333333333333333333333333333333333333333333333333333333333333333","role":"project-admin","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","created_at":1790000000000,"expires_at":null,"revoked_at":1790000000005}');
insert into nodes (id, name, state, connectivity, generation, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120004', 'gpu-1', 'active', 'connected', 5, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120004","name":"gpu-1","region":"eu-1","labels":{"rack":"r''7"},"state":"active","epoch":2,"connectivity":"connected","connectivity_since":1790000000000,"agent_version":"0.1.0","machine_id":"0123456789abcdef0123456789abcdef","support":[{"task":"host.noop","schemas":[1]}],"facts":{"hostname":"gpu-1","machine_id":"0123456789abcdef0123456789abcdef","boot_id":"b","os":"Debian GNU/Linux 12","kernel":"6.1.0","arch":"x86_64","cpus":64,"memory_bytes":549755813888,"addresses":["10.0.0.7"],"disks":[],"sandbox":false},"preflight":null,"created_at":1790000000000,"generation":5}');
insert into nodes (id, name, state, connectivity, generation, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120014', 'gpu-2', 'registered', 'never', 5, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120014","name":"gpu-2","region":null,"labels":{"rack":"r''7"},"state":"registered","epoch":2,"connectivity":"never","connectivity_since":1790000000000,"agent_version":"0.1.0","machine_id":"0123456789abcdef0123456789abcdef","support":[{"task":"host.noop","schemas":[1]}],"facts":null,"preflight":null,"created_at":1790000000000,"generation":5}');
insert into enrollments (id, node_id, sha256, expires_at, used_at) values ('0198c0de-7a3b-7c11-9b54-0242ac120005', '0198c0de-7a3b-7c11-9b54-0242ac120004', 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', 1790000900000, null);
insert into enrollments (id, node_id, sha256, expires_at, used_at) values ('0198c0de-7a3b-7c11-9b54-0242ac120028', '0198c0de-7a3b-7c11-9b54-0242ac120014', 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', 1790000900000, 1790000000000);
insert into allocations (id, project_id, node_id, state, generation, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120006', '0198c0de-7a3b-7c11-9b54-0242ac120001', '0198c0de-7a3b-7c11-9b54-0242ac120004', 'active', 3, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120006","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","state":"active","detail":null,"created_at":1790000000000,"generation":3}');
insert into artifacts (id, app, version, name, sha256, imported_at, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120007', 'rke2', 'v1.36.3+rke2r1', 'rke2.linux-amd64.tar.gz', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1790000000000, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120007","app":"rke2","version":"v1.36.3+rke2r1","name":"rke2.linux-amd64.tar.gz","sha256":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size_bytes":9007199254740993,"source":"https://releases.example/","stand_in":true,"imported_at":1790000000000}');
insert into workloads (id, project_id, name, app, lifecycle, health, revision, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120008', '0198c0de-7a3b-7c11-9b54-0242ac120001', 'train', 'rke2', 'running', 'healthy', 9, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120008","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","name":"train","app":"rke2","version":"v1.36.3+rke2r1","intent":{"server":"0198c0de-7a3b-7c11-9b54-0242ac120006"},"config":{"label":"ä\"''\\ 𝄞"},"lifecycle":"running","phase":"running","progress":{"completed":1,"total":1},"health":"healthy","recovery":"none","fault":null,"endpoint":"https://10.0.0.7:6443","facts":{"cluster_id":"c-1"},"generation":1,"observed_generation":1,"revision":9,"created_at":1790000000000,"updated_at":1790000000000}');
insert into members (id, workload_id, position, allocation_id, node_id, state, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120009', '0198c0de-7a3b-7c11-9b54-0242ac120008', 0, '0198c0de-7a3b-7c11-9b54-0242ac120006', '0198c0de-7a3b-7c11-9b54-0242ac120004', 'ready', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120009","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","component_key":"server","ordinal":1,"allocation":"0198c0de-7a3b-7c11-9b54-0242ac120006","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","state":{"name":"ready","since":1790000000000},"health":"healthy","fault":null,"endpoint":null,"touched":true,"last_operation":"0198c0de-7a3b-7c11-9b54-0242ac12000a","created_at":1790000000000,"updated_at":1790000000000}');
insert into operations (id, workload_id, project_id, state, is_open, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac12000a', '0198c0de-7a3b-7c11-9b54-0242ac120008', '0198c0de-7a3b-7c11-9b54-0242ac120001', 'succeeded', 0, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000a","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","kind":"deploy","state":"succeeded","requested_by":"token/ada","correlation":"0198c0de-7a3b-7c11-9b54-0242ac120010","targets":["0198c0de-7a3b-7c11-9b54-0242ac120009"],"generation":1,"resumes":null,"cancel_requested":false,"fault":null,"created_at":1790000000000,"started_at":1790000000000,"ended_at":1790000060000}');
insert into steps (id, operation_id, position, state, attempts, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac12000b', '0198c0de-7a3b-7c11-9b54-0242ac12000a', 0, 'succeeded', 1, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000b","operation":"0198c0de-7a3b-7c11-9b54-0242ac12000a","position":0,"spec":{"key":"server-1/start","phase":"starting","member":"0198c0de-7a3b-7c11-9b54-0242ac120009","action":{"kind":"node_task","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","task":"host.noop"},"needs":[],"begins":null,"ends":null,"deadline_ms":60000,"retry":{"attempts_max":5,"base_ms":500,"cap_ms":15000},"scope":"workload"},"state":"succeeded","attempts":1,"not_before":null,"task":"0198c0de-7a3b-7c11-9b54-0242ac12000c","detail":null,"fault":null,"started_at":1790000000000,"deadline_at":1790000060000,"ended_at":1790000000000}');
insert into tasks (id, node_id, operation_id, workload_id, project_id, state, is_open, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac12000c', '0198c0de-7a3b-7c11-9b54-0242ac120004', '0198c0de-7a3b-7c11-9b54-0242ac12000a', '0198c0de-7a3b-7c11-9b54-0242ac120008', '0198c0de-7a3b-7c11-9b54-0242ac120001', 'running', 1, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000c","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","epoch":2,"project":"0198c0de-7a3b-7c11-9b54-0242ac120001","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","operation":"0198c0de-7a3b-7c11-9b54-0242ac12000a","step":"0198c0de-7a3b-7c11-9b54-0242ac12000b","attempt":1,"task_type":"host.noop","schema":1,"params":{},"state":"running","outcome":null,"key_id":"ed25519-0123456789abcdef","envelope_sha256":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","envelope":"{}","fence":4,"correlation":"0198c0de-7a3b-7c11-9b54-0242ac120010","created_at":1790000000000,"dispatched_at":1790000000000,"ended_at":null,"expires_at":1790000060000}');
insert into secrets (id, workload_id, name, sha256, sealed, created_at) values ('0198c0de-7a3b-7c11-9b54-0242ac12000d', '0198c0de-7a3b-7c11-9b54-0242ac120008', 'join-token', '9999999999999999999999999999999999999999999999999999999999999999', x'00ff0a22', 1790000000000);
insert into access_grants (id, workload_id, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac12000e', '0198c0de-7a3b-7c11-9b54-0242ac120008', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000e","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","kind":"direct","role":"view","requested_by":"token/ada","reason":null,"service_account":"gpuaas-access-1","created_at":1790000000000,"expires_at":1790003600000,"revoked_at":null}');
insert into leases (name, holder, fence, expires_at) values ('operation/0198c0de-7a3b-7c11-9b54-0242ac12000a', '0198c0de-7a3b-7c11-9b54-0242ac120011', 4, 1790000015000);
insert into streams (stream, last_sequence) values ('platform', 1);
insert into streams (stream, last_sequence) values ('audit', 1);
insert into events (stream, sequence, at, kind, subject_kind, subject_id, correlation, data) values ('platform', 1, 1790000000000, 'node.registered', 'node', '0198c0de-7a3b-7c11-9b54-0242ac120004', '0198c0de-7a3b-7c11-9b54-0242ac120010', '{"name":"gpu-1"}');
insert into audit (sequence, at, actor, actor_type, action, target, project_id, result, correlation, metadata) values (1, 1790000000000, 'token/ada', 'principal', 'node.register', 'node/gpu-1', '', 'accepted', '0198c0de-7a3b-7c11-9b54-0242ac120010', '{"note": "it''s fine"}');
insert into idempotency (token_id, key, created_at, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120002', 'again', 1790000000000, '{"token":"0198c0de-7a3b-7c11-9b54-0242ac120002","key":"again","request_sha256":"1111111111111111111111111111111111111111111111111111111111111111","status":201,"body":"00ff","created_at":1790000000000}');
insert into settings (name, value) values ('control-plane.id', x'63702d31');
insert into settings (name, value) values ('token.note', x'63702d31');
insert into replicas (id, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120011', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120011","address":null,"channel":"cp-1:7444","api_url":"https://cp-1:7443","version":"0.1.0","started_at":1790000000000}');
insert into sessions (node_id, connection, replica_id, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120004', '0198c0de-7a3b-7c11-9b54-0242ac120012', '0198c0de-7a3b-7c11-9b54-0242ac120011', '{"node":"0198c0de-7a3b-7c11-9b54-0242ac120004","connection":"0198c0de-7a3b-7c11-9b54-0242ac120012","instance":"run-1","replica":"0198c0de-7a3b-7c11-9b54-0242ac120011","address":null,"since":1790000000000}');
