update tasks set key_id = coalesce(doc::json ->> 'key_id', '');
update tokens set ends_at = coalesce((doc::json ->> 'revoked_at')::bigint, (doc::json ->> 'expires_at')::bigint, 0);
