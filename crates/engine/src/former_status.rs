//! Updates the stored status of workloads that an earlier version ended: it stored a cancelled deployment and a failed decommission as
//! `failed`, and removed workloads and members as `healthy`.
//!
//! Runs at every start. It changes nothing that is up to date, and another replica that does the same at the same time is harmless.

use gpuaas_model::{CorrelationId, Health, Lifecycle, MemberState, WorkloadId};
use gpuaas_store::{MemberRecord, Page, WorkloadFilter};

use crate::{engine::Engine, error::EngineError, record::EventScope, workload_status::refresh_workload};

impl Engine {
    /// Derives the status of these workloads again.
    pub async fn update_former_statuses(&self) -> Result<(), EngineError> {
        let failed = WorkloadFilter { lifecycle: Some(Lifecycle::Failed), ..WorkloadFilter::default() };
        let removed = WorkloadFilter {
            lifecycle: Some(Lifecycle::Decommissioned),
            health: Some(Health::Healthy),
            ..WorkloadFilter::default()
        };
        for mut filter in [failed, removed] {
            loop {
                let page = self.store().read().await?.workloads(&filter).await?;
                for workload in &page {
                    self.update_former_status(workload.id).await?;
                }
                if page.len() < Page::LIMIT_MAX as usize {
                    break;
                }
                filter.page.after = page.last().map(|workload| workload.id.to_string());
            }
        }
        Ok(())
    }

    async fn update_former_status(&self, workload: WorkloadId) -> Result<(), EngineError> {
        let mut tx = self.store().begin().await?;
        let events = EventScope {
            project: tx.workload(workload).await?.project,
            correlation: CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy),
        };
        for member in tx.members_of(workload).await? {
            if member.state == MemberState::Removed && member.health != Health::None {
                let state = member.state.name();
                tx.update_member(&MemberRecord { health: Health::None, ..member }, state).await?;
            }
        }
        refresh_workload(&mut tx, &events, workload).await?;
        Ok(tx.commit().await?)
    }
}
