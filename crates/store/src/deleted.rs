//! Deleted nodes and projects. Their rows stay, because history refers to them; lists and searches by name leave them out.

use std::fmt::Display;

use gpuaas_model::{Name, NameError, Timestamp};

use crate::{
    error::StoreError,
    query::{Row, Value},
};

/// Returns the value of the unique column `name`. That of a deleted row is no name, so that its name can be used again.
pub(crate) fn name_column(name: &Name, id: impl Display, deleted_at: Option<Timestamp>) -> String {
    match deleted_at {
        Some(_) => format!("{name}/{id}"),
        None => name.to_string(),
    }
}

/// Returns the name in the column `name` of a row, deleted or not.
pub(crate) fn get_name(row: &Row) -> Result<Name, StoreError> {
    let column = row.text("name")?;
    let name = column.split('/').next().unwrap_or(column);
    name.parse().map_err(|error: NameError| row.corrupt("name", error))
}

/// Returns the value of the column `deleted_at`: milliseconds since the epoch; 0 while the object exists.
pub(crate) fn deleted_at_column(deleted_at: Option<Timestamp>) -> Value {
    Value::Int(deleted_at.map_or(0, Timestamp::as_millis))
}
