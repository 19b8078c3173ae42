//! The limits of results.

use gpuaas_wire::{
    always_within_bounds,
    bounds::{Bounded, LIST_MAX, NAME_BYTES_MAX, OutOfBounds, bounded_items, check_count, check_sha256, one_line},
    task::TaskFailure,
};

use crate::{
    Deviation, Rke2Configured, Rke2Enabled, Rke2Installed, Rke2KubeconfigStored, Rke2Observation, Rke2Started,
    Rke2Stopped, Rke2Uninstalled,
};

always_within_bounds!(Rke2Configured, Rke2Enabled, Rke2Stopped);

impl Bounded for Rke2Installed {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { version_line: one_line(self.version_line, NAME_BYTES_MAX), ..self })
    }
}

impl Bounded for Rke2Started {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        if let Some(digest) = &self.ca_sha256 {
            // The digest becomes part of the join token of other nodes.
            check_sha256("the digest of the cluster's CA", digest)?;
        }
        Ok(Self { unit: self.unit.within_bounds()?, ..self })
    }
}

impl Bounded for Rke2Observation {
    fn within_bounds(mut self) -> Result<Self, OutOfBounds> {
        check_count("ports", self.listening.len(), LIST_MAX)?;
        if let Some(digest) = &self.ca_sha256 {
            check_sha256("the digest of the cluster's CA", digest)?;
        }
        if let Some(digest) = &self.config_sha256 {
            check_sha256("the digest of the configuration", digest)?;
        }
        check_count("deviations", self.deviations.len(), Self::DEVIATIONS_MAX)?;
        let earlier = self.journal.len().saturating_sub(TaskFailure::JOURNAL_LINES_MAX);
        Ok(Self {
            unit: self.unit.map(Bounded::within_bounds).transpose()?,
            version_line: self.version_line.map(|line| one_line(line, NAME_BYTES_MAX)),
            journal: bounded_items(self.journal.split_off(earlier))?,
            deviations: bounded_items(self.deviations)?,
            ..self
        })
    }
}

impl Bounded for Deviation {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { text: one_line(self.text, Self::TEXT_BYTES_MAX), ..self })
    }
}

impl Bounded for Rke2Uninstalled {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_count("found paths and units", self.found.len(), Self::FOUND_MAX)?;
        check_count("removed paths and units", self.removed.len(), Self::FOUND_MAX)?;
        let lines = |texts: Vec<String>| texts.into_iter().map(|text| one_line(text, NAME_BYTES_MAX)).collect();
        Ok(Self { found: lines(self.found), removed: lines(self.removed), ..self })
    }
}

impl Bounded for Rke2KubeconfigStored {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_sha256("the digest of the kubeconfig", &self.secret.sha256)?;
        Ok(self)
    }
}
