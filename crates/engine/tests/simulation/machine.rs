//! A model of RKE2 on a host, and the task handlers that change it.
//!
//! Every handler checks the host's state before it acts, as the real handlers do, and counts the changes that it makes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gpuaas_agent::simulation::{Handler, Work};
use gpuaas_app_rke2_tasks::{
    Deviation, DeviationKind, Rke2Configure, Rke2Configured, Rke2Enabled, Rke2Expected, Rke2Installed,
    Rke2KubeconfigRead, Rke2KubeconfigStored, Rke2Observation, Rke2Observe, Rke2Role, Rke2Start, Rke2Started,
    Rke2Stopped, Rke2Uninstalled,
};
use gpuaas_crash_points::{Point, reach};
use gpuaas_model::{Code, TaskType, Timestamp};
use gpuaas_trust::sha256_hex;
use gpuaas_wire::task::{
    ArtifactFetch, ArtifactFetched, DiskFacts, HostFacts, Inspection, MachineFacts, NoopDone, Preflight,
    PreflightReport, ResidueItem, ResidueKind, ResidueReport, SecretRef, TaskFailure, TaskProgress, UnitReport,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    node::Node,
    oracles::{self, Effect, Oracle},
    simulation::{Scenario, Simulation},
};

/// The state of the node's RKE2 unit, which keeps running when the agent dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unit {
    #[default]
    Stopped,
    /// Started; up from that time on.
    Starting(Timestamp),
}

/// Whether the node's RKE2 unit starts at boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Enablement {
    #[default]
    Enabled,
    Disabled,
    Masked,
}

/// The state of a simulated host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    fetched: bool,
    installed: bool,
    /// Digests of the files of RKE2; `None` if there are none.
    files: Option<Rke2Expected>,
    /// Digests of these files as the platform wrote them last.
    written: Option<Rke2Expected>,
    enablement: Enablement,
    /// True if the last observation found a deviation.
    was_seen_deviating: bool,
    /// When a task last observed the host.
    pub(crate) observed_at: Option<Timestamp>,
    /// When the platform last took a hint of drift about this host, whose member was in service; `None` since a person changed something.
    pub(crate) hinted_at: Option<Timestamp>,
    role: Option<Rke2Role>,
    pub(crate) unit: Unit,
    /// When the unit was started last.
    started_at: Option<Timestamp>,
    /// A part of the program is damaged: starts fail until the next installation.
    pub(crate) is_damaged: bool,
    /// The unit was started since the last uninstall, so its data directory exists.
    has_data: bool,
    /// Counts of changes made, by task type.
    pub(crate) effects: BTreeMap<TaskType, u32>,
}

impl Machine {
    pub(crate) fn is_up(&self, now: Timestamp) -> bool {
        matches!(self.unit, Unit::Starting(at) if at <= now)
    }

    /// Returns true if nothing of RKE2 is on the host.
    pub(crate) fn is_clean(&self) -> bool {
        !self.installed && !self.has_data && self.unit == Unit::Stopped
    }

    /// Returns true if RKE2 is installed and its unit does not run, although it was started.
    pub(crate) fn is_down(&self) -> bool {
        self.installed && self.has_data && self.unit == Unit::Stopped
    }

    /// Edits the configuration as a person does; returns false if there is none.
    pub(crate) fn edit_config(&mut self) -> bool {
        let Some(files) = &mut self.files else { return false };
        files.config_sha256 = sha256_hex(b"edited by hand");
        self.hinted_at = None;
        true
    }

    /// Disables or masks the unit as a person does; returns false if there is none.
    pub(crate) fn disable_unit(&mut self, is_masked: bool) -> bool {
        if self.files.is_none() {
            return false;
        }
        self.enablement = if is_masked { Enablement::Masked } else { Enablement::Disabled };
        self.hinted_at = None;
        true
    }

    /// Returns true if files or the unit are not as the platform left them.
    pub(crate) fn deviates(&self) -> bool {
        self.files.is_some() && (self.files != self.written || self.enablement != Enablement::Enabled)
    }

