-- What keeps history as it was written, in the schema of version 11.
create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name;
end;
$$;
create trigger events_are_not_truncated before truncate on events for each statement execute function refuse_change();
create trigger audit_is_not_truncated before truncate on audit for each statement execute function refuse_change();
create function archived_until(of_stream text, of_sequence bigint) returns bigint language sql stable as $$
    select coalesce((select last_sequence from archive_ranges where stream = of_stream and first_sequence <= of_sequence
        order by first_sequence desc limit 1), 0);
$$;
create function refuse_unarchived_event() returns trigger language plpgsql as $$
begin
    if archived_until(old.stream, old.sequence) < old.sequence then
        raise exception 'events are append-only: no archive holds this one';
    end if;
    return old;
end;
$$;
create function refuse_unarchived_audit() returns trigger language plpgsql as $$
begin
    if archived_until('audit', old.sequence) < old.sequence then
        raise exception 'the audit is append-only: no archive holds this record';
    end if;
    return old;
end;
$$;
create trigger events_are_append_only before update on events for each row execute function refuse_change();
create trigger events_are_not_deleted before delete on events for each row execute function refuse_unarchived_event();
create trigger audit_is_append_only before update on audit for each row execute function refuse_change();
create trigger audit_is_not_deleted before delete on audit for each row execute function refuse_unarchived_audit();
create trigger archives_are_append_only before update or delete on archives for each row execute function refuse_change();
create trigger archives_are_not_truncated before truncate on archives for each statement execute function refuse_change();
create trigger archive_ranges_are_append_only before delete or update of stream, first_sequence, last_sequence, archive_id
    on archive_ranges for each row execute function refuse_change();
create trigger archive_ranges_are_not_truncated before truncate on archive_ranges
    for each statement execute function refuse_change();
