create trigger audit_seals_are_append_only before update or delete on audit_seals for each row execute function refuse_change();
create trigger audit_seals_are_not_truncated before truncate on audit_seals for each statement execute function refuse_change();
