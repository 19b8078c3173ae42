update nodes set left_machine_id = json_extract(doc, '$.left_by_tenant.machine_id')
    where json_extract(doc, '$.left_by_tenant.machine_id') is not null;
