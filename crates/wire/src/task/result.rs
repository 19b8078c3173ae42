//! Checks results from nodes: converts them to the task's result type, which drops unknown fields, and enforces the limits.

use gpuaas_model::TaskType;
use serde_json::Value;

use super::{
    Applied, ArtifactFetch, ArtifactFetched, ClockSync, DataDisk, DiskFacts, FileSystemFacts, Finding, Fix, Fixed,
    GpuFacts, HostFacts, Inspect, Inspection, JournalExcerpt, MachineFacts, Noop, NoopDone, Preflight, PreflightReport,
    Residue, ResidueItem, ResidueReport, Rke2Configure, Rke2Configured, Rke2Install, Rke2Installed, Rke2KubeconfigRead,
    Rke2KubeconfigStored, Rke2Observation, Rke2Observe, Rke2Start, Rke2Started, Rke2Stop, Rke2Stopped, Rke2Uninstall,
    Rke2Uninstalled, RouteFacts, TaskFailure, TaskOutcome, TaskSpec, UnitReport,
};
use crate::bounds::{
    Bounded, LIST_MAX, NAME_BYTES_MAX, OutOfBounds, SENTENCE_BYTES_MAX, check_addresses, check_count, check_name,
    check_sha256, one_line,
};

impl TaskOutcome {
    /// Returns the outcome converted to the task's result type and within limits, or why it is invalid.
    pub fn checked_for(self, task: TaskType) -> Result<Self, String> {
        let result = match self {
            Self::Failed { failure } => {
                let failure = failure.within_bounds().map_err(|error| error.to_string())?;
                return Ok(Self::Failed { failure });
            }
            Self::Succeeded { result } => result,
        };
        let result = match task {
            TaskType::Noop => checked_result::<Noop>(result),
            TaskType::Inspect => checked_result::<Inspect>(result),
            TaskType::Preflight => checked_result::<Preflight>(result),
            TaskType::ArtifactFetch => checked_result::<ArtifactFetch>(result),
            TaskType::Rke2Install => checked_result::<Rke2Install>(result),
            TaskType::Rke2Configure => checked_result::<Rke2Configure>(result),
            TaskType::Rke2Start => checked_result::<Rke2Start>(result),
            TaskType::Rke2Stop => checked_result::<Rke2Stop>(result),
            TaskType::Rke2Observe => checked_result::<Rke2Observe>(result),
            TaskType::Rke2KubeconfigRead => checked_result::<Rke2KubeconfigRead>(result),
            TaskType::Rke2Uninstall => checked_result::<Rke2Uninstall>(result),
            TaskType::Residue => checked_result::<Residue>(result),
            TaskType::Fix => checked_result::<Fix>(result),
        };
        result.map(|result| Self::Succeeded { result })
    }
}

fn checked_result<T: TaskSpec>(result: Value) -> Result<Value, String> {
    let result: T::Result = serde_json::from_value(result).map_err(|error| error.to_string())?;
    let result = result.within_bounds().map_err(|error| error.to_string())?;
    serde_json::to_value(result).map_err(|error| error.to_string())
}

/// For results that contain only numbers and booleans.
macro_rules! always_within_bounds {
    ($($result:ty),*) => {
        $(impl Bounded for $result {
            fn within_bounds(self) -> Result<Self, OutOfBounds> {
                Ok(self)
            }
        })*
    };
}

always_within_bounds!(NoopDone, ArtifactFetched, Rke2Configured, Rke2Stopped, Rke2Uninstalled);

fn bounded_items<T: Bounded>(items: Vec<T>) -> Result<Vec<T>, OutOfBounds> {
    items.into_iter().map(Bounded::within_bounds).collect()
}

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
        let earlier = self.journal.len().saturating_sub(TaskFailure::JOURNAL_LINES_MAX);
        Ok(Self {
            unit: self.unit.map(Bounded::within_bounds).transpose()?,
            version_line: self.version_line.map(|line| one_line(line, NAME_BYTES_MAX)),
            journal: bounded_items(self.journal.split_off(earlier))?,
            ..self
        })
    }
}

impl Bounded for Rke2KubeconfigStored {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        check_sha256("the digest of the kubeconfig", &self.secret.sha256)?;
        Ok(self)
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
mod hostile_tests {
    use gpuaas_model::{Code, Timestamp};
    use serde_json::json;

    use super::*;
    use gpuaas_model::CUT_MARK;

    const LONG: usize = 1_000_000;

