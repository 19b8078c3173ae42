update operations set ended_at = coalesce(json_extract(doc, '$.ended_at'), 0) where is_open = 0;
update enrollments set ends_at = coalesce(json_extract(doc, '$.used_at'), json_extract(doc, '$.expires_at'), 0);
update access_grants set ends_at = coalesce(json_extract(doc, '$.revoked_at'), json_extract(doc, '$.expires_at'), 0);
drop trigger events_are_not_deleted;
create trigger events_are_not_deleted before delete on events
    when coalesce((select last_sequence from archive_ranges where stream = old.stream and first_sequence <= old.sequence
        order by first_sequence desc limit 1), 0) < old.sequence
    begin select raise(abort, 'events are append-only: no archive holds this one'); end;
drop trigger audit_is_not_deleted;
create trigger audit_is_not_deleted before delete on audit
    when coalesce((select last_sequence from archive_ranges where stream = 'audit' and first_sequence <= old.sequence
        order by first_sequence desc limit 1), 0) < old.sequence
    begin select raise(abort, 'the audit is append-only: no archive holds this record'); end;
create trigger archives_are_not_updated before update on archives begin select raise(abort, 'archives are append-only'); end;
create trigger archives_are_not_deleted before delete on archives begin select raise(abort, 'archives are append-only'); end;
create trigger archives_are_not_replaced before insert on archives
    when exists (select 1 from archives where id = new.id) begin select raise(abort, 'archives are append-only'); end;
create trigger archive_ranges_are_not_updated before update of stream, first_sequence, last_sequence, archive_id on archive_ranges
    begin select raise(abort, 'archives are append-only'); end;
create trigger archive_ranges_are_not_deleted before delete on archive_ranges
    begin select raise(abort, 'archives are append-only'); end;
create trigger archive_ranges_are_not_replaced before insert on archive_ranges
    when exists (select 1 from archive_ranges where stream = new.stream and first_sequence = new.first_sequence)
    begin select raise(abort, 'archives are append-only'); end;
