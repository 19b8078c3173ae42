//! What a node can be told to do: a closed catalog, and where one such order is.

use crate::state::text_enum;

text_enum! {
    /// Every task type there is. An agent refuses what is not compiled into it.
    TaskType {
        /// Changes nothing and answers at once: measures the way of a task.
        Noop = "host.noop",
        /// Tells what the node is.
        Inspect = "host.inspect",
        /// Tells whether an app could run there.
        Preflight = "host.preflight",
        /// Lists what an app left behind.
        Residue = "host.residue",
        /// Carries out one of the closed set of safe fixes.
        Fix = "host.fix",
        /// Brings verified artifacts onto the node.
        ArtifactFetch = "artifact.fetch",
        /// Lays a fetched release out.
        Rke2Install = "rke2.install",
        /// Writes its configuration.
        Rke2Configure = "rke2.configure",
        /// Starts its unit and follows it until it is up.
        Rke2Start = "rke2.start",
        /// Stops its unit.
        Rke2Stop = "rke2.stop",
        /// Tells how its unit is, with evidence.
        Rke2Observe = "rke2.observe",
        /// Reads the admin kubeconfig into the sealed store.
        Rke2KubeconfigRead = "rke2.kubeconfig.read",
        /// Removes it by its own script.
        Rke2Uninstall = "rke2.uninstall",
    }
}

impl TaskType {
    /// Whether it is carried out for a workload alone. The rest is the platform's own: it looks at a machine, or mends it.
    pub const fn is_for_workload(self) -> bool {
        match self {
            Self::Preflight
            | Self::Residue
            | Self::ArtifactFetch
            | Self::Rke2Install
            | Self::Rke2Configure
            | Self::Rke2Start
            | Self::Rke2Stop
            | Self::Rke2Observe
            | Self::Rke2KubeconfigRead
            | Self::Rke2Uninstall => true,
            Self::Noop | Self::Inspect | Self::Fix => false,
        }
    }

    /// Whether it may leave something of an app on the node, or take it away. The agent's own staging of artifacts does not count, and a fix
    /// is the machine's own.
    pub const fn changes_host(self) -> bool {
        match self {
            Self::Rke2Install | Self::Rke2Configure | Self::Rke2Start | Self::Rke2Stop | Self::Rke2Uninstall => true,
            Self::Noop
            | Self::Inspect
            | Self::Preflight
            | Self::Residue
            | Self::Fix
            | Self::ArtifactFetch
            | Self::Rke2Observe
            | Self::Rke2KubeconfigRead => false,
        }
    }
}

text_enum! {
    /// Where a task is.
    TaskState {
        /// Recorded, not yet sent.
        Queued = "queued",
        /// Sent; the node has not said that it began.
        Dispatched = "dispatched",
        /// The node works on it.
        Running = "running",
        /// Done.
        Succeeded = "succeeded",
        /// Not done; says why.
        Failed = "failed",
        /// Not done in its time.
        Expired = "expired",
        /// Ended on request.
        Cancelled = "cancelled",
        /// The agent died in the middle; nobody knows how far it came until somebody looks.
        Interrupted = "interrupted",
    }
}

impl TaskState {
    /// Whether nothing more will happen in it.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Dispatched | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Expired | Self::Cancelled | Self::Interrupted => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_open_until_it_ended_in_one_way_or_another() {
        let open = TaskState::ALL.iter().copied().filter(|state| !state.is_final());
        assert_eq!(open.collect::<Vec<_>>(), [TaskState::Queued, TaskState::Dispatched, TaskState::Running]);
    }

    #[test]
    fn platform_tasks_are_noop_inspect_and_fix() {
        let of_platform = TaskType::ALL.iter().copied().filter(|task| !task.is_for_workload());
        assert_eq!(of_platform.collect::<Vec<_>>(), [TaskType::Noop, TaskType::Inspect, TaskType::Fix]);
    }

    #[test]
    fn a_node_is_changed_by_what_lays_out_starts_stops_or_removes() {
        use TaskType as T;
        let changing = T::ALL.iter().copied().filter(|task| task.changes_host());
        let expected = [T::Rke2Install, T::Rke2Configure, T::Rke2Start, T::Rke2Stop, T::Rke2Uninstall];
        assert_eq!(changing.collect::<Vec<_>>(), expected);
    }
}
