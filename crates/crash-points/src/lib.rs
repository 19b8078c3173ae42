//! Crash points are named moments at which a crash matters: before an effect, during it, after it but before its record, and after the
//! record but before the response. A test can stop a process exactly there.
//!
//! Guarantees: without the feature `armed`, which no released program has, reaching a point does nothing. With it, a file with the point's
//! name in the configured directory arms the point; reaching the point disarms it, so it stops the process once. With the feature
//! `watched`, a simulation, which runs its processes on one thread, receives each point that this thread reaches.
//!
//! Deliberately absent: killing (the test does that, or the simulated process itself), and what must hold afterwards.

use std::fmt;

use gpuaas_model::TaskType;

/// Environment variable with the directory of armed points.
pub const FOLDER: &str = "GPUAAS_CRASH_POINTS";
/// Directory of armed points for processes in a sandbox, relative to the sandbox root.
pub const FOLDER_OF_SANDBOX: &str = ".sandbox/crash-points";

/// Kind of an operation's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A signed task on a node.
    NodeTask,
    /// A request to the app's cluster.
    ClusterCall,
    /// A read or change of the control plane's own records.
    Record,
}

impl StepKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::NodeTask, Self::ClusterCall, Self::Record];

    const fn name(self) -> &'static str {
        match self {
            Self::NodeTask => "node-task",
            Self::ClusterCall => "cluster-call",
            Self::Record => "record",
        }
    }
}

/// Progress of a control plane's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStage {
    /// The sealing key is stored; the store does not exist yet.
    KeyKept,
    /// The store has its tables.
    StoreOpened,
    /// The first rows are durable; no file outside the store records that.
    RowsKept,
    /// The data directory is marked as used.
    UseKept,
    /// The one-time admin token is stored.
    AdminKept,
    /// The authorities' certificates are stored for clients; no listener is open yet.
    CaKept,
}

impl StartStage {
    /// Every stage, in order.
    pub const ALL: [Self; 6] =
        [Self::KeyKept, Self::StoreOpened, Self::RowsKept, Self::UseKept, Self::AdminKept, Self::CaKept];

    const fn name(self) -> &'static str {
        match self {
            Self::KeyKept => "key-kept",
            Self::StoreOpened => "store-opened",
            Self::RowsKept => "rows-kept",
            Self::UseKept => "use-kept",
            Self::AdminKept => "admin-kept",
            Self::CaKept => "ca-kept",
        }
    }
}

/// Progress of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreStage {
    /// The staging directory exists and is empty.
    Begun,
    /// Everything is verified and staged; nothing is in place.
    Ready,
    /// The artifacts are in place.
    Artifacts,
    /// The keys and the one-time token are also in place.
    Keys,
    /// The rows are also in place; the staging directory still exists.
    InPlace,
}

impl RestoreStage {
    /// Every stage, in order.
    pub const ALL: [Self; 5] = [Self::Begun, Self::Ready, Self::Artifacts, Self::Keys, Self::InPlace];

    const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Ready => "ready",
            Self::Artifacts => "artifacts",
            Self::Keys => "keys",
            Self::InPlace => "in-place",
        }
    }
}

