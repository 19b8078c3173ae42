//! Safe fixes.

use gpuaas_model::{FixKind, TaskType};
use serde::{Deserialize, Serialize};

use super::TaskSpec;

/// Writes the one file of a fix and applies it. The values are the agent's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fix {
    /// Which.
    pub kind: FixKind,
}

/// What a fix did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// The file that keeps it over a reboot.
    pub path: String,
    /// Whether file or kernel changed.
    pub changed: bool,
    /// What was applied now, at most [`Fixed::APPLIED_MAX`].
    pub applied: Vec<Applied>,
}

/// A kernel parameter that was raised or a module that was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Its name.
    pub name: String,
    /// What it was before; absent for a module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What it is now.
    pub now: String,
}

impl Fixed {
    /// Most of them told.
    pub const APPLIED_MAX: usize = 16;
}

impl TaskSpec for Fix {
    const TYPE: TaskType = TaskType::Fix;
    type Result = Fixed;
}
