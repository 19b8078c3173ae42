//! Safe fixes.

use gpuaas_model::{FixKind, TaskType};
use serde::{Deserialize, Serialize};

use super::TaskSpec;

/// Writes the file of a fix and applies it. The values are compiled into the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fix {
    /// The fix to apply.
    pub kind: FixKind,
}

/// Result of a fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// File that makes the fix survive a reboot.
    pub path: String,
    /// True if the file or the kernel changed.
    pub changed: bool,
    /// Changes applied by this task, at most [`Fixed::APPLIED_MAX`].
    pub applied: Vec<Applied>,
}

/// A kernel parameter that was raised or a module that was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Name of the parameter or module.
    pub name: String,
    /// Value before the fix; absent for a module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Value after the fix.
    pub now: String,
}

impl Fixed {
    /// Maximum number of changes listed.
    pub const APPLIED_MAX: usize = 16;
}

impl TaskSpec for Fix {
    const TYPE: TaskType = TaskType::Fix;
    type Result = Fixed;
}
