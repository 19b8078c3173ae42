-- Only the newest operation of a workload can need attention. The one that followed an earlier one took its place.
-- In a document, these quotes are unescaped only around the field itself.
update operations set state = 'failed', doc = replace(doc, '"state":"needs_attention"',
    '"state":"failed","superseded_by":"' || (select min(later.id) from operations as later
        where later.workload_id = operations.workload_id and later.id > operations.id) || '"')
    where state = 'needs_attention' and exists (select 1 from operations as later
        where later.workload_id = operations.workload_id and later.id > operations.id);
-- A platform role can name a workload without its project, and learns which projects have one of this name.
create index workloads_named on workloads (name, project_id);
