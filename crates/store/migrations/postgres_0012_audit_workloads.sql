-- Existing records get the workload of their task or operation, or the newest one that had their name at the time.
alter table audit disable trigger audit_is_append_only;
update audit set workload_id = coalesce(
    (select nullif(tasks.workload_id, '') from tasks where tasks.id = audit.metadata::json ->> 'task'),
    (select operations.workload_id from operations where operations.id = audit.metadata::json ->> 'operation'),
    (select workloads.id from workloads where workloads.project_id = audit.project_id and 'workload/' || workloads.name = audit.target
        and (workloads.doc::json ->> 'created_at')::bigint <= audit.at order by workloads.id desc limit 1),
    '');
alter table audit enable trigger audit_is_append_only;
