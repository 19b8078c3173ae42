//! Describes the request bodies whose shape depends on the app: one schema for each app of the catalog, chosen by the field `app`.

use gpuaas_planner::{Manifest, OperationSpec};
use serde_json::{Map, Value, json};

/// Replaces the bodies that take any placement, configuration or parameters by one body for each app.
pub(super) fn describe(schemas: &mut Map<String, Value>, manifests: &[&Manifest]) {
    type Describe = fn(&mut Schemas<'_>, &Manifest, Value) -> String;
    let bodies: [(&str, Describe); 3] =
        [("Deploy", deploy), ("AddMembers", add_members), ("StartOperation", start_operation)];
    for (body, describe) in bodies {
        let Some(general) = schemas.remove(body) else { continue };
        let mut schemas = Schemas(schemas);
        let described = |manifest: &&Manifest| {
            let mut own = general.clone();
            own["properties"]["app"] = constant(&manifest.slug, &general["properties"]["app"]);
            (manifest.slug.clone(), describe(&mut schemas, manifest, own))
        };
        let mapping: Vec<(String, String)> = manifests.iter().map(described).collect();
        schemas.add(body.to_owned(), one_of(&general["description"], "app", mapping));
    }
}

/// The components of the document.
struct Schemas<'a>(&'a mut Map<String, Value>);

impl Schemas<'_> {
    /// Adds a component and returns its name.
    fn add(&mut self, name: String, schema: Value) -> String {
        self.0.insert(name.clone(), schema);
        name
    }
}

fn deploy(schemas: &mut Schemas<'_>, manifest: &Manifest, mut body: Value) -> String {
    let of = |part| format!("{}{part}", prefix(manifest));
    let example = json!({
        "app": manifest.slug,
        "name": "train",
        "placement": manifest.placement_schema["examples"][0],
        "config": manifest.config_schema["examples"][0],
    });
    body["examples"] = json!([example]);
    body["properties"]["placement"] = reference(&schemas.add(of("Placement"), manifest.placement_schema.clone()));
    body["properties"]["config"] = reference(&schemas.add(of("Config"), manifest.config_schema.clone()));
    schemas.add(of("Deploy"), body)
}

fn add_members(schemas: &mut Schemas<'_>, manifest: &Manifest, mut body: Value) -> String {
    let of = |part| format!("{}{part}", prefix(manifest));
    let schema = &manifest.added_members_schema;
    body["examples"] = json!([{ "app": manifest.slug, "placement": schema["examples"][0] }]);
    body["properties"]["placement"] = reference(&schemas.add(of("AddedMembers"), schema.clone()));
    schemas.add(of("AddMembers"), body)
}

/// Describes one body for each kind of operation that has no request of its own.
fn start_operation(schemas: &mut Schemas<'_>, manifest: &Manifest, body: Value) -> String {
    let started = manifest.operations.iter().filter(|spec| spec.kind.own_command().is_none());
    let described = |spec: &OperationSpec| {
        let kind = pascal(spec.kind.as_str());
        let parameters = format!("{}{kind}Parameters", prefix(manifest));
        let mut own = body.clone();
        own["properties"]["kind"] = constant(spec.kind.as_str(), &body["properties"]["kind"]);
        own["properties"]["parameters"] = reference(&schemas.add(parameters, spec.parameters_schema.clone()));
        let example = &spec.parameters_schema["examples"][0];
        if !spec.parameters_schema["required"].is_null() {
            own["required"] = json!(["app", "kind", "parameters"]);
        }
        own["examples"] = json!([{ "app": manifest.slug, "kind": spec.kind, "parameters": example }]);
        (spec.kind.to_string(), schemas.add(format!("{}{kind}", prefix(manifest)), own))
    };
    let mapping: Vec<(String, String)> = started.map(described).collect();
    schemas.add(format!("{}StartOperation", prefix(manifest)), one_of(&body["description"], "kind", mapping))
}

/// Returns a schema of exactly one of several components, chosen by the value of `property`.
fn one_of(description: &Value, property: &str, components: Vec<(String, String)>) -> Value {
    let references: Vec<Value> = components.iter().map(|(_, component)| reference(component)).collect();
    let mapping: Map<String, Value> =
        components.into_iter().map(|(value, component)| (value, pointer(&component).into())).collect();
    json!({
        "type": "object",
        "description": description,
        "oneOf": references,
        "discriminator": { "propertyName": property, "mapping": mapping },
    })
}

fn constant(value: &str, general: &Value) -> Value {
    json!({ "type": "string", "enum": [value], "description": general["description"] })
}

fn reference(component: &str) -> Value {
    json!({ "$ref": pointer(component) })
}

fn pointer(component: &str) -> String {
    format!("#/components/schemas/{component}")
}

/// Returns the first part of the names of an app's components.
fn prefix(manifest: &Manifest) -> String {
    pascal(&manifest.slug)
}

/// Returns the name of a type for a name such as `replace_member`.
fn pascal(name: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    name.split(['_', '-']).filter(|word| !word.is_empty()).map(capital).collect()
}
