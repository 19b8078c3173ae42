-- Seals of the audit. Each covers the records `first_sequence` to `last_sequence` and the seal before it, and is signed with a key that the
-- database holds only encrypted. Digests are SHA-256 in hex, the signature is base64.
create table audit_seals (
    number bigint primary key, first_sequence bigint not null, last_sequence bigint not null, records bigint not null,
    at bigint not null, previous text not null, digest text not null, key_id text not null, signature text not null
);
