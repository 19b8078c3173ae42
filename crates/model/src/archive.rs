//! Kinds of archived history.

use crate::state::text_enum;

text_enum! {
    /// Contents of an archive.
    ArchiveKind {
        /// Ended operations with their steps and tasks.
        Operations = "operations",
        /// Ended tasks that belong to no operation, for example pings and inspections.
        Tasks = "tasks",
        /// Events of one stream.
        Events = "events",
        /// Audit records.
        Audit = "audit",
    }
}
