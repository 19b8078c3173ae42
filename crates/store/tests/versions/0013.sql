-- A database of schema version 13 with rows in every table, as that version wrote them. `for` lines say for which database the lines below are;
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
-- Keys that sign tasks. The set that agents hold has the highest version of any row. A key that is done keeps its row, its seed empty.
create table signing_keys (
    key_id text primary key, state text not null, version bigint not null, seed blob not null, doc text not null
);
create index tasks_open on tasks (is_open) where is_open = 1;
create unique index signing_keys_staged on signing_keys (state) where state = 'staged';
create unique index signing_keys_active on signing_keys (state) where state = 'active';
-- Programs that act for a project, each with tokens of its own. A deleted one frees its name; `deleted_at` is 0 until then.
create table service_accounts (
    id text primary key, project_id text not null references projects (id), name text not null, deleted_at bigint not null,
    doc text not null
);
create unique index service_accounts_name on service_accounts (project_id, name) where deleted_at = 0;
alter table tokens add column service_account_id text not null default '';
create index tokens_service_account on tokens (service_account_id);
-- When a connection began: one that is recorded late takes no newer one's place.
alter table sessions add column since bigint not null default 0;
-- for sqlite
insert into schema_versions (version, checksum) values (3, '7e7cb18a57393aa0');
-- for postgres
insert into schema_versions (version, checksum) values (3, '7e7cb18a57393aa0');
-- for both
-- The key that signed a task, so that the open ones of a key are counted without reading them.
alter table tasks add column key_id text not null default '';
create index tasks_key on tasks (key_id) where is_open = 1;
-- When a token is or was good no more, so that it is counted and one day removed; 0 for never.
alter table tokens add column ends_at bigint not null default 0;
create index tokens_end on tokens (ends_at) where ends_at > 0;
create index tokens_project on tokens (project_id);
-- for sqlite
update tasks set key_id = coalesce(json_extract(doc, '$.key_id'), '');
update tokens set ends_at = coalesce(json_extract(doc, '$.revoked_at'), json_extract(doc, '$.expires_at'), 0);
-- for sqlite
insert into schema_versions (version, checksum) values (4, 'dd12c47f7670659a');
-- for postgres
update tasks set key_id = coalesce(doc::json ->> 'key_id', '');
update tokens set ends_at = coalesce((doc::json ->> 'revoked_at')::bigint, (doc::json ->> 'expires_at')::bigint, 0);
-- for postgres
insert into schema_versions (version, checksum) values (4, '111d46e64a56aeb6');
-- for both
-- Keys that node certificates were issued for, by the digest of the public key: none is certified twice.
create table node_keys (
    sha256 text primary key, node_id text not null references nodes (id), epoch bigint not null, created_at bigint not null
);
create index node_keys_node on node_keys (node_id);
-- Enrollment tokens, each with the code that tells it from a row that somebody else wrote. Those of before have none, and would not be believed.
drop table enrollments;
create table enrollments (
    id text primary key, node_id text not null references nodes (id), sha256 text not null unique, doc text not null, code text not null
);
create index enrollments_node on enrollments (node_id);
-- The same of API tokens and of keys that sign tasks. Empty until a row is written again, which is as good as a wrong one.
alter table tokens add column code text not null default '';
alter table signing_keys add column code text not null default '';
-- for sqlite
insert into schema_versions (version, checksum) values (5, '890ad573ffdb7de3');
-- for postgres
insert into schema_versions (version, checksum) values (5, '890ad573ffdb7de3');
-- for both
-- A control plane that ran before this version has had its first administrator: a start makes no token for another.
insert into settings (name, value) select 'bootstrap.done', value from settings where name = 'control-plane.id';
-- for sqlite
insert into schema_versions (version, checksum) values (6, 'be6f4ae312f85a4e');
-- for postgres
insert into schema_versions (version, checksum) values (6, 'be6f4ae312f85a4e');
-- for both
-- Certificate authorities. The key of one that is done is erased; its row stays. The first comes from the settings at the next start.
create table authorities (
    id text primary key, state text not null, version bigint not null, sealed_key blob not null, doc text not null, code text not null
);
create unique index authorities_staged on authorities (state) where state = 'staged';
create unique index authorities_active on authorities (state) where state = 'active';
-- for sqlite
insert into schema_versions (version, checksum) values (7, 'f5d2426f64a48fea');
-- for postgres
insert into schema_versions (version, checksum) values (7, 'f5d2426f64a48fea');
-- for both
-- Service accounts carry a code, like tokens. Earlier ones have none: remove them, which frees their names, and their tokens.
delete from tokens where service_account_id <> '';
delete from service_accounts;
alter table service_accounts add column code text not null default '';
-- for sqlite
insert into schema_versions (version, checksum) values (8, 'd4d905fe260eafe9');
-- for postgres
insert into schema_versions (version, checksum) values (8, 'd4d905fe260eafe9');
-- for both
create index operations_workload on operations (workload_id, id);
create index workloads_called on workloads (project_id, name, id);
create index idempotency_age on idempotency (created_at);
-- for sqlite
-- `insert or replace` removes the row that is in its way without asking the triggers for deletions.
create trigger events_are_not_replaced before insert on events
    when exists (select 1 from events where stream = new.stream and sequence = new.sequence)
    begin select raise(abort, 'events are append-only'); end;
