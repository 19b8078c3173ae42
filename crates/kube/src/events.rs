//! Events of a watch.

use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    calls::Watch,
    error::{KubeError, status_error},
    json,
};

/// HTTP status for a resource version that is too old to watch from.
const GONE: u16 = 410;

/// The kind of an event with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
    /// Only the object's version is valid.
    Bookmark,
}

/// An event with its object.
pub(crate) struct Event<T> {
    pub(crate) kind: EventKind,
    pub(crate) object: T,
}

/// The type of a line; read before the object, whose structure depends on it.
#[derive(Deserialize)]
struct LineType {
    #[serde(rename = "type")]
    kind: LineKind,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum LineKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Line<T> {
    object: T,
}

/// Kubernetes' object for an error.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

/// Returns the next event; `None` if the apiserver ended the watch. An event of type `ERROR` is the error that it contains.
pub(crate) async fn next<T: DeserializeOwned>(watch: &mut Watch) -> Result<Option<Event<T>>, KubeError> {
    let Some(line) = watch.next().await? else { return Ok(None) };
    let kind = match json::read::<LineType>(&line)?.kind {
        LineKind::Added => EventKind::Added,
        LineKind::Modified => EventKind::Modified,
        LineKind::Deleted => EventKind::Deleted,
        LineKind::Bookmark => EventKind::Bookmark,
        LineKind::Error => {
            let status = json::read::<Line<Status>>(&line)?.object;
            return Err(status_error(status.code, &status.message));
        }
    };
    Ok(Some(Event { kind, object: json::read::<Line<T>>(&line)?.object }))
}

/// Returns true if the version from which a watch was to continue is too old: the list must be read again.
pub(crate) fn is_too_old(error: &KubeError) -> bool {
    matches!(error, KubeError::Answered { status: GONE, .. })
}

/// Returns true if a new watch may succeed: after a connection error, with an apiserver that restarts or is busy, or after a too old
/// version.
pub(crate) fn is_transient(error: &KubeError) -> bool {
    error.is_transport()
        || matches!(error, KubeError::Busy { .. } | KubeError::Answered { status: 429 | GONE | 500.., .. })
}
