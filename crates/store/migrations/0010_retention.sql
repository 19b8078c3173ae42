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
