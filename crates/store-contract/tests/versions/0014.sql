insert into schema_versions (version, checksum) values (14, '23fbff97920c9c00');
