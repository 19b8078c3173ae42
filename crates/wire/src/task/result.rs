//! Checks results from nodes: converts them to the task's result type, which drops unknown fields, and enforces the limits.

use gpuaas_model::TaskType;
use serde_json::Value;

use super::{
    Applied, ArtifactFetch, ArtifactFetched, ClockKeeping, DataDisk, DiskFacts, FileSystemFacts, Finding, Fix, Fixed,
    GpuFacts, HostFacts, Inspect, Inspection, JournalExcerpt, MachineFacts, Noop, NoopDone, Preflight, PreflightReport,
    Residue, ResidueItem, ResidueReport, Rke2Configure, Rke2Configured, Rke2Install, Rke2Installed, Rke2KubeconfigRead,
    Rke2KubeconfigStored, Rke2Observation, Rke2Observe, Rke2Start, Rke2Started, Rke2Stop, Rke2Stopped, Rke2Uninstall,
    Rke2Uninstalled, RouteFacts, TaskFailure, TaskOutcome, TaskSpec, UnitReport,
};
use crate::bounds::{
    LIST_MAX, NAME_BYTES_MAX, OutOfBounds, SENTENCE_BYTES_MAX, Said, addresses, at_most, cut, name, sha256,
};

impl TaskOutcome {
    /// Returns the outcome converted to the task's result type and within limits, or why it is invalid.
    pub fn of_task(self, task: TaskType) -> Result<Self, String> {
        let result = match self {
            Self::Failed { failure } => {
                let failure = failure.within_bounds().map_err(|error| error.to_string())?;
                return Ok(Self::Failed { failure });
            }
            Self::Succeeded { result } => result,
        };
        let result = match task {
            TaskType::Noop => of::<Noop>(result),
            TaskType::Inspect => of::<Inspect>(result),
            TaskType::Preflight => of::<Preflight>(result),
            TaskType::ArtifactFetch => of::<ArtifactFetch>(result),
            TaskType::Rke2Install => of::<Rke2Install>(result),
            TaskType::Rke2Configure => of::<Rke2Configure>(result),
            TaskType::Rke2Start => of::<Rke2Start>(result),
            TaskType::Rke2Stop => of::<Rke2Stop>(result),
            TaskType::Rke2Observe => of::<Rke2Observe>(result),
            TaskType::Rke2KubeconfigRead => of::<Rke2KubeconfigRead>(result),
            TaskType::Rke2Uninstall => of::<Rke2Uninstall>(result),
            TaskType::Residue => of::<Residue>(result),
            TaskType::Fix => of::<Fix>(result),
        };
        result.map(|result| Self::Succeeded { result })
    }
}

fn of<T: TaskSpec>(result: Value) -> Result<Value, String> {
    let result: T::Result = serde_json::from_value(result).map_err(|error| error.to_string())?;
    let result = result.within_bounds().map_err(|error| error.to_string())?;
    serde_json::to_value(result).map_err(|error| error.to_string())
}

/// For results that contain only numbers and booleans.
macro_rules! always_within_bounds {
    ($($result:ty),*) => {
        $(impl Said for $result {
            fn within_bounds(self) -> Result<Self, OutOfBounds> {
                Ok(self)
            }
        })*
    };
}

always_within_bounds!(NoopDone, ArtifactFetched, Rke2Configured, Rke2Stopped, Rke2Uninstalled);

fn all<T: Said>(items: Vec<T>) -> Result<Vec<T>, OutOfBounds> {
    items.into_iter().map(Said::within_bounds).collect()
}

impl Said for HostFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        name("the machine's id", &self.machine_id)?;
        name("the boot's id", &self.boot_id)?;
        addresses("the node's addresses", &self.addresses)?;
        at_most("disks", self.disks.len(), LIST_MAX)?;
        Ok(Self {
            hostname: short(self.hostname),
            os: short(self.os),
            kernel: short(self.kernel),
            arch: short(self.arch),
            disks: all(self.disks)?,
            ..self
        })
    }
}

impl Said for DiskFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { path: cut(self.path, SENTENCE_BYTES_MAX), ..self })
    }
}

/// Truncates a text that is only displayed to the length of a name.
fn short(text: String) -> String {
    cut(text, NAME_BYTES_MAX)
}

