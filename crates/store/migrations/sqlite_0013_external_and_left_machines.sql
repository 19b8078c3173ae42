insert into left_machines (machine_id, node_id, left_at)
    select json_extract(doc, '$.left_by_tenant.machine_id'), id, json_extract(doc, '$.left_by_tenant.at') from nodes
    where json_extract(doc, '$.left_by_tenant.machine_id') is not null;
-- The address of a workload is served by the member that had reported it.
update workloads set doc = json_remove(json_set(doc, '$.endpoints', json_array(json_object(
        'purpose', 'api', 'address', json_extract(doc, '$.endpoint'), 'member', (
            select members.id from members where members.workload_id = workloads.id
                and json_extract(members.doc, '$.endpoint') is not null order by members.position limit 1)))), '$.endpoint')
    where json_extract(doc, '$.endpoint') is not null;
update workloads set doc = json_remove(json_set(doc, '$.endpoints', json_array()), '$.endpoint')
    where json_type(doc, '$.endpoints') is null;
