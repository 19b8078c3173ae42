//! What agents send and get when they enroll, as the document shows it. The shapes themselves are `wire`'s, which knows no documents; a test
//! holds them together.

use utoipa::ToSchema;

/// Redeems an enrollment token.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read by the document alone")]
pub(crate) struct Asked {
    /// The id of the node that the enrollment string was for.
    #[schema(format = Uuid)]
    node: String,
    /// The token in the string.
    token: String,
    /// A certificate request in PEM for the agent's fresh key.
    csr: String,
    /// The machine's id.
    machine_id: String,
    /// The agent's version.
    agent_version: String,
    /// What the node's clock says, in milliseconds since 1970. One that is more than five minutes off is refused.
    #[schema(minimum = 0)]
    clock: Option<i64>,
    /// What shows that the machine was reimaged since a tenant has left it.
    reimage: Option<Evidence>,
}

/// What shows that a machine was reimaged.
#[derive(ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(dead_code, reason = "read by the document alone")]
pub(crate) enum Evidence {
    /// The value that the control plane gave to its reimage hook alone.
    OneTimeValue {
        /// The value.
        value: String,
    },
}

/// The node's identity.
#[derive(ToSchema)]
#[allow(dead_code, reason = "read by the document alone")]
pub(crate) struct Given {
    /// Its certificate, PEM.
    certificate: String,
    /// The authority's certificate, PEM.
    authority: String,
    /// Where the node channel listens, each `host:port`, the one that answered first.
    channels: Vec<String>,
    /// The control plane's id.
    control_plane: String,
    /// Its enrollment epoch.
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
    fn the_document_shows_the_fields_that_agents_send_and_get() {
        let asked: Value = fields(Asked::schema()).into_iter().map(|field| (field, json!("x"))).collect();
        let mut asked = asked;
        asked["clock"] = json!(1);
        asked["reimage"] = json!({ "kind": "one_time_value", "value": "x" });
        asked["node"] = json!("0198c0de-0000-7000-8000-000000000000");
        serde_json::from_value::<EnrollRequest>(asked).expect("no field lacks and none is unknown");
        let given = EnrollResponse {
            certificate: String::new(),
            authority: String::new(),
            channels: Vec::new(),
            control_plane: String::new(),
            epoch: 1,
            key_set: json!({}),
        };
        let given = serde_json::to_value(given).unwrap();
        let mut sent: Vec<String> = given.as_object().unwrap().keys().cloned().collect();
        sent.sort();
        assert_eq!(fields(Given::schema()), sent);
    }
}
