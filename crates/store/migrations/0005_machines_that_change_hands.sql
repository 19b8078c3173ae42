-- Keys that node certificates were issued for, by the digest of the public key: none is certified twice.
create table node_keys (
    sha256 text primary key, node_id text not null references nodes (id), epoch bigint not null, created_at bigint not null
);
create index node_keys_node on node_keys (node_id);
-- Whether an operator has forced the machine to be taken as it is, and the digest of the value that shows that it was reimaged.
alter table enrollments add column is_forced bigint not null default 0;
alter table enrollments add column reimage_sha256 text not null default '';
