//! What history is archived as.

use crate::state::text_enum;

text_enum! {
    /// What an archive holds.
    ArchiveKind {
        /// Operations that ended, with their steps and tasks.
        Operations = "operations",
        /// Tasks that ended and served no operation, such as pings and inspections.
        Tasks = "tasks",
        /// Events of one stream.
        Events = "events",
        /// Audit records.
        Audit = "audit",
    }
}
