//! The version of this agent, and the task schemas that it accepts.
//!
//! With the feature `other-versions`, which exists only for tests, `GPUAAS_AGENT_VERSION` makes the agent act as another version: `older`
//! knows only the first schema of every task type; `newer` knows additional schemas and a task type that the present control plane does
//! not; `incompatible` predates the oldest schema of every task that changes a node. The agent reports that version and refuses the tasks that
//! such an agent would refuse. No package is built with this feature.

use std::ops::RangeInclusive;

use gpuaas_wire::task::TaskSupport;

#[cfg(feature = "other-versions")]
pub(crate) use other::{advertised, schemas, version};
#[cfg(not(feature = "other-versions"))]
pub(crate) use this::{advertised, schemas, version};

#[cfg(not(feature = "other-versions"))]
mod this {
    use super::{RangeInclusive, TaskSupport};

    /// Returns the agent's version.
    pub(crate) fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Returns those schemas of a task type that this version accepts.
    pub(crate) fn schemas(all: RangeInclusive<u32>, _is_exclusive: bool) -> RangeInclusive<u32> {
        all
    }

    /// Returns the task types that the hello message lists.
    pub(crate) fn advertised(support: Vec<TaskSupport>) -> Vec<TaskSupport> {
        support
    }
}

#[cfg(feature = "other-versions")]
mod other {
    use super::{RangeInclusive, TaskSupport};

    /// The version that the agent pretends to have.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Version {
        This,
        Older,
        Newer,
        Incompatible,
    }

    impl Version {
        pub(super) fn named(name: Option<&str>) -> Self {
            match name {
                None | Some("") => Self::This,
                Some("older") => Self::Older,
                Some("newer") => Self::Newer,
                Some("incompatible") => Self::Incompatible,
                Some(unknown) => panic!("GPUAAS_AGENT_VERSION must be older, newer or incompatible, not {unknown}"),
            }
        }

        fn of_process() -> Self {
            Self::named(std::env::var("GPUAAS_AGENT_VERSION").ok().as_deref())
        }

        pub(super) fn text(self) -> &'static str {
            match self {
                Self::This => env!("CARGO_PKG_VERSION"),
                Self::Older => "0.0.9",
                Self::Newer => "0.2.0",
                Self::Incompatible => "0.0.1",
            }
        }

        pub(super) fn schemas(self, all: RangeInclusive<u32>, is_exclusive: bool) -> RangeInclusive<u32> {
            let (oldest, newest) = (*all.start(), *all.end());
            match self {
                Self::This => all,
                Self::Older => oldest..=oldest,
                Self::Newer => oldest..=newest + 1,
                Self::Incompatible if is_exclusive => 0..=oldest - 1,
                Self::Incompatible => oldest..=oldest,
            }
        }

        pub(super) fn advertised(self, mut support: Vec<TaskSupport>) -> Vec<TaskSupport> {
            if self == Self::Newer {
                support.push(TaskSupport { task: "host.of_tomorrow".to_owned(), schemas: vec![1] });
            }
            support
        }
    }

    pub(crate) fn version() -> &'static str {
        Version::of_process().text()
    }

    pub(crate) fn schemas(all: RangeInclusive<u32>, is_exclusive: bool) -> RangeInclusive<u32> {
        Version::of_process().schemas(all, is_exclusive)
    }

    pub(crate) fn advertised(support: Vec<TaskSupport>) -> Vec<TaskSupport> {
        Version::of_process().advertised(support)
    }
}

#[cfg(all(test, feature = "other-versions"))]
mod tests {
    use gpuaas_model::TaskType;

    use super::{TaskSupport, other::Version, version};
    use crate::catalog::{catalog, support};

    fn advertised(version: Version) -> Vec<TaskSupport> {
        version.advertised(support(&catalog(|all, is_exclusive| version.schemas(all, is_exclusive))))
    }

    fn schemas(version: Version, task: TaskType) -> Vec<u32> {
        advertised(version).into_iter().find(|of| of.task == task.as_str()).expect("the task is in the catalog").schemas
    }

    #[test]
    fn this_version_is_reported_unchanged() {
        assert_eq!(Version::named(None), Version::This);
        assert_eq!(advertised(Version::This), support(&catalog(|all, _| all)));
        assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn simulated_versions_support_fewer_more_or_no_changing_tasks() {
        let newest = *schemas(Version::This, TaskType::Preflight).last().expect("the task has a schema");
        assert!(newest > 1, "the test needs a task with several schemas");
        assert_eq!(schemas(Version::Older, TaskType::Preflight), [1]);
        assert_eq!(schemas(Version::Newer, TaskType::Preflight).last(), Some(&(newest + 1)));
        for task in [TaskType::ArtifactFetch, TaskType::Rke2Install, TaskType::Rke2Start] {
            assert!(!schemas(Version::Incompatible, task).contains(&1), "{task}");
        }
        assert_eq!(schemas(Version::Incompatible, TaskType::Noop), [1]);
    }

    #[test]
    #[should_panic(expected = "older, newer or incompatible")]
    fn unknown_version_panics() {
        Version::named(Some("olden"));
    }
}
