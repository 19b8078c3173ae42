//! State that all routes share.

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use gpuaas_artifacts::Importer;
use gpuaas_engine::Engine;

use crate::{
    body_budget::BodyBudgets,
    cached::Cached,
    certificate_expiry::CertificateExpiry,
    feeds::Feeds,
    in_progress::InProgress,
    install::Install,
    journals::Journals,
    limits::{Limits, Rates},
    metrics::Metrics,
    refusal_limiter::RefusalLimiter,
    shares::{ShareLimits, Shares},
    store_size::StoreSizes,
    streams::Streams,
};

/// Concurrent responses to requests without a token. Each holds about 300 KiB while its reader is slow: 75 MiB in total.
const DOWNLOADS_MAX: ShareLimits = ShareLimits { total: 256, per_address: 32 };

/// State that all routes share. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) importer: Arc<Importer>,
    pub(crate) journals: Arc<dyn Journals>,
    pub(crate) install: Arc<Install>,
    pub(crate) metrics: Metrics,
    pub(crate) certificates: Arc<CertificateExpiry>,
    /// True if requests over loopback read `/metrics` without a token.
    pub(crate) metrics_over_loopback: bool,
    pub(crate) in_progress: Arc<InProgress>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) bodies: BodyBudgets,
    pub(crate) refusals: Arc<RefusalLimiter>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) feeds: Arc<Feeds>,
    /// Responses to requests without a token that are in progress.
    pub(crate) downloads: Shares,
    /// True if the store answers and accepts changes.
    pub(crate) ready: Arc<Cached<Readiness>>,
    /// True if the metrics that count rows could be read.
    pub(crate) row_counts: Arc<Cached<bool>>,
    pub(crate) store_sizes: Arc<StoreSizes>,
    /// The OpenAPI document, once it was requested.
    pub(crate) document: Arc<OnceLock<Bytes>>,
}

/// Options of the API.
pub struct ApiOptions {
    /// Request rates.
    pub rates: Rates,
    /// Files and values for enrolling machines.
    pub install: Install,
    /// True if requests over loopback read `/metrics` without a token.
    pub metrics_over_loopback: bool,
    /// Expiry of the listeners' certificates.
    pub certificates: Arc<CertificateExpiry>,
}

impl ApiState {
    /// Creates the state for an engine, an importer of releases, and access to the journals of nodes.
    pub fn new(engine: Arc<Engine>, importer: Importer, journals: Arc<dyn Journals>, options: ApiOptions) -> Self {
        let runtime = || engine.ports().runtime.clone();
        let limits = Arc::new(Limits::new(options.rates, runtime()));
        let refusals = Arc::new(RefusalLimiter::new(runtime()));
        let (ready, row_counts) = (Arc::new(Cached::new(runtime())), Arc::new(Cached::new(runtime())));
        Self {
            engine,
            importer: Arc::new(importer),
            journals,
            install: Arc::new(options.install),
            metrics_over_loopback: options.metrics_over_loopback,
            metrics: Metrics::new(),
            certificates: options.certificates,
            in_progress: Arc::default(),
            limits,
            bodies: BodyBudgets::new(),
            refusals,
            streams: Arc::default(),
            feeds: Arc::default(),
            downloads: Shares::new(DOWNLOADS_MAX),
            ready,
            row_counts,
            store_sizes: Arc::default(),
            document: Arc::default(),
        }
    }
}

/// Result of the store's checks.
#[derive(Clone, Copy)]
pub(crate) enum Readiness {
    Ready,
    /// The store answers, but has no space for changes.
    NoSpace,
    NoStore,
    /// The store lacks acknowledged changes, and accepts no new ones.
    HistoryRolledBack,
    /// A statement found the database's files damaged.
    Damaged,
    /// This replica lacks a sealing key that the store uses, so it cannot verify every token.
    NoSealingKey,
}
