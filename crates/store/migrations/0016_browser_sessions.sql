-- Sessions of browsers, and the one-time links that begin them. Each acts for a token. Only digests of their secrets are stored.
create table browser_sessions (
    id text primary key, sha256 text not null unique, token_id text not null, ends_at bigint not null, doc text not null,
    code text not null
);
create index browser_sessions_token on browser_sessions (token_id, id);
create index browser_sessions_end on browser_sessions (ends_at);
create table sign_in_links (
    id text primary key, sha256 text not null unique, token_id text not null, ends_at bigint not null, used_at bigint not null,
    doc text not null, code text not null
);
create index sign_in_links_token on sign_in_links (token_id);
create index sign_in_links_end on sign_in_links (ends_at);
