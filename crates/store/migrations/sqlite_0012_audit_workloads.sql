-- Existing records get the workload of their task or operation, or the newest one that had their name at the time.
drop trigger audit_is_not_updated;
update audit set workload_id = coalesce(
    (select nullif(tasks.workload_id, '') from tasks where tasks.id = json_extract(audit.metadata, '$.task')),
    (select operations.workload_id from operations where operations.id = json_extract(audit.metadata, '$.operation')),
    (select workloads.id from workloads where workloads.project_id = audit.project_id and 'workload/' || workloads.name = audit.target
        and json_extract(workloads.doc, '$.created_at') <= audit.at order by workloads.id desc limit 1),
    '');
create trigger audit_is_not_updated before update on audit begin select raise(abort, 'the audit is append-only'); end;