/// A point at which a process can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Control plane: its start reached this stage.
    Start(StartStage),
    /// Control plane: the attempt is recorded in rows; none of it was executed.
    StepBegun(StepKind),
    /// Control plane: the attempt ended; no row records that.
    StepAnswered(StepKind),
    /// Control plane: rows record the end; no one was notified.
    StepSettled(StepKind),
    /// Control plane: an archive's file is durable; no row refers to it.
    ArchiveWritten,
    /// Control plane: a row refers to the archive; nothing that it contains was deleted yet.
    ArchiveRecorded,
    /// Agent: the task is in the ledger; none of it was executed.
    TaskBegun(TaskType),
    /// Agent: the task has changed something on the host but is not done.
    TaskInside(TaskType),
    /// Agent: the task is done; the ledger does not record that.
    TaskDone(TaskType),
    /// Agent: the ledger records the outcome; it was not reported.
    TaskEnded(TaskType),
    /// `gpuaas server restore`: it reached this stage.
    Restore(RestoreStage),
    /// Init: a unit's process is about to be started.
    UnitStarting,
    /// Init: a unit's process was started; that was not reported.
    UnitStarted,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(stage) => write!(f, "start.{}", stage.name()),
            Self::StepBegun(kind) => write!(f, "step.begun.{}", kind.name()),
            Self::StepAnswered(kind) => write!(f, "step.answered.{}", kind.name()),
            Self::StepSettled(kind) => write!(f, "step.settled.{}", kind.name()),
            Self::ArchiveWritten => f.write_str("archive.written"),
            Self::ArchiveRecorded => f.write_str("archive.recorded"),
            Self::TaskBegun(task) => write!(f, "task.begun.{task}"),
            Self::TaskInside(task) => write!(f, "task.inside.{task}"),
            Self::TaskDone(task) => write!(f, "task.done.{task}"),
            Self::TaskEnded(task) => write!(f, "task.ended.{task}"),
            Self::Restore(stage) => write!(f, "restore.{}", stage.name()),
            Self::UnitStarting => f.write_str("unit.starting"),
            Self::UnitStarted => f.write_str("unit.started"),
        }
    }
}

impl Point {
    /// Returns every point, for every step kind and task type.
    pub fn all() -> Vec<Self> {
        let steps = StepKind::ALL
            .into_iter()
            .flat_map(|kind| [Self::StepBegun(kind), Self::StepAnswered(kind), Self::StepSettled(kind)]);
        let tasks = TaskType::ALL.iter().flat_map(|task| {
            let inside = task.touches_app().then_some(Self::TaskInside(*task));
            [Self::TaskBegun(*task), Self::TaskDone(*task), Self::TaskEnded(*task)].into_iter().chain(inside)
        });
        let restores = RestoreStage::ALL.into_iter().map(Self::Restore);
        StartStage::ALL
            .map(Self::Start)
            .into_iter()
            .chain(steps)
            .chain(tasks)
            .chain(restores)
            .chain([Self::ArchiveWritten, Self::ArchiveRecorded, Self::UnitStarting, Self::UnitStarted])
            .collect()
    }
}

/// Marks that the calling process reached `point`.
pub fn reach(point: Point) {
    #[cfg(feature = "watched")]
    watched::reach(point);
    #[cfg(feature = "armed")]
    stop_if_armed(point);
    #[cfg(not(any(feature = "watched", feature = "armed")))]
    let _ = point;
}

/// Continues unwinding if the caught panic is the death of a simulated process, so that code that catches panics does not keep it alive.
pub fn resume_if_died(panic: Box<dyn std::any::Any + Send>) {
    #[cfg(feature = "watched")]
    if panic.is::<Died>() {
        std::panic::resume_unwind(panic);
    }
    drop(panic);
}

#[cfg(feature = "watched")]
pub use watched::{Died, Watch, watch};

#[cfg(feature = "watched")]
mod watched;

/// Stops the whole process with `SIGSTOP` if a test armed the point, until the test kills or continues it.
#[cfg(feature = "armed")]
fn stop_if_armed(point: Point) {
    use std::path::PathBuf;

    let of_sandbox = || Some(PathBuf::from(std::env::var_os("GPUAAS_SANDBOX_ROOT")?).join(FOLDER_OF_SANDBOX));
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from).or_else(of_sandbox) else { return };
    let (armed, reached) = (folder.join(point.to_string()), folder.join(format!("{point}.reached")));
    // If several threads arrive at once, only the one that renames the file stops the process.
    if std::fs::rename(armed, reached).is_err() {
        return;
    }
    // If the process cannot be stopped it continues, and the test that waits for it fails.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_point_has_a_unique_name() {
        let all = Point::all();
        let names: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len());
        for kind in StepKind::ALL {
            assert_eq!(names.iter().filter(|name| name.ends_with(kind.name())).count(), 3, "{kind:?}");
        }
        for task in TaskType::ALL {
            let points = names.iter().filter(|name| name.ends_with(&format!(".{task}"))).count();
            assert_eq!(points, if task.touches_app() { 4 } else { 3 }, "{task}");
        }
    }
}
