//! The cluster of the test app, as its followers see it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::{StreamExt, stream};
use gpuaas_engine::effects::Observations;
use gpuaas_model::{Code, Fault, FaultClass, Health, MemberId, MemberState, NextAction};
use gpuaas_planner::{ClusterJudgment, MemberView, WorkloadView, report::Judgment};
use gpuaas_wire::task::TaskFailure;
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the cluster shows last, or why it cannot be asked; `None` if it has not shown anything yet.
type Shown = Option<Result<Value, TaskFailure>>;

pub(crate) struct FollowedCluster {
    /// Whether clusters are followed at all.
    pub(crate) is_followed: AtomicBool,
    shown: watch::Sender<Shown>,
    open: Arc<AtomicUsize>,
    begun: AtomicUsize,
}

impl Default for FollowedCluster {
    fn default() -> Self {
        let (is_followed, shown) = (AtomicBool::new(false), watch::Sender::new(None));
        Self { is_followed, shown, open: Arc::default(), begun: AtomicUsize::new(0) }
    }
}

/// Counts an open stream.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FollowedCluster {
    /// Shows the members with these names as unwell, and all others as well.
    pub(crate) fn shows_unwell(&self, members: &[&str]) {
        self.shown.send_replace(Some(Ok(json!(members))));
    }

    /// Fails with this code from now on.
    pub(crate) fn fails(&self, code: Code) {
        self.shown.send_replace(Some(Err(TaskFailure::new(code, "10.0.0.1:6443 refuses connections"))));
    }

    /// Number of streams that are open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Number of streams that were ever opened.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub(crate) fn follow(&self) -> Observations {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
        let (open, mut shown) = (Open(self.open.clone()), self.shown.subscribe());
        shown.mark_changed();
        let next = |(mut shown, open): (watch::Receiver<Shown>, Open)| async move {
            loop {
                shown.changed().await.ok()?;
                let newest = shown.borrow_and_update().clone();
                if let Some(observed) = newest {
                    return Some((observed, (shown, open)));
                }
            }
        };
        stream::unfold((shown, open), next).boxed()
    }

    /// The first member leads to the cluster while it is ready.
    pub(crate) fn through(&self, of: &WorkloadView) -> Option<MemberId> {
        let first = of.members.first().filter(|member| is_ready(member))?;
        self.is_followed.load(Ordering::SeqCst).then_some(first.id)
    }
}

/// Judges ready members; a cluster that cannot be reached is a fault of the first one.
pub(crate) fn judge(of: &WorkloadView, observed: Result<&Value, &TaskFailure>) -> Result<ClusterJudgment, TaskFailure> {
    let ready = of.members.iter().filter(|member| is_ready(member));
    let members = match observed {
        Ok(observed) => {
            let unreadable = || TaskFailure::new(Code::Internal, "unreadable");
            let names = observed.as_array().ok_or_else(unreadable)?;
            let judged = |member: &MemberView| {
                let is_unwell = names.iter().any(|name| name == member.name.as_str());
                let well = Judgment { health: Health::Healthy, fault: None };
                (member.id, if is_unwell { unwell(Code::KubeNodeNotReady) } else { well })
            };
            ready.map(judged).collect()
        }
        Err(failure) if failure.code == Code::ClusterUnreachable => {
            ready.take(1).map(|member| (member.id, unwell(Code::ClusterUnreachable))).collect()
        }
        Err(_) => Vec::new(),
    };
    Ok(ClusterJudgment { members, drift: Vec::new() })
}

fn unwell(code: Code) -> Judgment {
    let (class, next) = (FaultClass::Manual, NextAction::text("look"));
    let fault =
        Fault { code: code.to_string(), class, summary: "the cluster says so".to_owned(), evidence: None, next };
    Judgment { health: Health::Degraded, fault: Some(fault) }
}

fn is_ready(member: &MemberView) -> bool {
    matches!(member.state, MemberState::Ready { .. })
}
