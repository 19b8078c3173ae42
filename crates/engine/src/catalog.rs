//! The apps that this control plane offers.

use std::{collections::BTreeMap, sync::Arc};

use gpuaas_planner::App;
use gpuaas_wire::task::Preflight;

use crate::effects::AppEffects;

/// An app with its effects.
pub struct AppEntry {
    /// The pure part.
    pub app: Arc<dyn App>,
    /// Its calls to its clusters.
    pub effects: Arc<dyn AppEffects>,
}

/// All apps, by slug.
#[derive(Default)]
pub struct Catalog {
    entries: BTreeMap<String, AppEntry>,
}

impl Catalog {
    /// Adds an app under its manifest's slug; a later one of the same slug replaces it.
    #[must_use]
    pub fn with(mut self, entry: AppEntry) -> Self {
        self.entries.insert(entry.app.manifest().slug.clone(), entry);
        self
    }

    /// The app of that slug.
    pub fn app(&self, slug: &str) -> Option<&AppEntry> {
        self.entries.get(slug)
    }

    /// What a node is looked at for when nobody has placed anything there: the wants of the first app that has any.
    pub fn preflight(&self, occupied: bool) -> Option<Preflight> {
        self.entries.values().find_map(|entry| entry.app.preflight(occupied))
    }

    /// Every app, by slug.
    pub fn apps(&self) -> impl Iterator<Item = &AppEntry> {
        self.entries.values()
    }
}
