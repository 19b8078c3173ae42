-- for sqlite
insert into schema_versions (version, checksum) values (9, '0b22645afe5a2f48');
-- for postgres
insert into schema_versions (version, checksum) values (9, 'cc1c92d8c475527b');
-- for both
insert into enrollments (id, node_id, sha256, doc, code) values ('0198c0de-7a3b-7c11-9b54-0242ac120005', '0198c0de-7a3b-7c11-9b54-0242ac120004', 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', '{"id":"0198c0de-7a3b-7c11-9b54-0242ac120005","node":"0198c0de-7a3b-7c11-9b54-0242ac120004","sha256":"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee","created_at":1790000000000,"expires_at":1790000900000,"used_at":null,"is_forced":false,"reimage_sha256":null,"pinned":"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"}', '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a');
insert into audit (sequence, at, actor, actor_type, action, target, project_id, result, correlation, metadata) values (1, 1790000000000, 'token/ada', 'principal', 'node.register', 'node/gpu-1', '', 'accepted', '0198c0de-7a3b-7c11-9b54-0242ac120010', '{"note": "it''s fine", "by": {"token": "0198c0de-7a3b-7c11-9b54-0242ac120002"}}');
