//! State that all routes share.

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

/// State that all routes share. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) importer: Arc<Importer>,
    pub(crate) journals: Arc<dyn Journals>,
    pub(crate) install: Arc<Install>,
    pub(crate) metrics: Metrics,
    pub(crate) certificates: Arc<CertificatesEnd>,
    /// True if requests over loopback read `/metrics` without a token.
    pub(crate) metrics_over_loopback: bool,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) bodies: BodyBudgets,
    pub(crate) refusals: Arc<RefusalFlood>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) feeds: Arc<Feeds>,
    /// Responses to requests without a token that are in progress.
    pub(crate) downloads: Shares,
    /// True if the store answers and accepts changes.
    pub(crate) ready: Arc<Watched<Readiness>>,
    /// True if the metrics that count rows could be read.
    pub(crate) counted: Arc<Watched<bool>>,
    pub(crate) store_sizes: Arc<StoreSizes>,
}

/// Options of the API.
pub struct ApiOptions {
    /// Request rates.
    pub paces: Paces,
    /// Files and values for enrolling machines.
    pub install: Install,
    /// True if requests over loopback read `/metrics` without a token.
    pub metrics_over_loopback: bool,
    /// Expiry of the listeners' certificates.
    pub certificates: Arc<CertificatesEnd>,
}

impl ApiState {
    /// Creates the state for an engine, an importer of releases, and access to the journals of nodes.
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
