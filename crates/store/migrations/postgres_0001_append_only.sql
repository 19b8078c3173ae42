create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name;
end;
$$;
create trigger events_are_append_only before update or delete on events for each row execute function refuse_change();
create trigger events_are_not_truncated before truncate on events for each statement execute function refuse_change();
create trigger audit_is_append_only before update or delete on audit for each row execute function refuse_change();
create trigger audit_is_not_truncated before truncate on audit for each statement execute function refuse_change();
