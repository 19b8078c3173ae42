-- What the controller of a workload reported last. It changes more often than the workload, whose revision it must not raise.
create table workload_reports (
    workload_id text primary key references workloads (id), service_account_id text not null, doc text not null
);
