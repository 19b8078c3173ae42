//! What every route works with.

use std::sync::Arc;

use gpuaas_engine::Engine;

/// What every route works with. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    pub(crate) engine: Arc<Engine>,
}

impl ApiState {
    /// Over that engine.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}
