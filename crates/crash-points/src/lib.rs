//! The moments at which a death matters: before an effect, inside it, after it and before its record, after the record and before the
//! answer. Each has a name, and a test may have a process die or stand still exactly there.
//!
//! Guarantees: without the feature `armed`, which no shipped program has, reaching a point does nothing. With it a point is armed by a file of
//! its name in the folder that the process was given, and is disarmed when it is reached, so that it strikes once. With the feature `watched`
//! a simulation, whose processes are all on one thread, is told of each point that this thread reaches.
//!
//! Deliberately absent: who is killed (the test's business, where it is not the process itself) and what must hold afterwards.

use std::fmt;

use gpuaas_model::TaskType;

/// Names the folder with the points that are armed.
pub const FOLDER: &str = "GPUAAS_CRASH_POINTS";
/// Where a sandbox's processes look, below its root.
pub const FOLDER_OF_SANDBOX: &str = ".sandbox/crash-points";

/// A kind of step of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A signed task on a node.
    NodeTask,
    /// A call to the app's cluster.
    ClusterCall,
    /// A look at or a change of our own records.
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

/// How far a start of the control plane has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStage {
    /// The sealing key is there, and no store.
    KeyKept,
    /// The store has its tables.
    StoreOpened,
    /// The first rows are durable, and nothing beside the store says so.
    RowsKept,
    /// The data directory says that it was used.
    UseKept,
    /// The one-time admin token is there.
    AdminKept,
    /// The authorities are there for clients; nobody listens yet.
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

/// How far a restore has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreStage {
    /// The staging folder is there, and nothing in it.
    Begun,
    /// Everything is checked and staged, and nothing of it is in place.
    Ready,
    /// The artifacts are in place.
    Artifacts,
    /// So are keys and one-time token.
    Keys,
    /// So are the rows, and the staging folder is still there.
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

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Control plane: it starts.
    Start(StartStage),
    /// Control plane: the attempt is in rows, and nothing of it was done.
    StepBegun(StepKind),
    /// Control plane: the attempt ended, and no row says so.
    StepAnswered(StepKind),
    /// Control plane: the end is in rows, and nobody was told.
    StepSettled(StepKind),
    /// Control plane: the file of an archive is durable, and no row names it.
    ArchiveWritten,
    /// Control plane: a row names the archive, and nothing that it holds was deleted.
    ArchiveRecorded,
    /// Agent: the task is in the ledger, and nothing of it was done.
    TaskBegun(TaskType),
    /// Agent: the task has changed something on the host, and is not done.
    TaskInside(TaskType),
    /// Agent: all of the task is done, and the ledger does not say so.
    TaskDone(TaskType),
    /// Agent: the ledger says how the task ended, and nobody was told.
    TaskEnded(TaskType),
    /// `gpuaas server restore`: it has come so far.
    Restore(RestoreStage),
    /// Init: a unit's process is about to be started.
    UnitStarting,
    /// Init: a unit's process was started, and nobody was told.
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
    /// Every point of every kind of step and type of task.
    pub fn all() -> Vec<Self> {
        let steps = StepKind::ALL
            .into_iter()
            .flat_map(|kind| [Self::StepBegun(kind), Self::StepAnswered(kind), Self::StepSettled(kind)]);
        let tasks = TaskType::ALL.iter().flat_map(|task| {
            let inside = task.changes_host().then_some(Self::TaskInside(*task));
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

/// Says that this process is at that point.
pub fn reach(point: Point) {
    #[cfg(feature = "watched")]
    watched::reach(point);
    #[cfg(feature = "armed")]
    strike(point);
    #[cfg(not(any(feature = "watched", feature = "armed")))]
    let _ = point;
}

/// Unwinds on where a simulated process dies: for code that catches the panics of others, which must not keep a dead process going.
pub fn pass_on_death(panic: Box<dyn std::any::Any + Send>) {
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

/// Where a test has armed the point, all of the process stands still, until it is killed or told to go on.
#[cfg(feature = "armed")]
fn strike(point: Point) {
    use std::path::PathBuf;

    let of_sandbox = || Some(PathBuf::from(std::env::var_os("GPUAAS_SANDBOX_ROOT")?).join(FOLDER_OF_SANDBOX));
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from).or_else(of_sandbox) else { return };
    let (armed, reached) = (folder.join(point.to_string()), folder.join(format!("{point}.reached")));
    // One of several that come here at once: whoever can give the file its other name.
    if std::fs::rename(armed, reached).is_err() {
        return;
    }
    // A process that cannot even be stopped goes on, and the test that waits for its death says so.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_of_step_and_type_of_task_has_its_points_under_names_of_their_own() {
        let all = Point::all();
        let names: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len());
        for kind in StepKind::ALL {
            assert_eq!(names.iter().filter(|name| name.ends_with(kind.name())).count(), 3, "{kind:?}");
        }
        for task in TaskType::ALL {
            let points = names.iter().filter(|name| name.ends_with(&format!(".{task}"))).count();
            assert_eq!(points, if task.changes_host() { 4 } else { 3 }, "{task}");
        }
    }
}
