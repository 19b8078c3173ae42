//! JSON Schemas of the types that requests are parsed as.

use gpuaas_planner::schema::{Violation, violations};
use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::RecursiveTransform};
use serde_json::Value;

/// Next action for a request whose shape is refused.
pub(crate) const SEE_SCHEMA: &str = "see the app's schemas: gpuaas app show rke2 -o json";

/// Returns the schema of `T`, which refers to nothing outside itself.
pub(crate) fn of<T: JsonSchema>() -> Value {
    // Generated clients take a field with a default for one that is always sent.
    let without_default = RecursiveTransform(|schema: &mut Schema| drop(schema.remove("default")));
    let settings = SchemaSettings::draft2020_12().with_transform(without_default).with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The place where a schema is used names it.
    schema.remove("title");
    schema.to_value()
}

/// Returns every violation of the schema of `T`.
pub(crate) fn check<T: JsonSchema>(value: &Value) -> Vec<Violation> {
    violations(&of::<T>(), value)
}

#[cfg(test)]
mod tests {
    use crate::manifest::manifest;

    use super::*;

    #[test]
    fn every_schema_of_the_manifest_is_closed_and_accepts_its_example() {
        let manifest = manifest();
        let operations = manifest.operations.iter().filter(|spec| spec.kind.own_command().is_none());
        let schemas = [&manifest.placement_schema, &manifest.added_members_schema, &manifest.config_schema];
        let schemas: Vec<&Value> =
            schemas.into_iter().chain(operations.map(|operation| &operation.parameters_schema)).collect();
        for schema in &schemas {
            let example = &schema["examples"][0];
            assert!(example.is_object(), "{schema}");
            assert_eq!(violations(schema, example), [], "{schema}");
            // A closed object leaves no place for a secret that the schema does not name.
            assert_eq!(schema["additionalProperties"], false, "{schema}");
        }
        assert_eq!(schemas.len(), 13);
    }
}
