update tasks set key_id = coalesce(json_extract(doc, '$.key_id'), '');
update tokens set ends_at = coalesce(json_extract(doc, '$.revoked_at'), json_extract(doc, '$.expires_at'), 0);
