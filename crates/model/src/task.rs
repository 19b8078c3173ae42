//! Task types (a closed catalog) and task states.

use crate::state::text_enum;

text_enum! {
    /// Every task type. An agent refuses task types that are not compiled in.
    TaskType {
        /// Changes nothing and returns at once; measures the round trip of a task.
        Noop = "host.noop",
        /// Reports the node's inventory.
        Inspect = "host.inspect",
        /// Checks whether an app can run on the node.
        Preflight = "host.preflight",
        /// Lists what an app left behind.
        Residue = "host.residue",
        /// Applies one safe fix.
        Fix = "host.fix",
        /// Downloads verified artifacts to the node.
        ArtifactFetch = "artifact.fetch",
        /// Installs a fetched release.
        Rke2Install = "rke2.install",
        /// Writes the configuration.
        Rke2Configure = "rke2.configure",
        /// Starts the unit and follows it until it is up.
        Rke2Start = "rke2.start",
        /// Stops the unit and ends what it leaves running.
        Rke2Stop = "rke2.stop",
        /// Enables the unit, and lifts a mask; starts nothing.
        Rke2Enable = "rke2.enable",
        /// Reports the unit's state with evidence.
        Rke2Observe = "rke2.observe",
        /// Reads the admin kubeconfig into the sealed store.
        Rke2KubeconfigRead = "rke2.kubeconfig.read",
        /// Runs RKE2's uninstall script.
        Rke2Uninstall = "rke2.uninstall",
    }
}

impl TaskType {
    /// Returns what the task does on its node: the end of a sentence such as "waiting for agent-1 to …".
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Noop => "answer a ping",
            Self::Inspect => "be inspected",
            Self::Preflight => "pass the checks of its node",
            Self::Residue => "confirm that nothing is left on its node",
            Self::Fix => "apply a fix",
            Self::ArtifactFetch => "fetch the release",
            Self::Rke2Install => "install the release",
            Self::Rke2Configure => "write its configuration",
            Self::Rke2Start => "start",
            Self::Rke2Stop => "stop",
            Self::Rke2Enable => "enable its service at boot",
            Self::Rke2Observe => "report what is installed",
            Self::Rke2KubeconfigRead => "hand over the kubeconfig",
            Self::Rke2Uninstall => "uninstall the release",
        }
    }

    /// Returns true if the task always belongs to a workload. The others are platform tasks, which inspect or fix a machine.
    pub const fn is_for_workload(self) -> bool {
        match self {
            Self::Preflight
            | Self::Residue
            | Self::ArtifactFetch
            | Self::Rke2Install
            | Self::Rke2Configure
            | Self::Rke2Start
            | Self::Rke2Stop
            | Self::Rke2Enable
            | Self::Rke2Observe
            | Self::Rke2KubeconfigRead
            | Self::Rke2Uninstall => true,
            Self::Noop | Self::Inspect | Self::Fix => false,
        }
    }

    /// Returns true if the task can leave parts of an app on the node or remove them. The agent's staging of artifacts and safe fixes do
    /// not count.
    pub const fn touches_app(self) -> bool {
        match self {
            Self::Rke2Install
            | Self::Rke2Configure
            | Self::Rke2Start
            | Self::Rke2Stop
            | Self::Rke2Enable
            | Self::Rke2Uninstall => true,
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
    /// State of a task.
    TaskState {
        /// Recorded with its signed envelope; it may not have been sent yet. The step shows the progress of the task.
        Dispatched = "dispatched",
        /// Done.
        Succeeded = "succeeded",
        /// Failed; the result has the reason.
        Failed = "failed",
        /// Not done by its deadline.
        Expired = "expired",
        /// Ended by a cancellation.
        Cancelled = "cancelled",
        /// The agent died while it ran the task; its effect is unknown until the node is observed.
        Interrupted = "interrupted",
    }
}

impl TaskState {
    /// Returns true if the task has ended.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Dispatched => false,
            Self::Succeeded | Self::Failed | Self::Expired | Self::Cancelled | Self::Interrupted => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_open_until_a_final_state() {
        let open = TaskState::ALL.iter().copied().filter(|state| !state.is_final());
        assert_eq!(open.collect::<Vec<_>>(), [TaskState::Dispatched]);
    }

    #[test]
    fn platform_tasks_are_noop_inspect_and_fix() {
        let of_platform = TaskType::ALL.iter().copied().filter(|task| !task.is_for_workload());
        assert_eq!(of_platform.collect::<Vec<_>>(), [TaskType::Noop, TaskType::Inspect, TaskType::Fix]);
    }

    #[test]
    fn install_configure_start_stop_and_uninstall_touch_an_app() {
        use TaskType as T;
        let changing = T::ALL.iter().copied().filter(|task| task.touches_app());
        let expected = [T::Rke2Install, T::Rke2Configure, T::Rke2Start, T::Rke2Stop, T::Rke2Enable, T::Rke2Uninstall];
        assert_eq!(changing.collect::<Vec<_>>(), expected);
    }
}
