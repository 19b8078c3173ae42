use gpuaas_model::TaskType;
use serde_json::json;

use super::*;
use crate::task::{GENERAL_TASKS, HostRequirements, Inspect, Measure, Noop, Preflight};

const NOOP: TaskDefinition = TaskDefinition::of::<Noop>();
const PREFLIGHT: TaskDefinition = TaskDefinition::of::<Preflight>();
const INSPECT: TaskDefinition = TaskDefinition::of::<Inspect>();

fn support_for(task: TaskType, schemas: &[u32]) -> Vec<TaskSupport> {
    vec![TaskSupport { task: task.as_str().to_owned(), schemas: schemas.to_vec() }]
}

#[test]
fn older_agent_gets_parameters_without_newer_fields() {
    let preflight = Preflight { wants: Some(HostRequirements::default()), ..Preflight::default() };
    let params = serde_json::to_value(&preflight).unwrap();
    let (schema, sent) = PREFLIGHT.params_for_agent(1, params.clone(), &support_for(TaskType::Preflight, &[1]));
    assert_eq!((schema, sent.get("wants")), (1, None));
    assert!(sent.get("ports").is_some(), "fields of schema 1 stay");
    let newer = support_for(TaskType::Preflight, &[1, 2, 3, 4]);
    assert_eq!(PREFLIGHT.params_for_agent(1, params.clone(), &newer), (3, params));
    let inspect = Inspect { measure: Some(Measure::OwnDisk), preflight: Some(preflight) };
    let inspect = serde_json::to_value(inspect).unwrap();
    assert_eq!(INSPECT.params_for_agent(1, inspect, &support_for(TaskType::Inspect, &[1])), (1, json!({})));
}

#[test]
fn nested_field_is_left_out_for_an_older_agent() {
    let wants = HostRequirements { reserved_variables: vec!["RKE2_URL".to_owned()], ..HostRequirements::default() };
    let preflight = Preflight { wants: Some(wants), ..Preflight::default() };
    let inspect = Inspect { measure: None, preflight: Some(preflight.clone()) };
    let cases = [
        (PREFLIGHT, serde_json::to_value(preflight).unwrap(), "/wants"),
        (INSPECT, serde_json::to_value(inspect).unwrap(), "/preflight/wants"),
    ];
    for (definition, params, wants) in cases {
        let task = definition.task_type;
        let sent = |schemas| definition.params_for_agent(1, params.clone(), &support_for(task, schemas)).1;
        let field = |params: &Value| params.pointer(&format!("{wants}/reserved_variables")).cloned();
        assert_eq!(field(&sent(&[1, 2])), None, "{task}: an agent of schema 2 refuses fields that it does not know");
        assert!(sent(&[1, 2]).pointer(wants).is_some(), "{task}: the other fields stay");
        assert_eq!(field(&sent(&[1, 2, 3])), Some(json!(["RKE2_URL"])), "{task}");
    }
}

#[test]
fn agent_without_a_common_schema_gets_the_oldest() {
    assert_eq!(NOOP.params_for_agent(3, json!({}), &support_for(TaskType::Noop, &[3])).0, 3);
    assert_eq!(NOOP.params_for_agent(1, json!({}), &support_for(TaskType::Noop, &[7])).0, 1);
    assert_eq!(NOOP.params_for_agent(1, json!({}), &[]).0, 1);
}

#[test]
fn every_added_field_belongs_to_an_existing_schema() {
    for &TaskDefinition { task_type: task, newest, added, .. } in GENERAL_TASKS {
        for (since, field) in added {
            assert!((2..=newest).contains(since), "{task}: {field} is of schema {since}, the newest is {newest}");
        }
        for version in 2..=newest {
            assert!(added.iter().any(|(since, _)| *since == version), "{task}: schema {version} adds no field");
        }
    }
}
