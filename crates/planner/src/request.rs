//! What an operation is to do: its kind and its parameters, checked against the app's manifest.
//!
//! Parameters are stored and shown as they are. They never contain secrets; a schema that accepts one is a defect of the manifest.

use gpuaas_model::{Code, OperationKind, Reason};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    manifest::Manifest,
    schema::{Violation, violations},
};

/// Parameters of an operation by name, as the app's manifest describes them.
pub type Parameters = serde_json::Map<String, Value>;

/// A requested operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationRequest {
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Parameters by name.
    pub parameters: Parameters,
}

impl OperationRequest {
    /// Parameter with the members that a decommission gives up.
    const GIVE_UP: &str = "give_up";
    /// Parameter with the reason for what a request forces.
    const REASON: &str = "reason";

    /// Returns a request without parameters.
    pub fn of(kind: OperationKind) -> Self {
        Self { kind, parameters: Parameters::new() }
    }

    /// Returns the decommission that gives up these members: it removes the others, and these without proof. An app takes the parameters
    /// `give_up`, names of members, and `reason`.
    pub fn giving_up(members: &[String], reason: &str) -> Self {
        let parameters = [(Self::GIVE_UP, json!(members)), (Self::REASON, json!(reason))];
        let parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { kind: OperationKind::Decommission, parameters }
    }

    /// Returns true if the request gives up a member: its parameter `give_up` is true, or names some.
    pub fn gives_up(&self) -> bool {
        match self.parameters.get(Self::GIVE_UP) {
            Some(Value::Bool(gives_up)) => *gives_up,
            Some(Value::Array(named)) => !named.is_empty(),
            Some(Value::Null | Value::Number(_) | Value::String(_) | Value::Object(_)) | None => false,
        }
    }

    /// Returns the reason that a person gave for what the request forces.
    pub fn reason(&self) -> Option<&str> {
        self.parameters.get(Self::REASON).and_then(Value::as_str)
    }

    /// Refuses a kind that the app does not have or cannot plan yet, and then parameters that its schema does not accept, with a reason for each.
    pub fn check(&self, manifest: &Manifest) -> Result<(), PlanRefusal> {
        let spec = manifest.operations.iter().find(|spec| spec.kind == self.kind);
        let app = manifest.slug.clone();
        let spec = spec.ok_or_else(|| PlanRefusal::Unsupported { app: app.clone(), kind: self.kind })?;
        if !spec.is_available {
            return Err(PlanRefusal::Unavailable { app, kind: self.kind });
        }
        let next = format!("see the parameters of the operation: gpuaas app show {} -o json", manifest.slug);
        let found = violations(&spec.parameters_schema, &Value::Object(self.parameters.clone()));
        let reasons: Vec<Reason> = found
            .into_iter()
            .map(|found| match found.field.is_empty() {
                true => found,
                false => Violation { field: format!("parameters.{}", found.field), ..found },
            })
            .map(|found| found.reason("parameters", Code::FieldInvalid, &next))
            .collect();
        if reasons.is_empty() { Ok(()) } else { Err(PlanRefusal::Parameters(reasons)) }
    }

    /// Parses kind and parameters as the app's own type: an enum with the tag `kind` and the content `parameters`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, PlanRefusal> {
        serde_json::from_value(json!(self)).map_err(|error| {
            PlanRefusal::Parameters(vec![Reason {
                field: "parameters".to_owned(),
                code: Code::FieldInvalid,
                detail: error.to_string(),
                next: None,
            }])
        })
    }
}

/// Reason why an operation cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanRefusal {
    /// The app has no operation of this kind.
    #[error("{app} has no operation {kind}")]
    Unsupported {
        /// Slug of the app.
        app: String,
        /// Kind of the operation.
        kind: OperationKind,
    },
    /// The manifest announces the operation, but this version of the app cannot plan it.
    #[error("{kind} is not available yet for {app}")]
    Unavailable {
        /// Slug of the app.
        app: String,
        /// Kind of the operation.
        kind: OperationKind,
    },
    /// The app does not accept the parameters.
    #[error("parameters refused")]
    Parameters(Vec<Reason>),
    /// The workload's present state does not allow the operation.
    #[error("{}", .0.detail)]
    Refused(Box<Reason>),
}

