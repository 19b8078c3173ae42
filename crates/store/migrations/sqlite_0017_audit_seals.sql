create trigger audit_seals_are_not_updated before update on audit_seals begin select raise(abort, 'audit seals are append-only'); end;
create trigger audit_seals_are_not_deleted before delete on audit_seals begin select raise(abort, 'audit seals are append-only'); end;
create trigger audit_seals_are_not_replaced before insert on audit_seals
    when exists (select 1 from audit_seals where number = new.number)
    begin select raise(abort, 'audit seals are append-only'); end;
