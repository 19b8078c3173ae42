//! What a body tells the audit about a request that is refused.

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use gpuaas_model::{Code, cut, visible};
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest recorded target, in bytes. It contains text of the client.
const TARGET_BYTES_MAX: usize = 256;

/// Body of a request whose refusal would be recorded, set when it is read. A refusal reads the name of the object from it.
#[derive(Clone, Default)]
pub(crate) struct NamingBody(pub(crate) Arc<OnceLock<Bytes>>);

/// Fields of a body that name the object to be created, the node to be allocated, the release to be imported, or the kind of an operation
/// or credential.
#[derive(Default, Deserialize)]
struct Named {
    #[serde(alias = "node")]
    name: Option<String>,
    app: Option<String>,
    version: Option<String>,
    kind: Option<String>,
}

impl NamingBody {
    fn read(&self) -> Named {
        self.0.get().and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default()
    }

    /// Returns the target that a success would have recorded: `noun` with the name of the object; `noun` alone if the body names none.
    pub(crate) fn complete(&self, noun: String) -> String {
        let target = match (self.read(), noun.as_str()) {
            (Named { app: Some(app), version: Some(version), .. }, "artifact") => format!("release/{app}/{version}"),
            (Named { app: Some(app), .. }, "artifact") => format!("release/{app}"),
            (Named { name: Some(name), .. }, _) => format!("{noun}/{name}"),
            (Named { name: None, .. }, _) => noun.clone(),
        };
        // Escaped: a body may contain any character, a database stores no NUL.
        bounded(&visible(&target))
    }

    /// Returns the metadata of a refusal.
    pub(crate) fn metadata(&self, code: Code) -> Value {
        match self.read().kind {
            Some(kind) => json!({ "code": code, "kind": bounded(&visible(&kind)) }),
            None => json!({ "code": code }),
        }
    }
}

/// Cuts a client's text to the length of a target.
pub(crate) fn bounded(target: &str) -> String {
    cut(target, TARGET_BYTES_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_operation_is_recorded_with_its_kind() {
        let naming = NamingBody::default();
        assert_eq!(naming.metadata(Code::Forbidden), json!({ "code": "forbidden" }));
        naming.0.set(Bytes::from_static(br#"{ "app": "rke2", "kind": "upgrade" }"#)).expect("set once");
        assert_eq!(naming.metadata(Code::Forbidden), json!({ "code": "forbidden", "kind": "upgrade" }));
    }

    #[test]
    fn target_of_a_request_that_creates_an_object_has_the_name_in_its_body() {
        let target = |noun: &str, body: &'static str| {
            let naming = NamingBody::default();
            naming.0.set(Bytes::from_static(body.as_bytes())).expect("set once");
            naming.complete(noun.to_owned())
        };
        let named = |body| target("workload", body);
        assert_eq!(named(r#"{ "app": "rke2", "name": "train" }"#), "workload/train");
        assert_eq!(named(r#"{ "project": "ml", "node": "gpu-1" }"#), "workload/gpu-1");
        assert_eq!(named(r#"{ "name": 1 }"#), "workload");
        let imported = |body| target("artifact", body);
        assert_eq!(imported(r#"{ "app": "rke2", "version": "v1", "source": "/x" }"#), "release/rke2/v1");
        assert_eq!(imported(r#"{ "app": "rke2", "source": "/x" }"#), "release/rke2");
        assert_eq!(named(r#"{ "name": "x\u0000\u001b" }"#), r"workload/x\u{0}\u{1b}");
        assert_eq!(NamingBody::default().complete("workload".to_owned()), "workload");
    }
}
