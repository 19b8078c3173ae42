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
