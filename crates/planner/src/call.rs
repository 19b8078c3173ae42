//! A call to the cluster of a workload, as an app's effects receive it.

use gpuaas_model::Code;
use gpuaas_wire::task::TaskFailure;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// A cluster call of one attempt: its name from the step, and the parameters that `App::render` returned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterCall {
    /// Name, one of the app's.
    pub call: String,
    /// Parameters, an object.
    pub parameters: Value,
}

impl ClusterCall {
    /// Parses name and parameters as the app's own type: an enum with the tag `call` and the content `parameters`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, TaskFailure> {
        serde_json::from_value(json!(self)).map_err(|error| {
            TaskFailure::new(Code::TaskUnknown, format!("the cluster call {:?} is not known: {error}", self.call))
        })
    }
}
