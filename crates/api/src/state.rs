//! What every route works with.

use std::sync::Arc;

use gpuaas_artifacts::ArtifactStore;
use gpuaas_engine::Engine;

/// What every route works with. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) artifacts: ArtifactStore,
}

impl ApiState {
    /// Over that engine and its artifacts.
    pub fn new(engine: Arc<Engine>, artifacts: ArtifactStore) -> Self {
        Self { engine, artifacts }
    }
}
