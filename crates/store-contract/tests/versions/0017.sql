-- for sqlite
insert into schema_versions (version, checksum) values (17, '5af227bcb91ee84b');
-- for postgres
insert into schema_versions (version, checksum) values (17, 'cb86383f9872c208');
-- for both
insert into audit_seals (number, first_sequence, last_sequence, records, at, previous, digest, key_id, signature) values (1, 1, 1, 1, 1790000005000, '0000000000000000000000000000000000000000000000000000000000000000', '7777777777777777777777777777777777777777777777777777777777777777', 'ed25519-5a5a5a5a5a5a5a5a', 'WlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWg==');