create trigger audit_is_not_replaced before insert on audit
    when exists (select 1 from audit where sequence = new.sequence)
    begin select raise(abort, 'the audit is append-only'); end;
-- for sqlite
insert into schema_versions (version, checksum) values (9, '0b22645afe5a2f48');
-- for postgres
insert into schema_versions (version, checksum) values (9, 'cc1c92d8c475527b');
-- for both
-- History that was written to the artifact store before it leaves this database. A row is added once the file is durable.
create table archives (id text primary key, kind text not null, sha256 text not null, doc text not null);
-- Which events, and which audit records (stream `audit`), an archive holds. Only these can be deleted; `is_deleted` says that they are.
create table archive_ranges (
    stream text not null, first_sequence bigint not null, last_sequence bigint not null,
    archive_id text not null references archives (id), is_deleted bigint not null default 0, primary key (stream, first_sequence)
);
create index archive_ranges_archive on archive_ranges (archive_id);
create index archive_ranges_to_delete on archive_ranges (stream, first_sequence) where is_deleted = 0;
-- When an operation ended, 0 until then; and the archive that holds it, empty until then.
alter table operations add column ended_at bigint not null default 0;
alter table operations add column archive_id text not null default '';
create index operations_ended on operations (ended_at) where ended_at > 0 and archive_id = '';
create index operations_archived on operations (archive_id) where archive_id <> '';
alter table tasks add column archive_id text not null default '';
create index tasks_archived on tasks (archive_id) where archive_id <> '';
-- Tasks that serve no operation.
create index tasks_alone on tasks (id) where operation_id = '' and archive_id = '';
-- When an enrollment or a grant was or is good no more.
alter table enrollments add column ends_at bigint not null default 0;
create index enrollments_end on enrollments (ends_at);
alter table access_grants add column ends_at bigint not null default 0;
create index access_grants_end on access_grants (ends_at);
create index access_grants_workload on access_grants (workload_id, id);
-- for sqlite
update operations set ended_at = coalesce(json_extract(doc, '$.ended_at'), 0) where is_open = 0;
update enrollments set ends_at = coalesce(json_extract(doc, '$.used_at'), json_extract(doc, '$.expires_at'), 0);
update access_grants set ends_at = coalesce(json_extract(doc, '$.revoked_at'), json_extract(doc, '$.expires_at'), 0);
drop trigger events_are_not_deleted;
create trigger events_are_not_deleted before delete on events
    when coalesce((select last_sequence from archive_ranges where stream = old.stream and first_sequence <= old.sequence
        order by first_sequence desc limit 1), 0) < old.sequence
    begin select raise(abort, 'events are append-only: no archive holds this one'); end;
drop trigger audit_is_not_deleted;
create trigger audit_is_not_deleted before delete on audit
    when coalesce((select last_sequence from archive_ranges where stream = 'audit' and first_sequence <= old.sequence
        order by first_sequence desc limit 1), 0) < old.sequence
    begin select raise(abort, 'the audit is append-only: no archive holds this record'); end;
create trigger archives_are_not_updated before update on archives begin select raise(abort, 'archives are append-only'); end;
create trigger archives_are_not_deleted before delete on archives begin select raise(abort, 'archives are append-only'); end;
create trigger archives_are_not_replaced before insert on archives
    when exists (select 1 from archives where id = new.id) begin select raise(abort, 'archives are append-only'); end;
