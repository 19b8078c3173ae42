insert into schema_versions (version, checksum) values (11, '3491b658516dc3a8');
