//! Queues for requests to clusters, shared fairly by projects and workloads.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use gpuaas_engine::{FairQueue, QueueFull, QueueLimits};
use gpuaas_kube::{Admission, CallKind, KubeError, Permit};
use gpuaas_model::{ProjectId, WorkloadId};
use tokio::time::timeout;

/// Requests in progress. Each may use a few times the memory of its answer, and the whole time limit of a request: 64 at once use about 60
/// MB and, if every cluster is hostile, complete four answers per second; healthy clusters answer in milliseconds. The steps of a
/// workload's 51 members wait for one another.
const REQUESTS: QueueLimits =
    QueueLimits { permits: 64, per_project: 8, per_workload: 1, waiting: 1_024, waiting_per_workload: 64 };
/// Watches in progress: one for each KubeNode that a step waits for or drains, at most 51 per workload. Each uses the memory of one event: 128 of a
/// hostile project use at most 32 MB.
const WATCHES: QueueLimits =
    QueueLimits { permits: 512, per_project: 128, per_workload: 64, waiting: 1_024, waiting_per_workload: 64 };
/// Watches of followed clusters, one for each running workload. They have a queue of their own, so that steps never wait for them. Each needs a
/// TLS connection, the buffers for one event and the stored values of up to 255 KubeNodes: about 100 KB for a healthy cluster, so 200 MB for
/// 2,048.
const FOLLOWED: QueueLimits =
    QueueLimits { permits: 2_048, per_project: 512, per_workload: 1, waiting: 4_096, waiting_per_workload: 2 };
/// Requests of followers in progress, before each list and watch. Apart from those of steps and people: after a restart all followers ask at
/// once, and one whose cluster is silent asks again every 10 s for as long as its workload runs.
const FOLLOWED_REQUESTS: QueueLimits =
    QueueLimits { permits: 32, per_project: 8, per_workload: 1, waiting: 4_096, waiting_per_workload: 2 };
/// Longest wait for a permit: less than half of the time that a delivery has in all.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The queues that all clusters share. Clones share them.
#[derive(Clone)]
pub(crate) struct Queues {
    requests: Arc<FairQueue>,
    watches: Arc<FairQueue>,
    followed: Arc<FairQueue>,
    followed_requests: Arc<FairQueue>,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            requests: FairQueue::new(REQUESTS),
            watches: FairQueue::new(WATCHES),
            followed: FairQueue::new(FOLLOWED),
            followed_requests: FairQueue::new(FOLLOWED_REQUESTS),
        }
    }
}

impl Queues {
    /// Returns the admission to the queues for one workload's cluster.
    pub(crate) fn of(&self, project: ProjectId, workload: WorkloadId) -> WorkloadAdmission {
        WorkloadAdmission { requests: self.requests.clone(), watches: self.watches.clone(), project, workload }
    }

    /// Returns the admission for the follower of one workload's cluster: its requests and watches wait in queues of their own.
    pub(crate) fn of_follower(&self, project: ProjectId, workload: WorkloadId) -> WorkloadAdmission {
        let (requests, watches) = (self.followed_requests.clone(), self.followed.clone());
        WorkloadAdmission { requests, watches, project, workload }
    }
}

/// Admits the requests to one workload's cluster.
pub(crate) struct WorkloadAdmission {
    requests: Arc<FairQueue>,
    watches: Arc<FairQueue>,
    project: ProjectId,
    workload: WorkloadId,
}

impl Admission for WorkloadAdmission {
    fn admit(&self, kind: CallKind) -> BoxFuture<'static, Result<Permit, KubeError>> {
        let queue = match kind {
            CallKind::Request => &self.requests,
            CallKind::Watch => &self.watches,
        };
        let wait = queue.enter(self.project, self.workload);
        async move {
            let permit = match wait {
                Ok(wait) => timeout(PERMIT_TIMEOUT, wait).await.ok().and_then(Result::ok),
                Err(QueueFull) => None,
            };
            let permit = permit.map(|permit| Box::new(permit) as Permit);
            permit.ok_or(KubeError::Busy { seconds: PERMIT_TIMEOUT.as_secs() })
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;

    fn of(queues: &Queues, project: u128, workload: u128) -> WorkloadAdmission {
        queues.of(ProjectId::from_uuid(Uuid::from_u128(project)), WorkloadId::from_uuid(Uuid::from_u128(workload)))
    }

    async fn admitted(queues: &Queues, project: u128, workload: u128) -> Result<Permit, KubeError> {
        of(queues, project, workload).admit(CallKind::Request).await
    }

    #[tokio::test(start_paused = true)]
    async fn second_request_of_a_workload_waits_and_is_refused_with_a_retry_time() {
        let (queues, began) = (Queues::default(), Instant::now());
        let first = admitted(&queues, 1, 1).await.expect("a permit");
        let refused = admitted(&queues, 1, 1).await.expect_err("the first request is running");
        assert!(matches!(refused, KubeError::Busy { seconds: 5 }), "{refused}");
        assert_eq!(began.elapsed(), PERMIT_TIMEOUT);
        assert!(of(&queues, 1, 1).admit(CallKind::Watch).await.is_ok(), "a watch does not wait for requests");
        drop(first);
        assert!(admitted(&queues, 1, 1).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn followed_clusters_never_keep_a_step_from_its_watch() {
        let queues = Queues::default();
        let follower = |workload: u128| {
            queues
                .of_follower(ProjectId::from_uuid(Uuid::from_u128(1)), WorkloadId::from_uuid(Uuid::from_u128(workload)))
                .admit(CallKind::Watch)
        };
        let mut permits = Vec::new();
        for workload in 0..FOLLOWED.per_project as u128 {
            permits.push(follower(workload).await.expect("a permit"));
        }
        let refused = follower(10_000).await.expect_err("the project follows as many as it may");
        assert!(matches!(refused, KubeError::Busy { .. }), "{refused}");
        assert!(of(&queues, 1, 1).admit(CallKind::Watch).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn follower_of_a_silent_cluster_delays_no_request_of_a_step_or_a_person() {
        let (queues, began) = (Queues::default(), Instant::now());
        let of_follower =
            queues.of_follower(ProjectId::from_uuid(Uuid::from_u128(1)), WorkloadId::from_uuid(Uuid::from_u128(1)));
        let _silent = of_follower.admit(CallKind::Request).await.expect("a permit");
        assert!(admitted(&queues, 1, 1).await.is_ok());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_project_never_has_all_requests() {
        let queues = Queues::default();
        let mut permits = Vec::new();
        for workload in 0..REQUESTS.permits as u128 {
            permits.extend(admitted(&queues, 1, workload).await.ok());
        }
        assert_eq!(permits.len(), REQUESTS.per_project);
        let began = Instant::now();
        assert!(admitted(&queues, 2, 1_000).await.is_ok());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
