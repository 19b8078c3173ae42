insert into left_machines (machine_id, node_id, left_at)
    select doc::json -> 'left_by_tenant' ->> 'machine_id', id, (doc::json -> 'left_by_tenant' ->> 'at')::bigint from nodes
    where doc::json -> 'left_by_tenant' ->> 'machine_id' is not null;
-- The address of a workload is served by the member that had reported it.
update workloads set doc = (doc::jsonb - 'endpoint' || jsonb_build_object('endpoints', jsonb_build_array(jsonb_build_object(
        'purpose', 'api', 'address', doc::jsonb ->> 'endpoint', 'member', (
            select members.id from members where members.workload_id = workloads.id
                and members.doc::json ->> 'endpoint' is not null order by members.position limit 1)))))::text
    where doc::json ->> 'endpoint' is not null;
update workloads set doc = (doc::jsonb - 'endpoint' || jsonb_build_object('endpoints', jsonb_build_array()))::text
    where doc::json -> 'endpoints' is null;