    fn checked(task: TaskType, result: Value) -> Result<Value, String> {
        match (TaskOutcome::Succeeded { result }).checked_for(task)? {
            TaskOutcome::Succeeded { result } => Ok(result),
            TaskOutcome::Failed { failure } => Err(failure.message),
        }
    }

    fn facts() -> Value {
        json!({
            "hostname": "gpu-7", "machine_id": "ab", "boot_id": "cd", "os": "Debian", "kernel": "6.1", "arch": "x86_64",
            "cpus": 8, "memory_bytes": 1, "addresses": ["10.0.0.7"], "sandbox": false,
            "disks": [{ "path": "/var/lib", "size_bytes": 1, "free_bytes": 1 }],
        })
    }

    #[test]
    fn unknown_result_fields_are_dropped() {
        let mut more = facts();
        more["also"] = json!("x".repeat(LONG));
        assert_eq!(checked(TaskType::Inspect, more), Ok(facts()));
        assert_eq!(checked(TaskType::Noop, json!({ "also": "x".repeat(LONG) })), Ok(json!({})));
        assert!(checked(TaskType::Inspect, json!({})).is_err());
    }

    #[test]
    fn oversized_text_is_truncated_and_oversized_structure_refused() {
        for field in ["hostname", "os", "kernel", "arch"] {
            let mut huge = facts();
            huge[field] = json!("x".repeat(LONG));
            let kept = checked(TaskType::Inspect, huge).unwrap();
            let text = kept[field].as_str().unwrap();
            assert!(text.len() == NAME_BYTES_MAX && text.ends_with(CUT_MARK), "{field}");
        }
        let odd = [
            ("machine_id", json!("x".repeat(LONG))),
            ("boot_id", json!("a\u{0}b")),
            ("addresses", json!(vec!["10.0.0.7"; LIST_MAX + 1])),
            ("addresses", json!(["gpu-8.example"])),
            ("disks", json!(vec![facts()["disks"][0].clone(); LIST_MAX + 1])),
        ];
        for (field, value) in odd {
            let mut huge = facts();
            huge[field] = value;
            assert!(checked(TaskType::Inspect, huge).is_err(), "{field}");
        }
    }

    #[test]
    fn reports_are_bounded_in_items_and_in_text() {
        let item = json!({ "kind": "path", "what": "/x".repeat(LONG) });
        let kept = checked(TaskType::Residue, json!({ "items": [item] })).unwrap();
        assert_eq!(kept["items"][0]["what"].as_str().unwrap().len(), SENTENCE_BYTES_MAX);
        assert!(checked(TaskType::Residue, json!({ "items": vec![item; ResidueReport::ITEMS_MAX + 1] })).is_err());
        let finding = json!({ "check": "port_taken", "severity": "blocking", "detail": "x".repeat(LONG), "fix": "y" });
        let kept = checked(TaskType::Preflight, json!({ "passed": 1, "findings": [finding] })).unwrap();
        assert_eq!(kept["findings"][0]["detail"].as_str().unwrap().len(), SENTENCE_BYTES_MAX);
        let many = vec![finding; PreflightReport::FINDINGS_MAX + 1];
        assert!(checked(TaskType::Preflight, json!({ "passed": 1, "findings": many })).is_err());
    }

    /// Valid results of the types with possibly long texts, each with the JSON pointers of those texts.
    fn results_with_text() -> Vec<(TaskType, Value, Vec<&'static str>)> {
        let line = json!({ "at": 1, "text": "l" });
        vec![
            (TaskType::Inspect, facts(), vec!["/disks/0/path"]),
            (TaskType::Residue, json!({ "items": [], "unseen": ["u"] }), vec!["/unseen/0"]),
            (TaskType::Rke2Install, json!({ "version_line": "v", "files_written": 1 }), vec!["/version_line"]),
            (
                TaskType::Rke2Observe,
                json!({ "unit": unit(), "version_line": "v", "listening": [], "journal": [line] }),
                vec!["/version_line", "/journal/0/text"],
            ),
        ]
    }

    fn unit() -> Value {
        json!({ "unit": "rke2-server", "active": "active", "sub": "running", "result": "success", "n_restarts": 0, "exec_main_status": 0, "since": 1 })
    }

