//! Schemas of path and query parameters. The routes themselves refuse other values.

use gpuaas_model::{LINE_FORMAT, Line, LogSource, Name};
use gpuaas_store::IdPrefix;
use serde_json::{Map, Value, json};
use utoipa::openapi::{
    Array, ArrayBuilder, KnownFormat, Object, ObjectBuilder, Ref, RefOr, Schema, SchemaFormat, Type,
};

use crate::page::LISTED_MAX;

/// A DNS label. An id in its usual form is one too.
const LABEL: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";

/// A file name without path separators and without a leading dot.
const FILE: &str = "^[A-Za-z0-9][A-Za-z0-9._~+-]*$";
/// A SHA-256 digest.
const DIGEST: &str = "^[0-9a-f]{64}$";
/// A member's name, a time and a number of lines.
const RESUMED: &str =
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3})?Z/[0-9]{1,9}$";
/// Longest name with a position, in bytes.
const RESUMED_BYTES_MAX: usize = 128;
/// Length of a UUID with its hyphens.
const UUID_BYTES: usize = 36;
/// Longest file name, in bytes.
const FILE_BYTES_MAX: usize = 255;

fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// Schema of a search text.
fn text() -> Object {
    line(string().max_length(Some(Line::SEARCH_TEXT.characters_max())))
}

/// Schema of a text that [`Line`] checks.
fn line(text: ObjectBuilder) -> Object {
    text.format(Some(SchemaFormat::Custom(LINE_FORMAT.to_owned()))).build()
}

/// Schema of an object's name or id.
fn key() -> Object {
    string().min_length(Some(1)).max_length(Some(Name::LENGTH_BYTES_MAX)).pattern(Some(LABEL)).build()
}

/// Schema of an object's id or of its first characters.
fn id_prefix() -> Object {
    let pattern = "^[0-9A-Fa-f][0-9A-Fa-f-]*$";
    string().min_length(Some(IdPrefix::LENGTH_MIN)).max_length(Some(UUID_BYTES)).pattern(Some(pattern)).build()
}

/// Schema of an object's id.
fn id() -> Object {
    string().format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid))).build()
}

/// Schema of a time.
fn time() -> Object {
    string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).build()
}

/// Schema of a page size.
fn limit() -> Object {
    let most = gpuaas_store::Page::LIMIT_MAX;
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(most)).build()
}

/// Schema of the number of an event or audit record, or of a number of seconds.
fn number() -> Object {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(i64::MAX)).build()
}

fn enumeration(values: impl IntoIterator<Item = &'static str>) -> Object {
    string().enum_values(Some(values)).build()
}

/// Schema of a list whose values a query separates by commas.
fn listed(of: Object) -> Array {
    ArrayBuilder::new().items(of).min_items(Some(1)).max_items(Some(LISTED_MAX)).build()
}

/// Schema of a member's name and a position in its journal.
fn resumed() -> Object {
    string().max_length(Some(RESUMED_BYTES_MAX)).pattern(Some(RESUMED)).build()
}

/// Reference to a component of the document.
fn component(name: &str) -> RefOr<Schema> {
    Ref::from_schema_name(name).into()
}

/// Schema of the name of a package, or of another file in the package folder.
fn file() -> Object {
    string().min_length(Some(1)).max_length(Some(FILE_BYTES_MAX)).pattern(Some(FILE)).build()
}

/// Replaces the entries' schema in the schema of every list, which repeats it, by a reference.
pub(super) fn refer_to_entries(schemas: &mut Map<String, Value>) {
    let lists: Vec<String> = schemas.keys().filter(|name| name.starts_with("List_")).cloned().collect();
    for list in lists {
        let entry = list.trim_start_matches("List_").to_owned();
        let reference = json!({ "$ref": format!("#/components/schemas/{entry}") });
        let inline = std::mem::replace(&mut schemas[&list]["properties"]["items"]["items"], reference);
        schemas.entry(entry).or_insert(inline);
    }
}

/// Returns the schema of the path segment `name`.
pub(super) fn of_path(name: &str) -> Object {
    match name {
        "id" => id_prefix(),
        "file" => file(),
        _ => key(),
    }
}

/// Returns the schema of the query parameter `name` of an operation; `None` if the operation's own description suffices.
pub(super) fn of_query(name: &str, operation: &str) -> Option<RefOr<Schema>> {
    let plain = match (name, operation) {
        ("member", "read_workload_logs") => return Some(Schema::from(listed(key())).into()),
        ("source", "read_workload_logs") => {
            let sources = LogSource::ALL.iter().map(|source| source.as_str());
            return Some(Schema::from(listed(enumeration(sources))).into());
        }
        ("resume", "read_workload_logs") => return Some(Schema::from(listed(resumed())).into()),
        ("give_up", "decommission_workload") => return Some(Schema::from(listed(key())).into()),
        ("reason", "decommission_workload") => {
            line(string().min_length(Some(1)).max_length(Some(Line::REASON.characters_max())))
        }
        ("project" | "workload" | "node", _) => key(),
        ("cursor" | "correlation", _) => id(),
        ("operation", _) => id_prefix(),
        ("limit", _) => limit(),
        ("after" | "after_event" | "since_seconds", _) => number(),
        ("since" | "until", _) => time(),
        ("order", _) => enumeration(["oldest", "newest"]),
        ("sha256", _) => string().min_length(Some(64)).max_length(Some(64)).pattern(Some(DIGEST)).build(),
        ("actor" | "target" | "app" | "unit", _) => text(),
        ("action", _) => return Some(component("AuditAction")),
        ("result", _) => return Some(component("AuditResult")),
        ("connectivity", _) => return Some(component("Connectivity")),
        ("health", _) => return Some(component("Health")),
        ("kind", "list_archives") => return Some(component("ArchiveKind")),
        ("lifecycle", _) => return Some(component("Lifecycle")),
        ("section", _) => return Some(component("Section")),
        ("state", "list_nodes") => return Some(component("NodeState")),
        ("state", "list_allocations") => return Some(component("AllocationState")),
        ("state", "list_operations") => return Some(component("OperationState")),
        ("state", "list_tasks") => return Some(component("TaskState")),
        _ => return None,
    };
    Some(plain.into())
}