create trigger archive_ranges_are_not_updated before update of stream, first_sequence, last_sequence, archive_id on archive_ranges
    begin select raise(abort, 'archives are append-only'); end;
create trigger archive_ranges_are_not_deleted before delete on archive_ranges
    begin select raise(abort, 'archives are append-only'); end;
create trigger archive_ranges_are_not_replaced before insert on archive_ranges
    when exists (select 1 from archive_ranges where stream = new.stream and first_sequence = new.first_sequence)
    begin select raise(abort, 'archives are append-only'); end;
-- for postgres
update operations set ended_at = coalesce((doc::json ->> 'ended_at')::bigint, 0) where is_open = 0;
update enrollments set ends_at = coalesce((doc::json ->> 'used_at')::bigint, (doc::json ->> 'expires_at')::bigint, 0);
update access_grants set ends_at = coalesce((doc::json ->> 'revoked_at')::bigint, (doc::json ->> 'expires_at')::bigint, 0);
create function archived_until(of_stream text, of_sequence bigint) returns bigint language sql stable as $$
    select coalesce((select last_sequence from archive_ranges where stream = of_stream and first_sequence <= of_sequence
        order by first_sequence desc limit 1), 0);
$$;
create function refuse_unarchived_event() returns trigger language plpgsql as $$
begin
    if archived_until(old.stream, old.sequence) < old.sequence then
        raise exception 'events are append-only: no archive holds this one';
    end if;
    return old;
end;
$$;
create function refuse_unarchived_audit() returns trigger language plpgsql as $$
begin
    if archived_until('audit', old.sequence) < old.sequence then
        raise exception 'the audit is append-only: no archive holds this record';
    end if;
    return old;
end;
$$;
drop trigger events_are_append_only on events;
create trigger events_are_append_only before update on events for each row execute function refuse_change();
create trigger events_are_not_deleted before delete on events for each row execute function refuse_unarchived_event();
drop trigger audit_is_append_only on audit;
create trigger audit_is_append_only before update on audit for each row execute function refuse_change();
create trigger audit_is_not_deleted before delete on audit for each row execute function refuse_unarchived_audit();
create trigger archives_are_append_only before update or delete on archives for each row execute function refuse_change();
create trigger archives_are_not_truncated before truncate on archives for each statement execute function refuse_change();
create trigger archive_ranges_are_append_only before delete or update of stream, first_sequence, last_sequence, archive_id
    on archive_ranges for each row execute function refuse_change();
create trigger archive_ranges_are_not_truncated before truncate on archive_ranges
    for each statement execute function refuse_change();
-- for both
-- Pages of a project, a node, an operation or a state are found without reading the rows of others. What belongs to no project
-- is in no index of projects.
drop index operations_project;
create index operations_project on operations (project_id, id);
create index operations_state on operations (state, id);
drop index tasks_node;
create index tasks_node on tasks (node_id, id);
drop index tasks_operation;
create index tasks_operation on tasks (operation_id, id);
create index tasks_project on tasks (project_id, id) where project_id <> '';
create index allocations_project on allocations (project_id, id);
create index allocations_node on allocations (node_id, id);
create index allocations_state on allocations (state, id);
drop index tokens_project;
create index tokens_project on tokens (project_id, id);
create index audit_project on audit (project_id, sequence) where project_id <> '';
create index audit_target on audit (target, sequence);
create index operations_unended on operations (id) where is_open = 1;
-- Audit records of one actor, action, correlation, workload or time are found without reading the others. A deleted node or project keeps
-- its row, because history refers to it; its column `name` then holds no name, so that the name can be used again.
alter table nodes add column deleted_at bigint not null default 0;
alter table projects add column deleted_at bigint not null default 0;
alter table audit add column workload_id text not null default '';
create index audit_workload on audit (workload_id, sequence) where workload_id <> '';
create index audit_actor on audit (actor, sequence);
create index audit_action on audit (action, sequence);
create index audit_correlation on audit (correlation, sequence) where correlation <> '';
create index audit_at on audit (at, sequence);
-- for sqlite
insert into schema_versions (version, checksum) values (12, '6b29904778a91d86');
-- for postgres
insert into schema_versions (version, checksum) values (12, '50f3773ec93b270d');
-- for sqlite
insert into schema_versions (version, checksum) values (10, '0b28b6e75129aa0a');
-- for postgres
insert into schema_versions (version, checksum) values (10, 'd73387b066a6bcaf');
-- for both
insert into schema_versions (version, checksum) values (11, '3491b658516dc3a8');
-- for both
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
-- for sqlite
insert into left_machines (machine_id, node_id, left_at)
    select json_extract(doc, '$.left_by_tenant.machine_id'), id, json_extract(doc, '$.left_by_tenant.at') from nodes
    where json_extract(doc, '$.left_by_tenant.machine_id') is not null;
