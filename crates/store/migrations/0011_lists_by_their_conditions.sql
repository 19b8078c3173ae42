-- Pages of a project, a node, an operation or a state are found without reading the rows of others. What belongs to no project
-- is in no index of projects.
drop index operations_project;
create index operations_project on operations (project_id, id);
create index operations_state on operations (state, id);
drop index tasks_node;
create index tasks_node on tasks (node_id, id);
drop index tasks_operation;
create index tasks_operation on tasks (operation_id, id);
create index tasks_project on tasks (project_id, id) where project_id <> '';
create index allocations_project on allocations (project_id, id);
create index allocations_node on allocations (node_id, id);
create index allocations_state on allocations (state, id);
drop index tokens_project;
create index tokens_project on tokens (project_id, id);
create index audit_project on audit (project_id, sequence) where project_id <> '';
create index audit_target on audit (target, sequence);
create index operations_unended on operations (id) where is_open = 1;