impl Said for Inspection {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self {
            facts: self.facts.within_bounds()?,
            machine: self.machine.map(Said::within_bounds).transpose()?,
            preflight: self.preflight.map(Said::within_bounds).transpose()?,
        })
    }
}

impl Said for MachineFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        at_most("GPUs", self.gpus.len(), Self::GPUS_MAX)?;
        at_most("file systems", self.file_systems.len(), Self::FILE_SYSTEMS_MAX)?;
        at_most("name servers", self.name_servers.len(), Self::NAME_SERVERS_MAX)?;
        Ok(Self {
            cpu_model: short(self.cpu_model),
            product: short(self.product),
            gpus: all(self.gpus)?,
            gpu_driver: self.gpu_driver.map(short),
            file_systems: all(self.file_systems)?,
            data_disk: self.data_disk.map(Said::within_bounds).transpose()?,
            default_route: self.default_route.map(Said::within_bounds).transpose()?,
            name_servers: self.name_servers.into_iter().map(short).collect(),
            clock: self.clock.within_bounds()?,
            ..self
        })
    }
}

impl Said for GpuFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        let (bus, pci_id) = (short(self.bus), short(self.pci_id));
        Ok(Self { bus, pci_id, model: self.model.map(short), ..self })
    }
}

impl Said for FileSystemFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { path: short(self.path), device: short(self.device), kind: short(self.kind), ..self })
    }
}

impl Said for DataDisk {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { folder: short(self.folder), on: self.on.within_bounds()?, ..self })
    }
}

impl Said for RouteFacts {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { gateway: self.gateway.map(short), link: short(self.link), ..self })
    }
}

impl Said for ClockKeeping {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(match self {
            Self::Synchronized { by } => Self::Synchronized { by: by.map(short) },
            Self::NotYet { by } => Self::NotYet { by: short(by) },
            Self::Unknown | Self::ByMachine | Self::ByNobody => self,
        })
    }
}

impl Said for Fixed {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        at_most("things applied", self.applied.len(), Self::APPLIED_MAX)?;
        Ok(Self { path: short(self.path), applied: all(self.applied)?, ..self })
    }
}

impl Said for Applied {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { name: short(self.name), before: self.before.map(short), now: short(self.now) })
    }
}

impl Said for PreflightReport {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        at_most("findings", self.findings.len(), Self::FINDINGS_MAX)?;
        Ok(Self { findings: all(self.findings)?, ..self })
    }
}

impl Said for Finding {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        name("a check", &self.check)?;
        let sentence = |text| cut(text, SENTENCE_BYTES_MAX);
        Ok(Self {
            detail: sentence(self.detail),
            fix: sentence(self.fix),
            evidence: self.evidence.map(sentence),
            ..self
        })
    }
}

impl Said for ResidueReport {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        at_most("items of residue", self.items.len(), Self::ITEMS_MAX)?;
        at_most("things unseen", self.unseen.len(), Self::UNSEEN_MAX)?;
        let unseen = self.unseen.into_iter().map(|text| cut(text, SENTENCE_BYTES_MAX)).collect();
        Ok(Self { items: all(self.items)?, unseen })
    }
}

impl Said for ResidueItem {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { what: cut(self.what, SENTENCE_BYTES_MAX), ..self })
    }
}

impl Said for Rke2Installed {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { version_line: cut(self.version_line, NAME_BYTES_MAX), ..self })
    }
}

impl Said for Rke2Started {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        if let Some(digest) = &self.ca_sha256 {
            // The digest becomes part of the join token of other nodes.
            sha256("the digest of the cluster's CA", digest)?;
        }
        Ok(Self { unit: self.unit.within_bounds()?, ..self })
    }
}

impl Said for Rke2Observation {
    fn within_bounds(mut self) -> Result<Self, OutOfBounds> {
        at_most("ports", self.listening.len(), LIST_MAX)?;
        if let Some(digest) = &self.ca_sha256 {
            sha256("the digest of the cluster's CA", digest)?;
        }
        let earlier = self.journal.len().saturating_sub(TaskFailure::JOURNAL_LINES_MAX);
        Ok(Self {
            unit: self.unit.map(Said::within_bounds).transpose()?,
            version_line: self.version_line.map(|line| cut(line, NAME_BYTES_MAX)),
            journal: all(self.journal.split_off(earlier))?,
            ..self
        })
    }
}

