//! What every route works with.

use std::sync::Arc;

use gpuaas_artifacts::Importer;
use gpuaas_engine::Engine;

use crate::{
    body_budget::BodyBudgets,
    idempotency::UnderWay,
    install::Install,
    journals::Journals,
    limits::{Limits, Paces},
    metrics::Metrics,
    refusal_flood::RefusalFlood,
    routes::Readiness,
    streams::Streams,
    watched::Watched,
};

/// What every route works with. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) importer: Arc<Importer>,
    pub(crate) journals: Arc<dyn Journals>,
    pub(crate) install: Arc<Install>,
    pub(crate) metrics: Metrics,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) bodies: BodyBudgets,
    pub(crate) refusals: Arc<RefusalFlood>,
    pub(crate) streams: Arc<Streams>,
    /// Whether the store answers and takes changes.
    pub(crate) ready: Arc<Watched<Readiness>>,
    /// Whether what is counted from rows could be counted.
    pub(crate) counted: Arc<Watched<bool>>,
}

impl ApiState {
    /// Over that engine, what imports releases, the way to its nodes' journals, and what machines are brought in with.
    pub fn new(
        engine: Arc<Engine>,
        importer: Importer,
        journals: Arc<dyn Journals>,
        paces: Paces,
        install: Install,
    ) -> Self {
        let runtime = || engine.ports().runtime.clone();
        let limits = Arc::new(Limits::new(paces, runtime()));
        let refusals = Arc::new(RefusalFlood::new(runtime()));
        let (ready, counted) = (Arc::new(Watched::new(runtime())), Arc::new(Watched::new(runtime())));
        Self {
            engine,
            importer: Arc::new(importer),
            journals,
            install: Arc::new(install),
            metrics: Metrics::new(),
            under_way: Arc::default(),
            limits,
            bodies: BodyBudgets::new(),
            refusals,
            streams: Arc::default(),
            ready,
            counted,
        }
    }
}
