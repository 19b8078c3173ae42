//! Schema versions of task parameters. Newer versions only add fields, so older agents receive the same parameters without them.

use gpuaas_model::TaskType;
use serde_json::Value;

use super::{
    ArtifactFetch, Fix, Inspect, Noop, Preflight, Residue, Rke2Configure, Rke2Install, Rke2KubeconfigRead, Rke2Observe,
    Rke2Start, Rke2Stop, Rke2Uninstall, TaskSpec, TaskSupport,
};

/// Returns the newest schema version, not older than `oldest`, that the agent supports, and the parameters without fields of newer
/// versions. If the agent supports no suitable version, returns `oldest`, and the agent refuses the task.
pub fn params_for_agent(task: TaskType, oldest: u32, params: Value, support: &[TaskSupport]) -> (u32, Value) {
    let (newest, added) = schemas(task);
    let known = support.iter().filter(|known| known.task == task.as_str()).flat_map(|known| &known.schemas);
    let schema = known.copied().filter(|schema| (oldest..=newest).contains(schema)).max().unwrap_or(oldest);
    (schema, without_newer(params, schema, added))
}

fn without_newer(mut params: Value, schema: u32, added: &[(u32, &str)]) -> Value {
    for (_, path) in added.iter().filter(|(since, _)| *since > schema) {
        remove(&mut params, path);
    }
    params
}

/// Removes a field by its path, with dots between names.
fn remove(params: &mut Value, path: &str) {
    let Some(fields) = params.as_object_mut() else { return };
    match path.split_once('.') {
        None => drop(fields.remove(path)),
        Some((outer, inner)) => {
            if let Some(outer) = fields.get_mut(outer) {
                remove(outer, inner);
            }
        }
    }
}

/// Returns the newest schema version of a type and the fields added after its first version.
fn schemas(task: TaskType) -> (u32, &'static [(u32, &'static str)]) {
    const fn schemas_of<T: TaskSpec>() -> (u32, &'static [(u32, &'static str)]) {
        (T::SCHEMA, T::ADDED)
    }
    match task {
        TaskType::Noop => schemas_of::<Noop>(),
        TaskType::Inspect => schemas_of::<Inspect>(),
        TaskType::Preflight => schemas_of::<Preflight>(),
        TaskType::Residue => schemas_of::<Residue>(),
        TaskType::Fix => schemas_of::<Fix>(),
        TaskType::ArtifactFetch => schemas_of::<ArtifactFetch>(),
        TaskType::Rke2Install => schemas_of::<Rke2Install>(),
        TaskType::Rke2Configure => schemas_of::<Rke2Configure>(),
        TaskType::Rke2Start => schemas_of::<Rke2Start>(),
        TaskType::Rke2Stop => schemas_of::<Rke2Stop>(),
        TaskType::Rke2Observe => schemas_of::<Rke2Observe>(),
        TaskType::Rke2KubeconfigRead => schemas_of::<Rke2KubeconfigRead>(),
        TaskType::Rke2Uninstall => schemas_of::<Rke2Uninstall>(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::task::{HostRequirements, Measure};

    fn support_for(task: TaskType, schemas: &[u32]) -> Vec<TaskSupport> {
        vec![TaskSupport { task: task.as_str().to_owned(), schemas: schemas.to_vec() }]
    }

    #[test]
    fn older_agent_gets_parameters_without_newer_fields() {
        let preflight = Preflight { wants: Some(HostRequirements::default()), ..Preflight::default() };
        let params = serde_json::to_value(&preflight).unwrap();
        let (schema, sent) =
            params_for_agent(TaskType::Preflight, 1, params.clone(), &support_for(TaskType::Preflight, &[1]));
        assert_eq!((schema, sent.get("wants")), (1, None));
        assert!(sent.get("ports").is_some(), "fields of schema 1 stay");
        let newer = support_for(TaskType::Preflight, &[1, 2, 3, 4]);
        assert_eq!(params_for_agent(TaskType::Preflight, 1, params.clone(), &newer), (3, params));
        let inspect = Inspect { measure: Some(Measure::OwnDisk), preflight: Some(preflight) };
        let inspect = serde_json::to_value(inspect).unwrap();
        assert_eq!(
            params_for_agent(TaskType::Inspect, 1, inspect, &support_for(TaskType::Inspect, &[1])),
            (1, json!({}))
        );
    }

    #[test]
    fn nested_field_is_left_out_for_an_older_agent() {
        let wants = HostRequirements { reserved_variables: vec!["RKE2_URL".to_owned()], ..HostRequirements::default() };
        let preflight = Preflight { wants: Some(wants), ..Preflight::default() };
        let inspect = Inspect { measure: None, preflight: Some(preflight.clone()) };
        let cases = [
            (TaskType::Preflight, serde_json::to_value(preflight).unwrap(), "/wants"),
            (TaskType::Inspect, serde_json::to_value(inspect).unwrap(), "/preflight/wants"),
        ];
        for (task, params, wants) in cases {
            let sent = |schemas| params_for_agent(task, 1, params.clone(), &support_for(task, schemas)).1;
            let field = |params: &Value| params.pointer(&format!("{wants}/reserved_variables")).cloned();
            assert_eq!(
                field(&sent(&[1, 2])),
                None,
                "{task}: an agent of schema 2 refuses fields that it does not know"
            );
            assert!(sent(&[1, 2]).pointer(wants).is_some(), "{task}: the other fields stay");
            assert_eq!(field(&sent(&[1, 2, 3])), Some(json!(["RKE2_URL"])), "{task}");
        }
    }

    #[test]
    fn agent_without_a_common_schema_gets_the_oldest() {
        assert_eq!(params_for_agent(TaskType::Noop, 3, json!({}), &support_for(TaskType::Noop, &[3])).0, 3);
        assert_eq!(params_for_agent(TaskType::Noop, 1, json!({}), &support_for(TaskType::Noop, &[7])).0, 1);
        assert_eq!(params_for_agent(TaskType::Noop, 1, json!({}), &[]).0, 1);
    }

    #[test]
    fn every_added_field_belongs_to_an_existing_schema() {
        for &task in TaskType::ALL {
            let (newest, added) = schemas(task);
            assert!(added.iter().all(|(since, _)| (2..=newest).contains(since)), "{task}");
            assert!((2..=newest).all(|version| added.iter().any(|(since, _)| *since == version)), "{task}");
        }
    }
}
