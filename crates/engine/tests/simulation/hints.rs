//! Hints of drift on their way from an agent to the engine: they are late, are repeated, and are lost with the connection that carries them.

use std::{sync::Arc, time::Duration};

use gpuaas_engine::EngineError;
use gpuaas_model::Lifecycle;

use crate::{
    node::{Link, Node},
    plane::Plane,
    simulation::Simulation,
};

/// An agent waits this long for further changes before it sends a hint.
const QUIET_TIME: Duration = Duration::from_millis(500);
/// A hint that the engine could not take is delivered again after this long.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Node {
    /// Begins to observe the host, as after each connection and each operation: an agent begins with a hint. To save time it is sent only if
    /// its check would find something, or must find that nothing is left.
    pub(crate) fn begin_observation(self: &Arc<Self>, simulation: &Arc<Simulation>) {
        let is_due = self.machine().may_deviate();
        if is_due {
            self.hint_drift(simulation);
        }
    }

    /// Sends a hint, as an agent does that sees a change. Without a connection it is sent after the next one begins.
    pub(crate) fn hint_drift(self: &Arc<Self>, simulation: &Arc<Simulation>) {
        let Some(link) = self.link() else { return };
        let (node, within) = (self.clone(), simulation.clone());
        simulation.scheduler.spawn(simulation.outside, async move {
            within.scheduler.sleep(QUIET_TIME + within.latency()).await;
            if within.happens(|faults| faults.lost) {
                // A stream loses data only with its connection.
                link.ended.cancel();
            }
            if link.ended.is_cancelled() {
                within.count("drift hints lost");
                return within.log(&format!("{}: a hint of drift was lost", node.name));
            }
            node.deliver_hint(&within, &link);
            if within.happens(|faults| faults.duplicated) {
                within.count("drift hints repeated");
                within.scheduler.sleep(within.latency()).await;
                node.deliver_hint(&within, &link);
            }
        });
    }

    /// Delivers a hint to the engine until that has taken it or the connection ends.
    fn deliver_hint(self: &Arc<Self>, simulation: &Arc<Simulation>, link: &Link) {
        let Some(plane) = simulation.plane_of(link.plane) else { return };
        let (node, within, link) = (self.clone(), simulation.clone(), link.clone());
        simulation.scheduler.spawn(link.plane, async move {
            while !link.ended.is_cancelled() {
                match node.take_hint(&plane, &link).await {
                    Ok(is_in_service) => {
                        if is_in_service {
                            node.machine().hinted_at = Some(within.scheduler.now());
                        }
                        within.count("drift hints taken");
                        return within.log(&format!("{}: {} took a hint of drift", node.name, plane.name));
                    }
                    Err(error) => within.log(&format!("{}: a hint of drift was not taken: {error}", node.name)),
                }
                within.scheduler.sleep(RETRY_AFTER).await;
            }
        });
    }

    /// Returns true if the hint is about a member in service of a running workload; the engine ignores others.
    async fn take_hint(&self, plane: &Plane, link: &Link) -> Result<bool, EngineError> {
        let mut reader = plane.engine.store().read().await?;
        let mut is_in_service = false;
        for member in reader.members_on(self.id).await? {
            let lifecycle = reader.workload(member.workload).await?.lifecycle;
            is_in_service |= member.state.is_in_service() && lifecycle == Lifecycle::Running;
        }
        drop(reader);
        for unit in plane.engine.units_on(self.id).await? {
            plane.engine.drift_reported(link.enrolled, &unit).await?;
        }
        Ok(is_in_service)
    }
}