impl PlanRefusal {
    /// Refuses with this code what `field` requests; `next` is what the caller can do.
    pub fn refused(field: &str, code: Code, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Refused(Box::new(Reason {
            field: field.to_owned(),
            code,
            detail: detail.into(),
            next: Some(next.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{manifest::OperationSpec, test_steps::manifest};

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind", content = "parameters", rename_all = "snake_case", deny_unknown_fields)]
    enum Own {
        Decommission {},
        Upgrade { version: String },
    }

    fn request(kind: OperationKind, parameters: Value) -> OperationRequest {
        OperationRequest { kind, parameters: parameters.as_object().cloned().expect("an object") }
    }

    fn upgradable() -> Manifest {
        let upgrade = OperationSpec {
            kind: OperationKind::Upgrade,
            parameters_schema: json!({
                "type": "object", "additionalProperties": false, "required": ["version"],
                "properties": {
                    "version": { "type": "string", "pattern": "^v[0-9]", "maxLength": 64 },
                    "nodes": { "type": "array", "items": { "type": "string", "format": "uuid" } },
                },
            }),
            is_available: true,
        };
        let decommission = OperationSpec::without_parameters(OperationKind::Decommission);
        Manifest { operations: vec![decommission, upgrade], ..manifest() }
    }

    fn refused(parameters: Value) -> Vec<(String, String)> {
        match request(OperationKind::Upgrade, parameters).check(&upgradable()) {
            Err(PlanRefusal::Parameters(reasons)) => {
                assert!(reasons.iter().all(|reason| reason.code == Code::FieldInvalid && reason.next.is_some()));
                reasons.into_iter().map(|reason| (reason.field, reason.detail)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn operation_that_is_not_available_is_refused_before_its_parameters_are_checked() {
        let mut manifest = upgradable();
        manifest.operations.iter_mut().for_each(|spec| spec.is_available = false);
        let refusal = request(OperationKind::Upgrade, json!({})).check(&manifest).expect_err("it is not available");
        assert_eq!(refusal.to_string(), format!("upgrade is not available yet for {}", manifest.slug));
    }

    #[test]
    fn parameters_are_checked_by_the_schema_of_their_kind() {
        assert_eq!(OperationRequest::of(OperationKind::Decommission).check(&upgradable()), Ok(()));
        assert_eq!(request(OperationKind::Upgrade, json!({ "version": "v1.37.0" })).check(&upgradable()), Ok(()));
        let missing = ("parameters.version".to_owned(), "this is required".to_owned());
        assert_eq!(refused(json!({})), [missing]);
        let unknown = ("parameters.versoin".to_owned(), "there is no such field here".to_owned());
        assert!(refused(json!({ "version": "v1", "versoin": "v1" })).contains(&unknown));
        let fields = |parameters| refused(parameters).into_iter().map(|(field, _)| field).collect::<Vec<_>>();
        assert_eq!(fields(json!({ "version": 1 })), ["parameters.version"]);
        assert_eq!(fields(json!({ "version": "v1", "nodes": ["x"] })), ["parameters.nodes[0]"]);
    }

    #[test]
    fn decommission_that_gives_up_members_names_them_with_the_reason() {
        let request = OperationRequest::giving_up(&["agent-2".to_owned()], "burnt down");
        assert_eq!((request.kind, request.reason()), (OperationKind::Decommission, Some("burnt down")));
        assert!(request.gives_up() && !OperationRequest::giving_up(&[], "burnt down").gives_up());
        assert_eq!(Value::from(request.parameters), json!({ "give_up": ["agent-2"], "reason": "burnt down" }));
        let plain = OperationRequest::of(OperationKind::Decommission);
        assert_eq!((plain.reason(), plain.gives_up()), (None, false));
    }

    #[test]
    fn kind_that_the_app_does_not_have_is_refused() {
        let refusal = OperationRequest::of(OperationKind::Restore).check(&upgradable());
        assert!(matches!(refusal, Err(PlanRefusal::Unsupported { kind: OperationKind::Restore, .. })), "{refusal:?}");
    }

    #[test]
    fn request_is_parsed_as_the_own_type_of_the_app() {
        assert_eq!(OperationRequest::of(OperationKind::Decommission).parse(), Ok(Own::Decommission {}));
        let upgrade = request(OperationKind::Upgrade, json!({ "version": "v1" }));
        assert_eq!(upgrade.parse(), Ok(Own::Upgrade { version: "v1".to_owned() }));
        let other = request(OperationKind::Upgrade, json!({ "snapshot": "s" })).parse::<Own>();
        assert!(matches!(other, Err(PlanRefusal::Parameters(_))), "{other:?}");
    }
}
