-- The key that signed a task, so that the open ones of a key are counted without reading them.
alter table tasks add column key_id text not null default '';
create index tasks_key on tasks (key_id) where is_open = 1;
-- When a token is or was good no more, so that it is counted and one day removed; 0 for never.
alter table tokens add column ends_at bigint not null default 0;
create index tokens_end on tokens (ends_at) where ends_at > 0;
create index tokens_project on tokens (project_id);
