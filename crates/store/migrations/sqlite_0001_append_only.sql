create trigger events_are_not_updated before update on events begin select raise(abort, 'events are append-only'); end;
create trigger events_are_not_deleted before delete on events begin select raise(abort, 'events are append-only'); end;
create trigger audit_is_not_updated before update on audit begin select raise(abort, 'the audit is append-only'); end;
create trigger audit_is_not_deleted before delete on audit begin select raise(abort, 'the audit is append-only'); end;
