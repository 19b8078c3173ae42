//! Checks results from nodes: converts them to the task's result type, which drops unknown fields, and enforces the limits.

use serde_json::Value;

use super::{
    Applied, ArtifactFetched, ClockSync, DataDisk, DiskFacts, FileSystemFacts, Finding, Fixed, GpuFacts, HostFacts,
    Inspection, JournalExcerpt, MachineFacts, NoopDone, PreflightReport, ResidueItem, ResidueReport, RouteFacts,
    TaskDefinition, TaskOutcome, TaskSpec, UnitReport,
};
use crate::{
    always_within_bounds,
    bounds::{
        Bounded, LIST_MAX, NAME_BYTES_MAX, OutOfBounds, SENTENCE_BYTES_MAX, bounded_items, check_addresses,
        check_count, check_name, one_line,
    },
};

impl TaskOutcome {
    /// Returns the outcome converted to the task's result type and within limits, or why it is invalid.
    pub fn checked_for(self, task: &TaskDefinition) -> Result<Self, String> {
        let result = match self {
            Self::Failed { failure } => {
                let failure = failure.within_bounds().map_err(|error| error.to_string())?;
                return Ok(Self::Failed { failure });
            }
            Self::Succeeded { result } => result,
        };
        (task.checked_result)(result).map(|result| Self::Succeeded { result })
    }
}

pub(super) fn checked_result<T: TaskSpec>(result: Value) -> Result<Value, String> {
    let result: T::Result = serde_json::from_value(result).map_err(|error| error.to_string())?;
    let result = result.within_bounds().map_err(|error| error.to_string())?;
    serde_json::to_value(result).map_err(|error| error.to_string())
}

always_within_bounds!(NoopDone, ArtifactFetched);

impl Bounded for HostFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_name("the machine id", &self.machine_id)?;
        check_name("the boot id", &self.boot_id)?;
        check_addresses("the node's addresses", &self.addresses)?;
        check_count("disks", self.disks.len(), LIST_MAX)?;
        Ok(Self {
            hostname: short(self.hostname),
            os: short(self.os),
            kernel: short(self.kernel),
            arch: short(self.arch),
            disks: bounded_items(self.disks)?,
            ..self
        })
    }
}

impl Bounded for DiskFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { path: one_line(self.path, SENTENCE_BYTES_MAX), ..self })
    }
}

/// Truncates a text that is only displayed to the length of a name.
fn short(text: String) -> String {
    one_line(text, NAME_BYTES_MAX)
}

impl Bounded for Inspection {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self {
            facts: self.facts.within_bounds()?,
            machine: self.machine.map(Bounded::within_bounds).transpose()?,
            preflight: self.preflight.map(Bounded::within_bounds).transpose()?,
        })
    }
}

impl Bounded for MachineFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_count("GPUs", self.gpus.len(), Self::GPUS_MAX)?;
        check_count("file systems", self.file_systems.len(), Self::FILE_SYSTEMS_MAX)?;
        check_count("name servers", self.name_servers.len(), Self::NAME_SERVERS_MAX)?;
        Ok(Self {
            cpu_model: short(self.cpu_model),
            product: short(self.product),
            gpus: bounded_items(self.gpus)?,
            gpu_driver: self.gpu_driver.map(short),
            file_systems: bounded_items(self.file_systems)?,
            data_disk: self.data_disk.map(Bounded::within_bounds).transpose()?,
            default_route: self.default_route.map(Bounded::within_bounds).transpose()?,
            name_servers: self.name_servers.into_iter().map(short).collect(),
            clock: self.clock.within_bounds()?,
            ..self
        })
    }
}

impl Bounded for GpuFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        let (bus, pci_id) = (short(self.bus), short(self.pci_id));
        Ok(Self { bus, pci_id, model: self.model.map(short), ..self })
    }
}

impl Bounded for FileSystemFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { path: short(self.path), device: short(self.device), kind: short(self.kind), ..self })
    }
}

impl Bounded for DataDisk {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { folder: short(self.folder), on: self.on.within_bounds()?, ..self })
    }
}

impl Bounded for RouteFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { gateway: self.gateway.map(short), link: short(self.link), ..self })
    }
}

impl Bounded for ClockSync {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(match self {
            Self::Synchronized { by } => Self::Synchronized { by: by.map(short) },
            Self::NotYet { by } => Self::NotYet { by: short(by) },
            Self::Unknown | Self::ByMachine | Self::NoTimeService => self,
        })
    }
}

impl Bounded for Fixed {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_count("applied changes", self.applied.len(), Self::APPLIED_MAX)?;
        Ok(Self { path: short(self.path), applied: bounded_items(self.applied)?, ..self })
    }
}

impl Bounded for Applied {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { name: short(self.name), before: self.before.map(short), now: short(self.now) })
    }
}

impl Bounded for PreflightReport {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_count("findings", self.findings.len(), Self::FINDINGS_MAX)?;
        check_count("checks", self.checked.len(), Self::FINDINGS_MAX)?;
        self.checked.iter().try_for_each(|check| check_name("a check", check))?;
        Ok(Self { findings: bounded_items(self.findings)?, ..self })
    }
}

impl Bounded for Finding {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_name("a check", &self.check)?;
        let sentence = |text| one_line(text, SENTENCE_BYTES_MAX);
        Ok(Self {
            detail: sentence(self.detail),
            fix: sentence(self.fix),
            evidence: self.evidence.map(sentence),
            ..self
        })
    }
}

impl Bounded for ResidueReport {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_count("residue items", self.items.len(), Self::ITEMS_MAX)?;
        check_count("unchecked items", self.unseen.len(), Self::UNSEEN_MAX)?;
        let unseen = self.unseen.into_iter().map(|text| one_line(text, SENTENCE_BYTES_MAX)).collect();
        Ok(Self { items: bounded_items(self.items)?, unseen })
    }
}

impl Bounded for ResidueItem {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { what: one_line(self.what, SENTENCE_BYTES_MAX), ..self })
    }
}

impl Bounded for UnitReport {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        for (what, text) in [
            ("a unit name", &self.unit),
            ("ActiveState", &self.active),
            ("SubState", &self.sub),
            ("Result", &self.result),
        ] {
            check_name(what, text)?;
        }
        Ok(self)
    }
}

impl Bounded for JournalExcerpt {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { text: one_line(self.text, SENTENCE_BYTES_MAX), ..self })
    }
}

#[cfg(test)]
mod hostile_tests;
