//! The apps that this control plane offers.

use std::{collections::BTreeMap, sync::Arc};

use gpuaas_model::TaskType;
use gpuaas_planner::{App, Occupancy};
use gpuaas_wire::task::{GENERAL_TASKS, Preflight, TaskDefinition};

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

    /// The definition of a task type, general or an app's; `None` if no app of this control plane defines it.
    pub(crate) fn task(&self, task: TaskType) -> Option<&'static TaskDefinition> {
        let of_apps = self.entries.values().flat_map(|entry| entry.app.tasks());
        GENERAL_TASKS.iter().chain(of_apps).find(|of| of.task_type == task)
    }

    /// Returns the preflight of the first app that defines one.
    pub fn preflight(&self, occupancy: Occupancy) -> Option<Preflight> {
        self.entries.values().find_map(|entry| entry.app.preflight(occupancy))
    }

    /// All apps, ordered by slug.
    pub fn apps(&self) -> impl Iterator<Item = &AppEntry> {
        self.entries.values()
    }
}
