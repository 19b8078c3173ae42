//! Schema versions of task parameters. Newer versions only add fields, so older agents receive the same parameters without them.

use serde_json::Value;

use super::{TaskDefinition, TaskSupport};

impl TaskDefinition {
    /// Returns the newest schema version, not older than `oldest`, that the agent supports, and the parameters without fields of newer
    /// versions. If the agent supports no suitable version, returns `oldest`, and the agent refuses the task.
    pub fn params_for_agent(&self, oldest: u32, params: Value, support: &[TaskSupport]) -> (u32, Value) {
        let known =
            support.iter().filter(|known| known.task == self.task_type.as_str()).flat_map(|known| &known.schemas);
        let schema = known.copied().filter(|schema| (oldest..=self.newest).contains(schema)).max().unwrap_or(oldest);
        (schema, without_newer(params, schema, self.added))
    }
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

#[cfg(test)]
mod tests;
