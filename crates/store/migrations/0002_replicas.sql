-- The processes that are this control plane together; a row is taken out when its replica ends or is found dead.
create table replicas (id text primary key, doc text not null);
-- Which replica holds a node's channel. A connection is named, so that the end of an older one takes no newer one's row away.
create table sessions (
    node_id text primary key references nodes (id), connection text not null, replica_id text not null, doc text not null
);
create index sessions_replica on sessions (replica_id);
