//! Request and response of an enrollment, as the OpenAPI document describes them. `wire` defines the actual types without knowledge of
//! OpenAPI; a test compares both.

use utoipa::ToSchema;

/// Redeems an enrollment token.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read only by the OpenAPI document")]
pub(crate) struct EnrollmentRequest {
    /// Id of the node for which the enrollment string was issued.
    #[schema(format = Uuid)]
    node: String,
    /// The token in the enrollment string.
    token: String,
    /// Certificate signing request in PEM for the agent's new key.
    csr: String,
    /// Id of the machine.
    machine_id: String,
    /// Version of the agent.
    agent_version: String,
    /// Time of the node's clock in milliseconds since the Unix epoch. The request is refused if it differs by more than five minutes from
    /// the control plane's clock.
    #[schema(minimum = 0)]
    clock: Option<i64>,
    /// Proof that the machine was reimaged after a tenant left it.
    reimage: Option<Evidence>,
}

/// Proof that a machine was reimaged.
#[derive(ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(dead_code, reason = "read only by the OpenAPI document")]
pub(crate) enum Evidence {
    /// The value that the control plane passed only to its reimage hook.
    OneTimeValue {
        /// The value.
        value: String,
    },
}

/// Identity of a node.
#[derive(ToSchema)]
#[allow(dead_code, reason = "read only by the OpenAPI document")]
pub(crate) struct EnrollmentResponse {
    /// The node's certificate in PEM.
    certificate: String,
    /// The authority's certificate in PEM.
    authority: String,
    /// Addresses of the node channel, each `host:port`, beginning with the replica that answers.
    channels: Vec<String>,
    /// Id of the control plane.
    control_plane: String,
    /// Enrollment epoch of the node.
    epoch: u64,
    /// The signing keys, as a signed set.
    key_set: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use gpuaas_wire::session::{EnrollRequest, EnrollResponse};
    use serde_json::{Value, json};
    use utoipa::PartialSchema;

    use super::*;

    fn fields(schema: impl serde::Serialize) -> Vec<String> {
        let schema = serde_json::to_value(schema).unwrap();
        let mut fields: Vec<String> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        fields.sort();
        fields
    }

    #[test]
    fn document_matches_the_wire_types() {
        let request: Value = fields(EnrollmentRequest::schema()).into_iter().map(|field| (field, json!("x"))).collect();
        let mut request = request;
        request["clock"] = json!(1);
        request["reimage"] = json!({ "kind": "one_time_value", "value": "x" });
        request["node"] = json!("0198c0de-0000-7000-8000-000000000000");
        serde_json::from_value::<EnrollRequest>(request).expect("no field is missing or unknown");
        let response = EnrollResponse {
            certificate: String::new(),
            authority: String::new(),
            channels: Vec::new(),
            control_plane: String::new(),
            epoch: 1,
            key_set: json!({}),
        };
        let response = serde_json::to_value(response).unwrap();
        let mut sent: Vec<String> = response.as_object().unwrap().keys().cloned().collect();
        sent.sort();
        assert_eq!(fields(EnrollmentResponse::schema()), sent);
    }
}
