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
