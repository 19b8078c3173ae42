create index operations_workload on operations (workload_id, id);
create index workloads_called on workloads (project_id, name, id);
create index idempotency_age on idempotency (created_at);