    /// Returns true if the platform knows or must learn of a deviation.
    pub(crate) fn may_deviate(&self) -> bool {
        self.deviates() || self.was_seen_deviating
    }

    /// Returns how the host deviates from what the platform expects.
    fn observe(&mut self, expected: &Rke2Expected) -> Vec<Deviation> {
        let Some(files) = &self.files else { return Vec::new() };
        let has_tokens =
            (&files.token_sha256, &files.agent_token_sha256) == (&expected.token_sha256, &expected.agent_token_sha256);
        let found = [
            (files.config_sha256 != expected.config_sha256, DeviationKind::ConfigChanged),
            (!has_tokens, DeviationKind::TokenChanged),
            (self.enablement == Enablement::Disabled, DeviationKind::UnitDisabled),
            (self.enablement == Enablement::Masked, DeviationKind::UnitMasked),
        ];
        let found = found.into_iter().filter(|(is_there, _)| *is_there);
        let found: Vec<_> = found.map(|(_, kind)| Deviation { kind, text: format!("{kind:?}") }).collect();
        self.was_seen_deviating = !found.is_empty();
        found
    }

    fn count_effect(&mut self, task: TaskType) {
        *self.effects.entry(task).or_default() += 1;
    }
}

/// Returns the task handler for the node.
pub(crate) fn handler(simulation: &Arc<Simulation>, node: &Arc<Node>) -> Handler {
    let (simulation, node) = (Arc::downgrade(simulation), Arc::downgrade(node));
    Arc::new(move |task, params, work| {
        let (simulation, node) = (simulation.upgrade(), node.upgrade());
        Box::pin(async move {
            let (Some(simulation), Some(node)) = (simulation, node) else {
                return Err(failed(Code::Internal, "it is over"));
            };
            RunningTask { simulation, node, task, work }.run(params).await
        })
    })
}

/// A running task.
struct RunningTask {
    simulation: Arc<Simulation>,
    node: Arc<Node>,
    task: TaskType,
    work: Work,
}

impl RunningTask {
    async fn run(&self, params: Value) -> Result<Value, TaskFailure> {
        self.pause(1, 200).await?;
        match self.task {
            TaskType::Noop => value(&NoopDone {}),
            TaskType::Inspect => self.inspect().await,
            TaskType::Preflight => self.preflight(&read(params)?).await,
            TaskType::ArtifactFetch => self.fetch(&read(params)?).await,
            TaskType::Rke2Install => self.install().await,
            TaskType::Rke2Configure => self.configure(&read(params)?).await,
            TaskType::Rke2Start => self.start(&read(params)?).await,
            TaskType::Rke2KubeconfigRead => self.kubeconfig(&read(params)?).await,
            TaskType::Rke2Stop => self.stop().await,
            TaskType::Rke2Enable => self.enable().await,
            TaskType::Rke2Observe => self.observe(&read(params)?).await,
            TaskType::Rke2Uninstall => self.uninstall().await,
            TaskType::Residue => self.residue().await,
            other => Err(failed(Code::TaskUnknown, &format!("{other} is not simulated"))),
        }
    }

    async fn inspect(&self) -> Result<Value, TaskFailure> {
        self.injected_failure()?;
        let disk = DiskFacts { path: "/var/lib".to_owned(), size_bytes: 1 << 40, free_bytes: 1 << 39 };
        let facts = HostFacts {
            hostname: self.node.name.clone(),
            machine_id: format!("machine-{}", self.node.name),
            boot_id: "first".to_owned(),
            os: "none".to_owned(),
            kernel: "none".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: 8,
            memory_bytes: 1 << 36,
            addresses: vec![self.node.address()],
            disks: vec![disk],
            sandbox: true,
        };
        value(&Inspection { facts, machine: Some(MachineFacts::default()), preflight: None })
    }

