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