impl Said for Rke2KubeconfigStored {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        sha256("the digest of the kubeconfig", &self.secret.sha256)?;
        Ok(self)
    }
}

impl Said for UnitReport {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        for (what, text) in
            [("a unit", &self.unit), ("ActiveState", &self.active), ("SubState", &self.sub), ("Result", &self.result)]
        {
            name(what, text)?;
        }
        Ok(self)
    }
}

impl Said for JournalExcerpt {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { text: cut(self.text, SENTENCE_BYTES_MAX), ..self })
    }
}

#[cfg(test)]
mod hostile_tests {
    use gpuaas_model::{Code, Timestamp};
    use serde_json::json;

    use super::*;
    use gpuaas_model::CUT_MARK;

    const LONG: usize = 1_000_000;

    fn taken(task: TaskType, result: Value) -> Result<Value, String> {
        match (TaskOutcome::Succeeded { result }).of_task(task)? {
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
    fn what_the_type_does_not_have_is_not_kept() {
        let mut more = facts();
        more["also"] = json!("x".repeat(LONG));
        assert_eq!(taken(TaskType::Inspect, more), Ok(facts()));
        assert_eq!(taken(TaskType::Noop, json!({ "also": "x".repeat(LONG) })), Ok(json!({})));
        assert!(taken(TaskType::Inspect, json!({})).is_err());
    }

    #[test]
    fn prose_of_absurd_size_is_cut_and_structure_refused() {
        for field in ["hostname", "os", "kernel", "arch"] {
            let mut huge = facts();
            huge[field] = json!("x".repeat(LONG));
            let kept = taken(TaskType::Inspect, huge).unwrap();
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
            assert!(taken(TaskType::Inspect, huge).is_err(), "{field}");
        }
    }

    #[test]
    fn reports_are_bounded_in_items_and_in_text() {
        let item = json!({ "kind": "path", "what": "/x".repeat(LONG) });
        let kept = taken(TaskType::Residue, json!({ "items": [item] })).unwrap();
        assert_eq!(kept["items"][0]["what"].as_str().unwrap().len(), SENTENCE_BYTES_MAX);
        assert!(taken(TaskType::Residue, json!({ "items": vec![item; ResidueReport::ITEMS_MAX + 1] })).is_err());
        let finding = json!({ "check": "port_taken", "severity": "blocking", "detail": "x".repeat(LONG), "fix": "y" });
        let kept = taken(TaskType::Preflight, json!({ "passed": 1, "findings": [finding] })).unwrap();
        assert_eq!(kept["findings"][0]["detail"].as_str().unwrap().len(), SENTENCE_BYTES_MAX);
        let many = vec![finding; PreflightReport::FINDINGS_MAX + 1];
        assert!(taken(TaskType::Preflight, json!({ "passed": 1, "findings": many })).is_err());
    }

    /// Valid results of the types with possibly long texts, each with the JSON pointers of those texts.
    fn results_with_prose() -> Vec<(TaskType, Value, Vec<&'static str>)> {
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
    fn long_texts_of_every_result_are_cut_and_hold_no_terminal_command() {
        for (task, good, pointers) in results_with_prose() {
            taken(task, good.clone()).unwrap_or_else(|why| panic!("{task}: {why}"));
            for pointer in pointers {
                let mut odd = good.clone();
                *odd.pointer_mut(pointer).unwrap() = json!(format!("\u{1b}[2J{}", "x".repeat(LONG)));
                let kept = taken(task, odd).unwrap();
                let text = kept.pointer(pointer).unwrap().as_str().unwrap();
                assert!(
                    text.len() <= SENTENCE_BYTES_MAX && !text.contains('\u{1b}'),
                    "{task} {pointer}: {}",
                    text.len()
                );
            }
        }
        let many = json!({ "items": [], "unseen": vec!["u"; ResidueReport::UNSEEN_MAX + 1] });
        assert!(taken(TaskType::Residue, many).is_err());
        for field in ["unit", "active", "sub", "result"] {
            for bad in ["x".repeat(LONG), "a\u{0}b".to_owned()] {
                let mut odd = unit();
                odd[field] = json!(bad);
                let observed = json!({ "unit": odd, "listening": [], "journal": [] });
                assert!(taken(TaskType::Rke2Observe, observed).is_err(), "{field}");
            }
        }
    }

    #[test]
    fn what_a_machine_is_made_of_is_bounded_and_what_an_older_agent_does_not_say_is_absent() {
        let long = || json!("x".repeat(LONG));
        let gpu = || json!({ "bus": long(), "pci_id": long(), "model": long() });
        let mut said = facts();
        said["machine"] = json!({
            "cpu_model": long(), "product": long(), "gpu_driver": long(), "gpus": [gpu()],
            "file_systems": [{ "path": long(), "device": long(), "kind": long() }],
            "data_disk": { "folder": long(), "path": long() }, "default_route": { "gateway": long(), "link": long() },
            "name_servers": [long()], "clock": { "kept": "not_yet", "by": long() }, "also": long(),
        });
        said["preflight"] = json!({ "passed": 1, "findings": [
            { "check": "leftover", "severity": "warning", "detail": "d", "fix": "f", "evidence": long() },
        ] });
        let kept = taken(TaskType::Inspect, said.clone()).unwrap();
        assert!(kept.to_string().len() < 8_192, "{} bytes", kept.to_string().len());
        for (field, many) in [
            ("gpus", vec![gpu(); MachineFacts::GPUS_MAX + 1]),
            ("file_systems", vec![json!({}); MachineFacts::FILE_SYSTEMS_MAX + 1]),
            ("name_servers", vec![json!("x"); MachineFacts::NAME_SERVERS_MAX + 1]),
        ] {
            let mut odd = said.clone();
            odd["machine"][field] = json!(many);
            assert!(taken(TaskType::Inspect, odd).is_err(), "{field}");
        }
        let older: Inspection = serde_json::from_value(facts()).unwrap();
        assert_eq!((older.machine, older.preflight), (None, None));
    }

    #[test]
    fn a_fix_says_little() {
        let applied = json!({ "name": "x".repeat(LONG), "before": "1", "now": "2" });
        let fixed = |times| json!({ "path": "/etc/x", "changed": true, "applied": vec![&applied; times] });
        assert!(taken(TaskType::Fix, fixed(1)).unwrap().to_string().len() < 1_024);
        assert!(taken(TaskType::Fix, fixed(Fixed::APPLIED_MAX + 1)).is_err());
    }

    #[test]
    fn a_digest_that_goes_into_a_join_token_is_a_digest() {
        let unit = json!({
            "unit": "rke2-server.service", "active": "active", "sub": "running", "result": "success", "n_restarts": 0,
            "exec_main_status": 0, "since": 1,
        });
        let started = |digest: &str| json!({ "unit": unit, "ready_after_ms": 1, "ca_sha256": digest });
        assert!(taken(TaskType::Rke2Start, started(&"0f".repeat(32))).is_ok());
        for odd in ["", "::node:other", &"0F".repeat(32), &"0f".repeat(33)] {
            assert!(taken(TaskType::Rke2Start, started(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_failure_keeps_its_last_lines_and_the_beginning_of_its_message() {
        let line = |number: i64| JournalExcerpt { at: Timestamp::from_millis(number), text: "x".repeat(LONG) };
        let journal = (0..1_000).map(line).collect();
        let failure = TaskFailure { journal, ..TaskFailure::new(Code::HostFailed, "x".repeat(LONG)) };
        let taken = (TaskOutcome::Failed { failure }).of_task(TaskType::Rke2Start).unwrap();
        let TaskOutcome::Failed { failure } = taken else { panic!("{taken:?}") };
        assert_eq!(failure.message.len(), TaskFailure::MESSAGE_BYTES_MAX);
        assert_eq!(failure.journal.len(), TaskFailure::JOURNAL_LINES_MAX);
        assert_eq!(failure.journal.last().unwrap().at, Timestamp::from_millis(999));
        assert!(failure.journal.iter().all(|line| line.text.len() == SENTENCE_BYTES_MAX));
    }
}