    async fn preflight(&self, task: &Preflight) -> Result<Value, TaskFailure> {
        self.injected_failure()?;
        let is_own = self.simulation.scenario == Scenario::OneDeployment;
        if is_own && self.node.machine().has_data && !task.absent_paths.is_empty() {
            self.simulation.report_violation(
                Oracle::Effects,
                format!("{}: a member's own data was taken for a leftover", self.node.name),
            );
        }
        value(&PreflightReport { passed: 9, findings: Vec::new(), checked: Vec::new() })
    }

    async fn fetch(&self, task: &ArtifactFetch) -> Result<Value, TaskFailure> {
        if self.node.machine().fetched {
            return value(&ArtifactFetched { fetched_bytes: 0, reused_bytes: 2 });
        }
        self.report_progress("fetching");
        for artifact in &task.artifacts {
            let (node, sha256) = (self.node.enrolled(), artifact.sha256.clone());
            let asked = self
                .simulation
                .ask(move |engine| Box::pin(async move { engine.artifact_for_node(node, &sha256).await.map(|_| ()) }));
            self.unwrap_answer(asked.await)?;
            oracles::check_effect(&self.simulation, Effect::Artifact(node));
        }
        self.pause(500, 15_000).await?;
        self.injected_failure()?;
        self.change(|machine| machine.fetched = true);
        value(&ArtifactFetched { fetched_bytes: 2, reused_bytes: 0 })
    }

    async fn install(&self) -> Result<Value, TaskFailure> {
        self.check(self.node.machine().fetched, "nothing was fetched");
        let is_whole = {
            let machine = self.node.machine();
            machine.installed && !machine.is_damaged
        };
        if !is_whole {
            reach(Point::TaskInside(self.task));
            self.pause(200, 3_000).await?;
            self.injected_failure()?;
            self.change(|machine| (machine.installed, machine.is_damaged) = (true, false));
        }
        value(&Rke2Installed { version_line: "rke2 v1".to_owned(), files_written: 1 })
    }

    async fn configure(&self, task: &Rke2Configure) -> Result<Value, TaskFailure> {
        self.check(self.node.machine().installed, "nothing was installed");
        let token_sha256 = self.secret(&task.token).await?;
        let agent_token_sha256 = match &task.agent_token {
            Some(token) => Some(self.secret(token).await?),
            None => None,
        };
        reach(Point::TaskInside(self.task));
        self.injected_failure()?;
        let config_sha256 = sha256_hex(task.config.as_bytes());
        let wanted = Some(Rke2Expected { config_sha256, token_sha256, agent_token_sha256 });
        let changed = self.node.machine().files != wanted;
        if changed {
            self.change(|machine| {
                (machine.files, machine.written, machine.role) = (wanted.clone(), wanted, Some(task.role));
            });
        }
        value(&Rke2Configured { changed })
    }

    async fn start(&self, task: &Rke2Start) -> Result<Value, TaskFailure> {
        self.check(self.node.machine().files.is_some(), "nothing was configured");
        self.node.machine().enablement = Enablement::Enabled;
        if task.role == Rke2Role::Agent && self.simulation.scenario == Scenario::OneDeployment {
            self.check(self.simulation.server_is_up(), "an agent was started before its server was up");
        }
        let now = self.simulation.scheduler.now();
        let unit = self.node.machine().unit;
        let up_at = match unit {
            Unit::Starting(at) => at,
            Unit::Stopped => {
                let at = now.plus(Duration::from_millis(self.simulation.between(5_000, 60_000)));
                self.change(|machine| {
                    (machine.unit, machine.started_at, machine.has_data) = (Unit::Starting(at), Some(now), true);
                });
                self.simulation.kube().register(&self.node.name, now, at);
                at
            }
        };
        reach(Point::TaskInside(self.task));
        self.report_progress("waiting for the unit: etcd");
        self.wait_until(up_at.max(now)).await?;
        self.report_progress("waiting for the unit: kubelet");
        if let Err(failure) = self.injected_failure().and_then(|()| self.whole()) {
            // A failed start leaves the unit stopped.
            self.node.machine().unit = Unit::Stopped;
            return Err(failure);
        }
        let ca_sha256 = (task.role == Rke2Role::Server).then(|| sha256_hex(self.node.name.as_bytes()));
        let (unit, started_at) = (self.node.unit_report(task.role.unit(), up_at), self.node.machine().started_at);
        value(&Rke2Started { unit, ready_after_ms: 1, started_at, ca_sha256 })
    }