    #[test]
    fn long_texts_of_every_result_are_truncated_and_sanitized() {
        for (task, good, pointers) in results_with_text() {
            checked(task, good.clone()).unwrap_or_else(|why| panic!("{task}: {why}"));
            for pointer in pointers {
                let mut odd = good.clone();
                *odd.pointer_mut(pointer).unwrap() = json!(format!("\u{1b}[2J{}", "x".repeat(LONG)));
                let kept = checked(task, odd).unwrap();
                let text = kept.pointer(pointer).unwrap().as_str().unwrap();
                assert!(
                    text.len() <= SENTENCE_BYTES_MAX && !text.contains('\u{1b}'),
                    "{task} {pointer}: {}",
                    text.len()
                );
            }
        }
        let many = json!({ "items": [], "unseen": vec!["u"; ResidueReport::UNSEEN_MAX + 1] });
        assert!(checked(TaskType::Residue, many).is_err());
        for field in ["unit", "active", "sub", "result"] {
            for bad in ["x".repeat(LONG), "a\u{0}b".to_owned()] {
                let mut odd = unit();
                odd[field] = json!(bad);
                let observed = json!({ "unit": odd, "listening": [], "journal": [] });
                assert!(checked(TaskType::Rke2Observe, observed).is_err(), "{field}");
            }
        }
    }

    #[test]
    fn machine_facts_are_bounded_and_optional() {
        let long = || json!("x".repeat(LONG));
        let gpu = || json!({ "bus": long(), "pci_id": long(), "model": long() });
        let mut reported = facts();
        reported["machine"] = json!({
            "cpu_model": long(), "product": long(), "gpu_driver": long(), "gpus": [gpu()],
            "file_systems": [{ "path": long(), "device": long(), "kind": long() }],
            "data_disk": { "folder": long(), "path": long() }, "default_route": { "gateway": long(), "link": long() },
            "name_servers": [long()], "clock": { "kept": "not_yet", "by": long() }, "also": long(),
        });
        reported["preflight"] = json!({ "passed": 1, "findings": [
            { "check": "leftover", "severity": "warning", "detail": "d", "fix": "f", "evidence": long() },
        ] });
        let kept = checked(TaskType::Inspect, reported.clone()).unwrap();
        assert!(kept.to_string().len() < 8_192, "{} bytes", kept.to_string().len());
        for (field, many) in [
            ("gpus", vec![gpu(); MachineFacts::GPUS_MAX + 1]),
            ("file_systems", vec![json!({}); MachineFacts::FILE_SYSTEMS_MAX + 1]),
            ("name_servers", vec![json!("x"); MachineFacts::NAME_SERVERS_MAX + 1]),
        ] {
            let mut odd = reported.clone();
            odd["machine"][field] = json!(many);
            assert!(checked(TaskType::Inspect, odd).is_err(), "{field}");
        }
        let older: Inspection = serde_json::from_value(facts()).unwrap();
        assert_eq!((older.machine, older.preflight), (None, None));
    }

    #[test]
    fn fix_result_is_bounded() {
        let applied = json!({ "name": "x".repeat(LONG), "before": "1", "now": "2" });
        let fixed = |times| json!({ "path": "/etc/x", "changed": true, "applied": vec![&applied; times] });
        assert!(checked(TaskType::Fix, fixed(1)).unwrap().to_string().len() < 1_024);
        assert!(checked(TaskType::Fix, fixed(Fixed::APPLIED_MAX + 1)).is_err());
    }

    #[test]
    fn invalid_ca_digest_is_refused() {
        let unit = json!({
            "unit": "rke2-server.service", "active": "active", "sub": "running", "result": "success", "n_restarts": 0,
            "exec_main_status": 0, "since": 1,
        });
        let started = |digest: &str| json!({ "unit": unit, "ready_after_ms": 1, "ca_sha256": digest });
        assert!(checked(TaskType::Rke2Start, started(&"0f".repeat(32))).is_ok());
        for odd in ["", "::node:other", &"0F".repeat(32), &"0f".repeat(33)] {
            assert!(checked(TaskType::Rke2Start, started(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn failure_keeps_its_last_journal_lines_and_the_start_of_its_message() {
        let line = |number: i64| JournalExcerpt { at: Timestamp::from_millis(number), text: "x".repeat(LONG) };
        let journal = (0..1_000).map(line).collect();
        let failure = TaskFailure { journal, ..TaskFailure::new(Code::HostFailed, "x".repeat(LONG)) };
        let taken = (TaskOutcome::Failed { failure }).checked_for(TaskType::Rke2Start).unwrap();
        let TaskOutcome::Failed { failure } = taken else { panic!("{taken:?}") };
        assert_eq!(failure.message.len(), TaskFailure::MESSAGE_BYTES_MAX);
        assert_eq!(failure.journal.len(), TaskFailure::JOURNAL_LINES_MAX);
        assert_eq!(failure.journal.last().unwrap().at, Timestamp::from_millis(999));
        assert!(failure.journal.iter().all(|line| line.text.len() == SENTENCE_BYTES_MAX));
    }
}
