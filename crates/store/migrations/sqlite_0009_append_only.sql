-- `insert or replace` removes the row that is in its way without asking the triggers for deletions.
create trigger events_are_not_replaced before insert on events
    when exists (select 1 from events where stream = new.stream and sequence = new.sequence)
    begin select raise(abort, 'events are append-only'); end;
create trigger audit_is_not_replaced before insert on audit
    when exists (select 1 from audit where sequence = new.sequence)
    begin select raise(abort, 'the audit is append-only'); end;