    async fn kubeconfig(&self, task: &Rke2KubeconfigRead) -> Result<Value, TaskFailure> {
        if !self.node.machine().is_up(self.simulation.scheduler.now()) {
            return Err(failed(Code::ClusterNotReady, "there is no kubeconfig yet"));
        }
        self.injected_failure()?;
        let bytes = format!("kubeconfig of {}", self.node.name);
        let (node, secret_id, deposit) = (self.node.enrolled(), task.secret_id, bytes.clone());
        let deposited = self.simulation.ask(move |engine| {
            let deposit = deposit.clone();
            Box::pin(async move { engine.deposit_for_node(node, secret_id, deposit.as_bytes()).await })
        });
        self.unwrap_answer(deposited.await)?;
        value(&Rke2KubeconfigStored { secret: SecretRef { secret_id, sha256: sha256_hex(bytes.as_bytes()) } })
    }

    async fn stop(&self) -> Result<Value, TaskFailure> {
        reach(Point::TaskInside(self.task));
        self.injected_failure()?;
        let changed = self.node.machine().unit != Unit::Stopped;
        if changed {
            self.change(|machine| machine.unit = Unit::Stopped);
        }
        value(&Rke2Stopped { changed })
    }

    async fn enable(&self) -> Result<Value, TaskFailure> {
        reach(Point::TaskInside(self.task));
        self.injected_failure()?;
        let changed = self.node.machine().enablement != Enablement::Enabled;
        if changed {
            self.change(|machine| machine.enablement = Enablement::Enabled);
        }
        value(&Rke2Enabled { changed })
    }

    async fn observe(&self, task: &Rke2Observe) -> Result<Value, TaskFailure> {
        self.node.machine().observed_at = Some(self.simulation.scheduler.now());
        self.injected_failure()?;
        let expected = task.expected.as_ref();
        value(&Rke2Observation {
            unit: None,
            version_line: None,
            listening: Vec::new(),
            ca_sha256: None,
            journal: Vec::new(),
            config_sha256: None,
            deviations: expected.map_or_else(Vec::new, |expected| self.node.machine().observe(expected)),
        })
    }

    /// Fails if the program is damaged.
    fn whole(&self) -> Result<(), TaskFailure> {
        if self.node.machine().is_damaged { Err(failed(Code::HostFailed, "the unit exits repeatedly")) } else { Ok(()) }
    }

    async fn uninstall(&self) -> Result<Value, TaskFailure> {
        reach(Point::TaskInside(self.task));
        self.pause(100, 2_000).await?;
        self.injected_failure()?;
        let changed = !self.node.machine().is_clean();
        if changed {
            let leaves_something = self.simulation.faults().leaves_something(self.node.index);
            if leaves_something {
                self.simulation.count("removals that left something");
            }
            if self.node.machine().role == Some(Rke2Role::Server) {
                self.simulation.kube().clear();
            }
            self.change(|machine| {
                (machine.installed, machine.unit) = (false, Unit::Stopped);
                (machine.files, machine.written, machine.was_seen_deviating) = (None, None, false);
                (machine.enablement, machine.hinted_at) = (Enablement::Enabled, None);
                (machine.has_data, machine.fetched, machine.is_damaged) = (leaves_something, false, false);
            });
        }
        value(&Rke2Uninstalled { exit_status: changed.then_some(0), found: Vec::new(), removed: Vec::new() })
    }

