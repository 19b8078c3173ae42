//! What every route works with.

use std::sync::Arc;

use gpuaas_artifacts::Importer;
use gpuaas_engine::Engine;

use crate::{
    idempotency::UnderWay,
    journals::Journals,
    limits::{Limits, Paces},
    metrics::Metrics,
};

/// What every route works with. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) importer: Arc<Importer>,
    pub(crate) journals: Arc<dyn Journals>,
    pub(crate) metrics: Metrics,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) limits: Arc<Limits>,
}

impl ApiState {
    /// Over that engine, what imports releases, and the way to its nodes' journals.
    pub fn new(engine: Arc<Engine>, importer: Importer, journals: Arc<dyn Journals>, paces: Paces) -> Self {
        let limits = Arc::new(Limits::new(paces, engine.ports().runtime.clone()));
        Self {
            engine,
            importer: Arc::new(importer),
            journals,
            metrics: Metrics::new(),
            under_way: Arc::default(),
            limits,
        }
    }
}
