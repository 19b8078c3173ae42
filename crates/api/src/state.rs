//! What every route works with.

use std::sync::Arc;

use gpuaas_artifacts::Importer;
use gpuaas_engine::Engine;

use crate::{
    body_budget::BodyBudgets,
    certificates_end::CertificatesEnd,
    downloads::DOWNLOADS_MAX,
    feeds::Feeds,
    idempotency::UnderWay,
    install::Install,
    journals::Journals,
    limits::{Limits, Paces},
    metrics::Metrics,
    refusal_flood::RefusalFlood,
    routes::Readiness,
    shares::Shares,
    store_size::StoreSizes,
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
    pub(crate) certificates: Arc<CertificatesEnd>,
    /// Whether they are shown without a token to this very machine.
    pub(crate) metrics_over_loopback: bool,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) bodies: BodyBudgets,
    pub(crate) refusals: Arc<RefusalFlood>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) feeds: Arc<Feeds>,
    /// Answers without a token that are under way.
    pub(crate) downloads: Shares,
    /// Whether the store answers and takes changes.
    pub(crate) ready: Arc<Watched<Readiness>>,
    /// Whether what is counted from rows could be counted.
    pub(crate) counted: Arc<Watched<bool>>,
    pub(crate) store_sizes: Arc<StoreSizes>,
}

/// How the API is served.
pub struct ApiOptions {
    /// How often one may ask.
    pub paces: Paces,
    /// What machines are brought in with.
    pub install: Install,
    /// Whether `/metrics` is answered without a token to this very machine.
    pub metrics_over_loopback: bool,
    /// When the certificates of the listeners end.
    pub certificates: Arc<CertificatesEnd>,
}

impl ApiState {
    /// Over that engine, what imports releases, and the way to its nodes' journals.
    pub fn new(engine: Arc<Engine>, importer: Importer, journals: Arc<dyn Journals>, options: ApiOptions) -> Self {
        let runtime = || engine.ports().runtime.clone();
        let limits = Arc::new(Limits::new(options.paces, runtime()));
        let refusals = Arc::new(RefusalFlood::new(runtime()));
        let (ready, counted) = (Arc::new(Watched::new(runtime())), Arc::new(Watched::new(runtime())));
        Self {
            engine,
            importer: Arc::new(importer),
            journals,
            install: Arc::new(options.install),
            metrics_over_loopback: options.metrics_over_loopback,
            metrics: Metrics::new(),
            certificates: options.certificates,
            under_way: Arc::default(),
            limits,
            bodies: BodyBudgets::new(),
            refusals,
            streams: Arc::default(),
            feeds: Arc::default(),
            downloads: Shares::new(DOWNLOADS_MAX),
            ready,
            counted,
            store_sizes: Arc::default(),
        }
    }
}
