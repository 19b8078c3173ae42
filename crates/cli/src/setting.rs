//! Settings of the control plane with their origins.

use serde::Serialize;

use crate::table::{Column, column};

/// A setting with its effective value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Setting {
    /// Key in the file: the flag's long name without the leading dashes.
    pub(crate) key: String,
    /// Effective value, as given; absent without one.
    pub(crate) value: Option<String>,
    /// Source: `flag`, `environment`, `file` or `default`.
    pub(crate) from: String,
    /// The flag, the variable or `FILE:LINE`; absent for a default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
}

/// Columns of the list of settings.
pub(crate) const SETTINGS: &[Column<Setting>] = &[
    column("SETTING", |setting| setting.key.clone()),
    column("VALUE", |setting| setting.value.clone().unwrap_or_default()),
    column("FROM", |setting| setting.at.clone().unwrap_or_else(|| setting.from.clone())),
];
