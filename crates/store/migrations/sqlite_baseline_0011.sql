-- What keeps history as it was written, in the schema of version 11.
create trigger events_are_not_updated before update on events begin select raise(abort, 'events are append-only'); end;
create trigger audit_is_not_updated before update on audit begin select raise(abort, 'the audit is append-only'); end;
-- `insert or replace` removes the row that is in its way without asking the triggers for deletions.
create trigger events_are_not_replaced before insert on events
    when exists (select 1 from events where stream = new.stream and sequence = new.sequence)
    begin select raise(abort, 'events are append-only'); end;
create trigger audit_is_not_replaced before insert on audit
    when exists (select 1 from audit where sequence = new.sequence)
    begin select raise(abort, 'the audit is append-only'); end;
create trigger events_are_not_deleted before delete on events
    when coalesce((select last_sequence from archive_ranges where stream = old.stream and first_sequence <= old.sequence
        order by first_sequence desc limit 1), 0) < old.sequence
    begin select raise(abort, 'events are append-only: no archive holds this one'); end;
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