    async fn residue(&self) -> Result<Value, TaskFailure> {
        self.injected_failure()?;
        let is_left = !self.node.machine().is_clean() || self.simulation.happens(|faults| faults.residue);
        let item = ResidueItem { kind: ResidueKind::Path, what: "/var/lib/rancher".to_owned() };
        value(&ResidueReport { items: is_left.then_some(item).into_iter().collect(), unseen: Vec::new() })
    }

    /// Reads a secret of the task from the control plane and returns its SHA-256.
    async fn secret(&self, secret: &SecretRef) -> Result<String, TaskFailure> {
        let (node, id) = (self.node.enrolled(), secret.secret_id);
        let read = self.simulation.ask(move |engine| Box::pin(async move { engine.secret_for_node(node, id).await }));
        let bytes = self.unwrap_answer(read.await)?;
        oracles::check_effect(&self.simulation, Effect::Secret(node, id));
        let sha256 = sha256_hex(&bytes);
        self.check(sha256 == secret.sha256, "a secret is not the one that the task names");
        Ok(sha256)
    }

    fn unwrap_answer<T>(&self, answer: Option<Result<T, gpuaas_engine::EngineError>>) -> Result<T, TaskFailure> {
        match answer {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(failed(Code::ServerUnreachable, &error.to_string())),
            None => Err(failed(Code::ServerUnreachable, "the control plane did not answer")),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Machine)) {
        let mut machine = self.node.machine();
        change(&mut machine);
        machine.count_effect(self.task);
        drop(machine);
        self.simulation.log(&format!("{}: {} changed the host", self.node.name, self.task));
    }

    fn injected_failure(&self) -> Result<(), TaskFailure> {
        match self.simulation.faults().of_task(self.node.index, self.task) {
            Some(code) => {
                self.simulation.count("tasks failed");
                Err(failed(code, "injected by the seed"))
            }
            None => Ok(()),
        }
    }

    fn check(&self, holds: bool, otherwise: &str) {
        if !holds {
            self.simulation.report_violation(Oracle::Order, format!("{}, {}: {otherwise}", self.node.name, self.task));
        }
    }

    fn report_progress(&self, text: &str) {
        (self.work.progress)(TaskProgress { text: text.to_owned(), percent: None });
    }

    async fn pause(&self, from_ms: u64, to_ms: u64) -> Result<(), TaskFailure> {
        let wait = Duration::from_millis(self.simulation.between(from_ms, to_ms));
        self.wait_until(self.simulation.scheduler.now().plus(wait)).await
    }

    async fn wait_until(&self, at: Timestamp) -> Result<(), TaskFailure> {
        tokio::select! {
            biased;
            () = self.work.cancel.cancelled() => Err(failed(Code::TaskCancelled, "cancelled")),
            () = self.simulation.scheduler.sleep_until(at) => Ok(()),
            () = self.simulation.scheduler.sleep_until(self.work.deadline) => Err(failed(Code::TaskTimedOut, "too late")),
        }
    }
}

impl Node {
    /// Returns a report that the unit is active since `since`.
    pub(crate) fn unit_report(&self, unit: &str, since: Timestamp) -> UnitReport {
        UnitReport {
            unit: unit.to_owned(),
            active: "active".to_owned(),
            sub: "running".to_owned(),
            result: "success".to_owned(),
            n_restarts: 0,
            exec_main_status: 0,
            since,
        }
    }

    /// Returns a report that the unit has ended.
    pub(crate) fn down_report(&self, unit: &str, since: Timestamp) -> UnitReport {
        UnitReport {
            active: "failed".to_owned(),
            sub: "failed".to_owned(),
            result: "exit-code".to_owned(),
            exec_main_status: 1,
            ..self.unit_report(unit, since)
        }
    }
}

fn failed(code: Code, message: &str) -> TaskFailure {
    TaskFailure::new(code, message)
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, TaskFailure> {
    serde_json::from_value(params).map_err(|error| failed(Code::TaskParamsInvalid, &error.to_string()))
}

fn value(result: &impl Serialize) -> Result<Value, TaskFailure> {
    serde_json::to_value(result).map_err(|error| failed(Code::Internal, &error.to_string()))
}
