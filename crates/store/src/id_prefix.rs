//! Finds objects by the first characters of their ids.

use gpuaas_model::ProjectId;

use crate::{error::StoreError, query::get_text, select::Select, store::Reader};

/// The first characters of an id, as the range of the ids that begin with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    first: String,
    last: String,
}

impl IdPrefix {
    /// Fewest characters. Shorter texts are more often typing mistakes than ids.
    pub const LENGTH_MIN: usize = 4;

    /// Returns the range of ids that begin with `text`; `None` if no id does, or if it is too short.
    pub fn parse(text: &str) -> Option<Self> {
        const LOWEST: &str = "00000000-0000-0000-0000-000000000000";
        const HIGHEST: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";
        let text = text.to_ascii_lowercase();
        let fits = |(at, byte): (usize, u8)| match LOWEST.as_bytes()[at] {
            b'-' => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        let is_prefix = (Self::LENGTH_MIN..=LOWEST.len()).contains(&text.len()) && text.bytes().enumerate().all(fits);
        // Both ends have the form of an id, so that every collation of the database orders them like ids.
        is_prefix.then(|| Self {
            first: format!("{text}{}", &LOWEST[text.len()..]),
            last: format!("{text}{}", &HIGHEST[text.len()..]),
        })
    }
}

/// Kinds of objects that are found by their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// Access grants.
    AccessGrant,
    /// Allocations.
    Allocation,
    /// Archives, which belong to no project.
    Archive,
    /// Nodes; of a project, those that it holds.
    Node,
    /// Operations.
    Operation,
    /// Projects.
    Project,
    /// Tasks.
    Task,
    /// API tokens.
    Token,
    /// Workloads.
    Workload,
}

impl IdKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::AccessGrant,
        Self::Allocation,
        Self::Archive,
        Self::Node,
        Self::Operation,
        Self::Project,
        Self::Task,
        Self::Token,
        Self::Workload,
    ];

    /// Returns the noun for messages.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::AccessGrant => "access grant",
            Self::Allocation => "allocation",
            Self::Archive => "archive",
            Self::Node => "node",
            Self::Operation => "operation",
            Self::Project => "project",
            Self::Task => "task",
            Self::Token => "token",
            Self::Workload => "workload",
        }
    }
}

impl Reader {
    /// Returns the ids of this kind that begin with the prefix, the first few in their order: of one project, or of
    /// all.
    pub async fn ids_beginning(
        &mut self,
        kind: IdKind,
        prefix: &IdPrefix,
        project: Option<ProjectId>,
    ) -> Result<Vec<String>, StoreError> {
        let rows = self.selected(list(kind, prefix, project)).await?;
        rows.iter().map(|row| get_text(row, "id")).collect()
    }
}

/// Returns the statement for the ids that begin with the prefix.
pub(crate) fn list(kind: IdKind, prefix: &IdPrefix, project: Option<ProjectId>) -> Select {
    let (columns_from_table, key, owner) = match (kind, project) {
        (IdKind::AccessGrant, _) => (
            "access_grants.id as id from access_grants join workloads on workloads.id = access_grants.workload_id",
            "access_grants.id",
            "workloads.project_id",
        ),
        (IdKind::Node, Some(_)) => (
            "nodes.id as id from nodes join allocations on allocations.node_id = nodes.id \
             and allocations.state not in ('released', 'failed')",
            "nodes.id",
            "allocations.project_id",
        ),
        (IdKind::Node, None) => ("id from nodes", "id", ""),
        (IdKind::Allocation, _) => ("id from allocations", "id", "project_id"),
        (IdKind::Archive, _) => ("id from archives", "id", ""),
        (IdKind::Operation, _) => ("id from operations", "id", "project_id"),
        (IdKind::Project, _) => ("id from projects", "id", "id"),
        (IdKind::Task, _) => ("id from tasks", "id", "project_id"),
        (IdKind::Token, _) => ("id from tokens", "id", "project_id"),
        (IdKind::Workload, _) => ("id from workloads", "id", "project_id"),
    };
    let mut list = Select::all(columns_from_table).between(key, &prefix.first, &prefix.last);
    match kind {
        IdKind::Node => list = list.only("nodes.deleted_at = 0"),
        IdKind::Project => list = list.only("deleted_at = 0"),
        _ => {}
    }
    // One more than a message names, which shows that there are more.
    let list = list.equal(owner, project.filter(|_| !owner.is_empty()));
    list.then("order by id limit 6")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_the_range_of_ids_that_begin_with_it() {
        let range = |text: &str| IdPrefix::parse(text).map(|range| (range.first, range.last));
        assert_eq!(
            range("0198C0de-7"),
            Some(("0198c0de-7000-0000-0000-000000000000".into(), "0198c0de-7fff-ffff-ffff-ffffffffffff".into()))
        );
        for invalid in ["019", "gpu-7", "0198c0de7", "0198-", "0198c0de-7a3b-7c11-9b54-0242ac1200021"] {
            assert_eq!(range(invalid), None, "{invalid}");
        }
    }
}
