//! The apps that this control plane offers.

use std::{collections::BTreeMap, sync::Arc};

use gpuaas_planner::App;
use gpuaas_wire::task::Preflight;

use crate::{effects::AppEffects, error::EngineError};

/// An app with its effects.
pub struct AppEntry {
    /// The pure part: manifest and planning.
    pub app: Arc<dyn App>,
    /// The app's calls to its clusters.
    pub effects: Arc<dyn AppEffects>,
}

/// All apps, by slug.
#[derive(Default)]
pub struct Catalog {
    entries: BTreeMap<String, AppEntry>,
}

impl Catalog {
    /// Adds an app under its manifest's slug; replaces an earlier one with the same slug.
    #[must_use]
    pub fn with(mut self, entry: AppEntry) -> Self {
        self.entries.insert(entry.app.manifest().slug.clone(), entry);
        self
    }

    /// The app with the given slug.
    pub fn app(&self, slug: &str) -> Option<&AppEntry> {
        self.entries.get(slug)
    }

    /// The app with the given slug, for a workload that needs it.
    pub(crate) fn require(&self, slug: &str) -> Result<&AppEntry, EngineError> {
        self.app(slug).ok_or_else(|| EngineError::not_found("app", slug))
    }

    /// The preflight for a node on which nothing is placed: that of the first app that defines one.
    pub fn preflight(&self, occupied: bool) -> Option<Preflight> {
        self.entries.values().find_map(|entry| entry.app.preflight(occupied))
    }

    /// All apps, ordered by slug.
    pub fn apps(&self) -> impl Iterator<Item = &AppEntry> {
        self.entries.values()
    }
}
