update nodes set left_machine_id = doc::json -> 'left_by_tenant' ->> 'machine_id'
    where doc::json -> 'left_by_tenant' ->> 'machine_id' is not null;