-- The address of a workload is served by the member that had reported it.
update workloads set doc = json_remove(json_set(doc, '$.endpoints', json_array(json_object(
        'purpose', 'api', 'address', json_extract(doc, '$.endpoint'), 'member', (
            select members.id from members where members.workload_id = workloads.id
                and json_extract(members.doc, '$.endpoint') is not null order by members.position limit 1)))), '$.endpoint')
    where json_extract(doc, '$.endpoint') is not null;
update workloads set doc = json_remove(json_set(doc, '$.endpoints', json_array()), '$.endpoint')
    where json_type(doc, '$.endpoints') is null;
insert into schema_versions (version, checksum) values (13, 'c5f20f1dc944b9d7');
-- for postgres
insert into left_machines (machine_id, node_id, left_at)
    select doc::json -> 'left_by_tenant' ->> 'machine_id', id, (doc::json -> 'left_by_tenant' ->> 'at')::bigint from nodes
    where doc::json -> 'left_by_tenant' ->> 'machine_id' is not null;
-- The address of a workload is served by the member that had reported it.
update workloads set doc = (doc::jsonb - 'endpoint' || jsonb_build_object('endpoints', jsonb_build_array(jsonb_build_object(
        'purpose', 'api', 'address', doc::jsonb ->> 'endpoint', 'member', (
            select members.id from members where members.workload_id = workloads.id
                and members.doc::json ->> 'endpoint' is not null order by members.position limit 1)))))::text
    where doc::json ->> 'endpoint' is not null;
update workloads set doc = (doc::jsonb - 'endpoint' || jsonb_build_object('endpoints', jsonb_build_array()))::text
    where doc::json -> 'endpoints' is null;
insert into schema_versions (version, checksum) values (13, '84855f3b72d4772c');
-- for both
insert into projects (id, name, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120001', 'lab', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120001","name":"lab","created_at":1790000000000}');
insert into tokens (id, sha256, project_id, doc, service_account_id, ends_at, code) values ('0198c0de-7a3b-7c11-9b54-0242ac120002', '2222222222222222222222222222222222222222222222222222222222222222', '0198c0de-7a3b-7c11-9b54-0242ac120001', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120002","name":"ada","sha256":"2222222222222222222222222222222222222222222222222222222222222222","role":"project-admin","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","service_account":null,"created_at":1790000000000,"expires_at":1790086400000,"revoked_at":null,"is_bootstrap":false}', '', 1790086400000, '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a');
insert into tokens (id, sha256, project_id, doc, service_account_id, ends_at, code) values ('0198c0de-7a3b-7c11-9b54-0242ac120003', '3333333333333333333333333333333333333333333333333333333333333333', '0198c0de-7a3b-7c11-9b54-0242ac120001', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120003","name":"ada","sha256":"3333333333333333333333333333333333333333333333333333333333333333","role":"project-admin","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","service_account":null,"created_at":1790000000000,"expires_at":null,"revoked_at":1790000000005,"is_bootstrap":false}', '', 1790000000005, '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a');
insert into service_accounts (id, project_id, name, deleted_at, doc, code) values ('0198c0de-7a3b-7c11-9b54-0242ac12000f', '0198c0de-7a3b-7c11-9b54-0242ac120001', 'ci', 0, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000f","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","name":"ci","role":"viewer","created_at":1790000000000,"deleted_at":null}', '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a');
insert into tokens (id, sha256, project_id, doc, service_account_id, ends_at, code) values ('0198c0de-7a3b-7c11-9b54-0242ac120013', '4444444444444444444444444444444444444444444444444444444444444444', '0198c0de-7a3b-7c11-9b54-0242ac120001', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120013","name":"ada","sha256":"4444444444444444444444444444444444444444444444444444444444444444","role":"project-admin","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","service_account":"0198c0de-7a3b-7c11-9b54-0242ac12000f","created_at":1790000000000,"expires_at":1790003600000,"revoked_at":null,"is_bootstrap":false}', '0198c0de-7a3b-7c11-9b54-0242ac12000f', 1790003600000, '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a');
insert into nodes (id, name, state, connectivity, generation, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120004', 'gpu-1', 'active', 'connected', 5, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120004","name":"gpu-1","region":"eu-1","labels":{"rack":"r''7"},"state":"active","epoch":2,"connectivity":"connected","connectivity_since":1790000000000,"clock_skew_seconds":-3,"agent_version":"0.1.0","machine_id":"0123456789abcdef0123456789abcdef","support":[{"task":"host.noop","schemas":[1]}],"left_by_tenant":{"at":1790000000000,"machine_id":null},"machine_changed":null,"facts":{"hostname":"gpu-1","machine_id":"0123456789abcdef0123456789abcdef","boot_id":"b","os":"Debian GNU/Linux 12","kernel":"6.1.0","arch":"x86_64","cpus":64,"memory_bytes":549755813888,"addresses":["10.0.0.7"],"disks":[],"sandbox":false},"machine":null,"preflight":null,"inspected_at":1790000000000,"certified_by":"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","created_at":1790000000000,"generation":5}');
insert into nodes (id, name, state, connectivity, generation, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120014', 'gpu-2', 'registered', 'never', 5, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120014","name":"gpu-2","region":null,"labels":{"rack":"r''7"},"state":"registered","epoch":2,"connectivity":"never","connectivity_since":1790000000000,"clock_skew_seconds":-3,"agent_version":"0.1.0","machine_id":"0123456789abcdef0123456789abcdef","support":[{"task":"host.noop","schemas":[1]}],"left_by_tenant":{"at":1790000000000,"machine_id":null},"machine_changed":null,"facts":null,"machine":null,"preflight":null,"inspected_at":1790000000000,"certified_by":"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","created_at":1790000000000,"generation":5}');
insert into enrollments (id, node_id, sha256, doc, code, ends_at) values ('0198c0de-7a3b-7c11-9b54-0242ac120005', '0198c0de-7a3b-7c11-9b54-0242ac120004', 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120005","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","sha256":"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee","created_at":1790000000000,"expires_at":1790000900000,"used_at":null,"is_forced":false,"reimage_sha256":null,"pinned":"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"}', '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a', 1790000900000);
insert into allocations (id, project_id, node_id, state, generation, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120006', '0198c0de-7a3b-7c11-9b54-0242ac120001', '0198c0de-7a3b-7c11-9b54-0242ac120004', 'active', 3, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120006","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","state":"active","detail":null,"created_at":1790000000000,"generation":3}');
insert into artifacts (id, app, version, name, sha256, imported_at, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120007', 'rke2', 'v1.36.3+rke2r1', 'rke2.linux-amd64.tar.gz', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1790000000000, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120007","app":"rke2","version":"v1.36.3+rke2r1","name":"rke2.linux-amd64.tar.gz","sha256":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size_bytes":9007199254740993,"source":"https://releases.example/","stand_in":true,"verified_by":{"sums_sha256":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"},"imported_at":1790000000000}');
insert into workloads (id, project_id, name, app, lifecycle, health, revision, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120008', '0198c0de-7a3b-7c11-9b54-0242ac120001', 'train', 'rke2', 'running', 'healthy', 9, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120008","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","name":"train","app":"rke2","version":"v1.36.3+rke2r1","intent":{"server":"0198c0de-7a3b-7c11-9b54-0242ac120006"},"config":{"label":"ä\"''\\ 𝄞"},"lifecycle":"running","phase":"running","progress":{"completed":1,"total":1},"health":"healthy","recovery":"none","fault":null,"endpoints":[{"purpose":"api","address":"https://10.0.0.7:6443","member":"0198c0de-7a3b-7c11-9b54-0242ac120009"}],"facts":{"cluster_id":"c-1"},"generation":1,"observed_generation":1,"revision":9,"created_at":1790000000000,"updated_at":1790000000000}');
insert into members (id, workload_id, position, allocation_id, node_id, state, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120009', '0198c0de-7a3b-7c11-9b54-0242ac120008', 0, '0198c0de-7a3b-7c11-9b54-0242ac120006', '0198c0de-7a3b-7c11-9b54-0242ac120004', 'ready', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120009","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","component_key":"server","ordinal":1,"allocation":"0198c0de-7a3b-7c11-9b54-0242ac120006","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","state":{"name":"ready","since":1790000000000},"health":"healthy","fault":null,"touched":true,"last_operation":"0198c0de-7a3b-7c11-9b54-0242ac12000a","created_at":1790000000000,"updated_at":1790000000000}');
insert into members (id, workload_id, position, allocation_id, node_id, state, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120019', '0198c0de-7a3b-7c11-9b54-0242ac120008', 1, null, null, 'ready', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120019","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","component_key":"server","ordinal":2,"machine":"edge-1","address":"192.0.2.7","state":{"name":"ready","since":1790000000000},"health":"healthy","fault":null,"touched":true,"last_operation":"0198c0de-7a3b-7c11-9b54-0242ac12000a","created_at":1790000000000,"updated_at":1790000000000}');
insert into operations (id, workload_id, project_id, state, is_open, doc, ended_at, archive_id) values ('0198c0de-7a3b-7c11-9b54-0242ac12000a', '0198c0de-7a3b-7c11-9b54-0242ac120008', '0198c0de-7a3b-7c11-9b54-0242ac120001', 'succeeded', 0, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000a","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","project":"0198c0de-7a3b-7c11-9b54-0242ac120001","kind":"deploy","parameters":{"version":"v1"},"state":"succeeded","requested_by":"token/ada","correlation":"0198c0de-7a3b-7c11-9b54-0242ac120010","targets":["0198c0de-7a3b-7c11-9b54-0242ac120009"],"generation":1,"resumes":null,"cancel_requested":false,"fault":null,"created_at":1790000000000,"started_at":1790000000000,"ended_at":1790000060000}', 1790000060000, '');
insert into steps (id, operation_id, position, state, attempts, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac12000b', '0198c0de-7a3b-7c11-9b54-0242ac12000a', 0, 'succeeded', 1, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000b","operation":"0198c0de-7a3b-7c11-9b54-0242ac12000a","position":0,"spec":{"key":"server-1/start","phase":"starting","member":"0198c0de-7a3b-7c11-9b54-0242ac120009","action":{"kind":"node_task","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","task":"host.noop"},"needs":[],"begins":null,"ends":null,"deadline_ms":60000,"retry":{"attempts_max":5,"base_ms":500,"cap_ms":15000},"scope":{"component":{"component":"server","may_fail":1}}},"state":"succeeded","attempts":1,"not_before":null,"task":"0198c0de-7a3b-7c11-9b54-0242ac12000c","detail":null,"fault":null,"started_at":1790000000000,"deadline_at":1790000060000,"ended_at":1790000000000}');
insert into tasks (id, node_id, operation_id, workload_id, project_id, state, is_open, doc, key_id, archive_id) values ('0198c0de-7a3b-7c11-9b54-0242ac12000c', '0198c0de-7a3b-7c11-9b54-0242ac120004', '0198c0de-7a3b-7c11-9b54-0242ac12000a', '0198c0de-7a3b-7c11-9b54-0242ac120008', '0198c0de-7a3b-7c11-9b54-0242ac120001', 'running', 1, '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000c","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","epoch":2,"project":"0198c0de-7a3b-7c11-9b54-0242ac120001","allocation":"0198c0de-7a3b-7c11-9b54-0242ac120006","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","operation":"0198c0de-7a3b-7c11-9b54-0242ac12000a","step":"0198c0de-7a3b-7c11-9b54-0242ac12000b","attempt":1,"task_type":"host.noop","schema":1,"params":{},"state":"running","outcome":null,"key_id":"ed25519-0123456789abcdef","envelope_sha256":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","envelope":"{}","fence":4,"correlation":"0198c0de-7a3b-7c11-9b54-0242ac120010","created_at":1790000000000,"dispatched_at":1790000000000,"ended_at":null,"expires_at":1790000060000}', 'ed25519-0123456789abcdef', '');
insert into secrets (id, workload_id, name, sha256, sealed, created_at) values ('0198c0de-7a3b-7c11-9b54-0242ac12000d', '0198c0de-7a3b-7c11-9b54-0242ac120008', 'join-token', '9999999999999999999999999999999999999999999999999999999999999999', x'00ff0a22', 1790000000000);
insert into access_grants (id, workload_id, doc, ends_at) values ('0198c0de-7a3b-7c11-9b54-0242ac12000e', '0198c0de-7a3b-7c11-9b54-0242ac120008', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac12000e","workload":"0198c0de-7a3b-7c11-9b54-0242ac120008","kind":"direct","role":"view","requested_by":"token/ada","reason":null,"service_account":"gpuaas-access-1","created_at":1790000000000,"expires_at":1790003600000,"revoked_at":null}', 1790003600000);
insert into leases (name, holder, fence, expires_at) values ('operation/0198c0de-7a3b-7c11-9b54-0242ac12000a', '0198c0de-7a3b-7c11-9b54-0242ac120011', 4, 1790000015000);
insert into streams (stream, last_sequence) values ('platform', 1);
insert into streams (stream, last_sequence) values ('audit', 1);
insert into events (stream, sequence, at, kind, subject_kind, subject_id, correlation, data) values ('platform', 1, 1790000000000, 'node.registered', 'node', '0198c0de-7a3b-7c11-9b54-0242ac120004', '0198c0de-7a3b-7c11-9b54-0242ac120010', '{"name":"gpu-1"}');
insert into audit (sequence, at, actor, actor_type, action, target, project_id, result, correlation, metadata) values (1, 1790000000000, 'token/ada', 'principal', 'node.register', 'node/gpu-1', '', 'accepted', '0198c0de-7a3b-7c11-9b54-0242ac120010', '{"note": "it''s fine", "by": {"token": "0198c0de-7a3b-7c11-9b54-0242ac120002"}}');
insert into archives (id, kind, sha256, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120015', 'events', '7777777777777777777777777777777777777777777777777777777777777777', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120015","kind":"events","from":1780000000000,"until":1780000000000,"entries":1,"ranges":[{"stream":"project/0198c0de-7a3b-7c11-9b54-0242ac120001","first":1,"last":1}],"sha256":"7777777777777777777777777777777777777777777777777777777777777777","size_bytes":120,"created_at":1790000000000}');
insert into archive_ranges (stream, first_sequence, last_sequence, archive_id, is_deleted) values ('project/0198c0de-7a3b-7c11-9b54-0242ac120001', 1, 1, '0198c0de-7a3b-7c11-9b54-0242ac120015', 1);
insert into idempotency (token_id, key, created_at, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120002', 'again', 1790000000000, '{"token":"0198c0de-7a3b-7c11-9b54-0242ac120002","key":"again","request_sha256":"1111111111111111111111111111111111111111111111111111111111111111","status":201,"body":"00ff","created_at":1790000000000}');
insert into settings (name, value) values ('control-plane.id', x'63702d31');
insert into settings (name, value) values ('bootstrap.done', x'63702d31');
insert into replicas (id, doc) values ('0198c0de-7a3b-7c11-9b54-0242ac120011', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120011","address":null,"channel":"cp-1:7444","api_url":"https://cp-1:7443","version":"0.1.0","started_at":1790000000000,"sealing_keys":["k-1"],"is_key_file_old":false}');
insert into sessions (node_id, connection, replica_id, doc, since) values ('0198c0de-7a3b-7c11-9b54-0242ac120004', '0198c0de-7a3b-7c11-9b54-0242ac120012', '0198c0de-7a3b-7c11-9b54-0242ac120011', '{"node":"0198c0de-7a3b-7c11-9b54-0242ac120004","connection":"0198c0de-7a3b-7c11-9b54-0242ac120012","instance":"run-1","replica":"0198c0de-7a3b-7c11-9b54-0242ac120011","address":null,"since":1790000000000,"key_set_version":1,"keys_given_at":1790000000000}', 1790000000000);
insert into signing_keys (key_id, state, version, seed, doc, code) values ('ed25519-0123456789abcdef', 'active', 1, x'0102', '{"key_id":"ed25519-0123456789abcdef","public":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","state":"active","version":1,"created_at":1790000000000,"changed_at":1790000000000,"correlation":null}', '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a');
insert into node_keys (sha256, node_id, epoch, created_at) values ('8888888888888888888888888888888888888888888888888888888888888888', '0198c0de-7a3b-7c11-9b54-0242ac120004', 2, 1790000000000);
insert into left_machines (machine_id, node_id, left_at) values ('4c4c4544003510568054b7c04f4a3432', '0198c0de-7a3b-7c11-9b54-0242ac120004', 1790000000000);
insert into authorities (id, state, version, sealed_key, doc, code) values ('cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc', 'active', 1, x'0304', '{"id":"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","certificate":"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n","by_predecessor":"","state":"active","version":1,"created_at":1790000000000,"changed_at":1790000000000,"correlation":"0198c0de-7a3b-7c11-9b54-0242ac120010"}', '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a');
