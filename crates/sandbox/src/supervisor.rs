//! The lifecycle of a unit: start, readiness, end, restart; with systemd's states and messages.

use std::{cell::RefCell, os::unix::process::ExitStatusExt, process::ExitStatus, rc::Rc, time::Duration};

use gpuaas_host::{UnitStatus, sandbox::SandboxEnvironment};
use rustix::process::Signal;
use tokio::{
    net::UnixDatagram,
    process::Child,
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    journal::{Journal, now},
    process::{self, notify_socket, spawn},
    unit_file::{Exec, KillMode, Kind, Restart, UnitFile},
};

/// ExecMainStatus of a program that could not be executed.
const EXIT_EXEC: i32 = 203;
/// An ExecCondition with this exit status, or ended by a signal, has failed; any other status above zero skips the unit.
const EXIT_CONDITION_FAILED: i32 = 255;
/// Signals that systemd treats as a clean exit.
const CLEAN_SIGNALS: &[Signal] = &[Signal::HUP, Signal::INT, Signal::TERM, Signal::PIPE];
/// Longest wait for processes after SIGKILL, which they cannot catch.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
/// The wait that stands for no time limit.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The result of a start job; the error is `systemctl`'s message.
pub(crate) type JobEnd = Result<(), String>;

/// An order to a unit.
pub(crate) enum Order {
    /// Starts the unit.
    Start(Start),
    /// Stops the unit; answered when it has stopped.
    Stop(oneshot::Sender<()>),
    /// Resets failures and the start counter; answered when done.
    Reset(oneshot::Sender<()>),
}

/// A start order.
pub(crate) struct Start {
    /// Receives at once if there was anything to start.
    pub(crate) taken: oneshot::Sender<bool>,
    /// Receives the result of the start job.
    pub(crate) end: oneshot::Sender<JobEnd>,
}

/// Supervises one unit.
pub(crate) struct Supervisor {
    name: String,
    environment: SandboxEnvironment,
    file: Rc<RefCell<UnitFile>>,
    journal: Journal,
    status: watch::Sender<UnitStatus>,
    orders: mpsc::UnboundedReceiver<Order>,
    /// Receivers of the result of the start in progress.
    jobs: Vec<oneshot::Sender<JobEnd>>,
    /// Times of the starts within the start limit's interval.
    starts: Vec<Instant>,
}

/// The reason why a run ended.
enum RunEnd {
    /// The unit ended without a stop order, before or after it was ready; `failed` if this counts as a failure.
    Exited { failed: bool },
    /// A stop was ordered.
    Stopped(oneshot::Sender<()>),
    /// An ExecCondition skipped the unit.
    Skipped,
}

/// The result of a condition, pre-command or post-command.
enum HelperEnd {
    Exited(Option<i32>),
    TimedOut,
    Stopped(oneshot::Sender<()>),
}

impl Supervisor {
    pub(crate) fn new(
        name: &str,
        environment: SandboxEnvironment,
        file: Rc<RefCell<UnitFile>>,
        journal: Journal,
        status: watch::Sender<UnitStatus>,
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> Self {
        let (jobs, starts) = (Vec::new(), Vec::new());
        Self { name: name.to_owned(), environment, file, journal, status, orders, jobs, starts }
    }

    /// Carries out orders until every handle of the unit is dropped.
    pub(crate) async fn run(mut self) {
        while let Some(order) = self.orders.recv().await {
            match order {
                // A failed unit stays failed until it is reset or started.
                Order::Stop(done) => answer(done, ()),
                Order::Reset(done) => {
                    self.starts.clear();
                    self.set(|status| *status = inactive(&status.unit));
                    answer(done, ());
                }
                Order::Start(Start { taken, end }) => {
                    self.jobs.push(end);
                    self.run_until_stopped(taken).await;
                }
            }
        }
    }

    /// Runs the unit from a start order until it is inactive or failed.
    async fn run_until_stopped(&mut self, taken: oneshot::Sender<bool>) {
        let mut taken = Some(taken);
        self.set(|status| status.n_restarts = 0);
        loop {
            let file = self.file.borrow().clone();
            if !self.may_start(&file) {
                self.journal.write(&format!("{}: Start request repeated too quickly.", self.name));
                // The result of the last failure is kept.
                let result = (self.status.borrow().result == "success").then_some("start-limit-hit");
                self.enter("failed", "failed", result);
                self.end_jobs(&Err(format!("Job for {} failed: start request repeated too quickly.", self.name)));
                taken.take().into_iter().for_each(|taken| answer(taken, true));
                return;
            }
            if let Some(unmet) = file.unmet_path_condition(&self.environment) {
                self.journal
                    .write(&format!("{} was skipped because of an unmet condition check ({unmet}).", self.name));
                self.set_inactive();
                self.end_jobs(&Ok(()));
                taken.take().into_iter().for_each(|taken| answer(taken, true));
                return;
            }
            self.enter("activating", "start-pre", Some("success"));
            taken.take().into_iter().for_each(|taken| answer(taken, true));
            match self.run_once(&file).await {
                RunEnd::Skipped => {
                    self.journal.write(&format!("{}: Skipped due to 'exec-condition'.", self.name));
                    self.enter("inactive", "dead", Some("exec-condition"));
                    // `systemctl start` succeeds although nothing was started.
                    self.end_jobs(&Ok(()));
                    return;
                }
                RunEnd::Stopped(done) => {
                    self.stop_post(&file).await;
                    if self.status.borrow().result == "success" {
                        self.journal.write(&format!("{}: Deactivated successfully.", self.name));
                        self.set_inactive();
                    } else {
                        self.enter("failed", "failed", None);
                    }
                    self.end_jobs(&Err(format!("Job for {} canceled.", self.name)));
                    answer(done, ());
                    return;
                }
                RunEnd::Exited { failed } => {
                    if file.kill_mode == KillMode::ControlGroup {
                        self.enter("deactivating", "stop-sigterm", None);
                        self.end_processes(&file, None).await;
                    }
                    self.stop_post(&file).await;
                    self.journal.write(&if failed {
                        format!("{}: Failed with result '{}'.", self.name, self.status.borrow().result)
                    } else {
                        format!("{}: Deactivated successfully.", self.name)
                    });
                    self.end_jobs(&Err(format!(
                        "Job for {} failed because the control process exited with error code.",
                        self.name
                    )));
                    let again = match file.restart {
                        Restart::Always => true,
                        Restart::OnFailure => failed,
                        Restart::Never => false,
                    };
                    if !again {
                        let (active, sub) = if failed { ("failed", "failed") } else { ("inactive", "dead") };
                        self.enter(active, sub, None);
                        return;
                    }
                    if let Some(done) = self.wait_for_restart(file.restart_after).await {
                        self.set_inactive();
                        self.end_jobs(&Err(format!("Job for {} canceled.", self.name)));
                        answer(done, ());
                        return;
                    }
                }
            }
        }
    }

    /// Waits in `activating/auto-restart`; returns early with a stop order.
    async fn wait_for_restart(&mut self, wait: Duration) -> Option<oneshot::Sender<()>> {
        self.enter("activating", "auto-restart", None);
        let end = Instant::now() + wait;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(end) => {
                    self.set(|status| status.n_restarts += 1);
                    let restarts = self.status.borrow().n_restarts;
                    self.journal.write(&format!("{}: Scheduled restart job, restart counter is at {restarts}.", self.name));
                    return None;
                }
                order = self.orders.recv() => if let Some(done) = self.accept_order(order) { return Some(done) },
            }
        }
    }

    async fn run_once(&mut self, file: &UnitFile) -> RunEnd {
        let limit = (!file.start_timeout.is_zero()).then(|| Instant::now() + file.start_timeout);
        if let Err(error) = process::file_variables(&self.environment, file) {
            self.journal.write(&format!("{}: Failed to load environment files: {error}", self.name));
            return self.failed("resources", 0);
        }
        for condition in &file.condition {
            match self.helper(file, condition, limit, true).await {
                HelperEnd::Exited(Some(0)) => {}
                HelperEnd::Exited(Some(EXIT_CONDITION_FAILED) | None) => return self.failed("exit-code", 0),
                HelperEnd::Exited(Some(_)) => return RunEnd::Skipped,
                HelperEnd::TimedOut => return self.failed("timeout", 0),
                HelperEnd::Stopped(done) => return self.aborted(done),
            }
        }
        for command in &file.start_pre {
            match self.helper(file, command, limit, true).await {
                HelperEnd::Exited(Some(0)) => {}
                HelperEnd::Exited(_) if command.may_fail => {}
                HelperEnd::Exited(_) => return self.failed("exit-code", 0),
                HelperEnd::TimedOut => return self.failed("timeout", 0),
                HelperEnd::Stopped(done) => return self.aborted(done),
            }
        }
        let notify = match file.kind {
            Kind::Notify => notify_socket(&self.environment, &self.name).ok(),
            Kind::Simple => None,
        };
        let name = notify.as_ref().map(|(_, name)| name.as_str());
        let began = now();
        let child = match spawn(&self.environment, &self.name, file, &file.start, name, &self.journal) {
            Ok(child) => child,
            Err(error) => {
                self.journal.write(&format!("{}: Failed to execute {}: {error}", self.name, file.start.words[0]));
                return self.failed("exit-code", EXIT_EXEC);
            }
        };
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
        self.set(|status| (status.main_pid, status.exec_main_status, status.started_at) = (pid, 0, Some(began)));
        if file.kind == Kind::Simple {
            self.enter("active", "running", None);
            self.end_jobs(&Ok(()));
        } else {
            self.enter("activating", "start", None);
        }
        self.follow(file, child, notify.map(|(socket, _)| socket), limit).await
    }

    /// Supervises the main process until it ends.
    async fn follow(
        &mut self,
        file: &UnitFile,
        mut child: Child,
        notify: Option<UnixDatagram>,
        limit: Option<Instant>,
    ) -> RunEnd {
        let mut message = [0_u8; 1_024];
        loop {
            let starting = self.status.borrow().active == "activating";
            let notified = async {
                match &notify {
                    Some(socket) => socket.recv(&mut message).await.unwrap_or(0),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                length = notified => {
                    let ready = message[..length].split(|&byte| byte == b'\n').any(|line| line == b"READY=1");
                    if ready && starting {
                        self.enter("active", "running", None);
                        self.end_jobs(&Ok(()));
                    }
                }
                status = child.wait() => return self.exited(status, file.kind == Kind::Notify && starting),
                () = at(limit.filter(|_| starting)) => {
                    self.journal.write(&format!("{}: start operation timed out. Terminating.", self.name));
                    self.enter("deactivating", "stop-sigterm", None);
                    self.end_processes(file, Some(&mut child)).await;
                    return self.failed("timeout", 0);
                }
                order = self.orders.recv() => if let Some(done) = self.accept_order(order) {
                    self.enter("deactivating", "stop-sigterm", None);
                    if !self.end_processes(file, Some(&mut child)).await {
                        self.set(|status| status.result = "timeout".to_owned());
                    }
                    self.set(|status| status.main_pid = 0);
                    return RunEnd::Stopped(done);
                },
            }
        }
    }

    /// Handles an order to a unit that is already started, and returns a stop order.
    fn accept_order(&mut self, order: Option<Order>) -> Option<oneshot::Sender<()>> {
        match order {
            Some(Order::Stop(done)) => return Some(done),
            Some(Order::Start(Start { taken, end })) => {
                answer(taken, false);
                if self.status.borrow().active == "active" {
                    answer(end, Ok(()));
                } else {
                    self.jobs.push(end);
                }
            }
            Some(Order::Reset(done)) => {
                self.starts.clear();
                answer(done, ());
            }
            // Every handle was dropped while the unit ran: nothing else could stop it.
            None => return Some(oneshot::channel().0),
        }
        None
    }

    fn exited(&mut self, status: std::io::Result<ExitStatus>, before_ready: bool) -> RunEnd {
        let (code, signal) = match &status {
            Ok(status) => (status.code(), status.signal()),
            Err(_) => (Some(1), None),
        };
        let clean = signal.is_some_and(|signal| CLEAN_SIGNALS.iter().any(|clean| clean.as_raw() == signal));
        let (result, number, how) = match (code, signal) {
            (Some(0), _) => ("success", 0, None),
            (Some(code), _) => ("exit-code", code, Some(format!("exited, status={code}/FAILURE"))),
            (None, signal) => {
                let number = signal.unwrap_or(0);
                (if clean { "success" } else { "signal" }, number, (!clean).then(|| format!("killed, status={number}")))
            }
        };
        // A notify unit that exits cleanly before it is ready has violated the protocol.
        let result = if before_ready && result == "success" { "protocol" } else { result };
        // For a clean exit systemd logs this only at debug level.
        if let Some(how) = how {
            self.journal.write(&format!("{}: Main process exited, code={how}", self.name));
        }
        self.set(|status| {
            status.result = result.to_owned();
            status.exec_main_status = number;
            status.main_pid = 0;
        });
        RunEnd::Exited { failed: result != "success" }
    }

    /// Ends a run that was stopped while a helper ran: the helper was killed, which counts as a failure.
    fn aborted(&self, done: oneshot::Sender<()>) -> RunEnd {
        self.set(|status| status.result = "signal".to_owned());
        RunEnd::Stopped(done)
    }

    fn failed(&self, result: &str, exec_main_status: i32) -> RunEnd {
        self.set(|status| {
            result.clone_into(&mut status.result);
            status.exec_main_status = exec_main_status;
            status.main_pid = 0;
        });
        RunEnd::Exited { failed: true }
    }

    /// Ends the processes that [`UnitFile::kill_mode`] selects: with SIGTERM, and after the unit's stop timeout with SIGKILL. Returns true
    /// if SIGTERM was enough.
    async fn end_processes(&self, file: &UnitFile, mut child: Option<&mut Child>) -> bool {
        let term_timeout = if file.stop_timeout.is_zero() { NO_TIMEOUT } else { file.stop_timeout };
        for (signal, timeout) in [(Signal::TERM, term_timeout), (Signal::KILL, KILL_TIMEOUT)] {
            let others = match file.kill_mode {
                KillMode::Process => Vec::new(),
                KillMode::ControlGroup => process::of_unit(&self.environment.root, &self.name),
            };
            let main = child.as_ref().and_then(|child| process::id(child));
            for &pid in main.iter().chain(&others) {
                // A process that has ended since needs no signal.
                let _ = rustix::process::kill_process(pid, signal);
            }
            let ended = async {
                if let Some(child) = &mut child {
                    let _ = child.wait().await;
                }
                futures::future::join_all(others.into_iter().map(process::wait_for_end)).await;
            };
            if tokio::time::timeout(timeout, ended).await.is_ok() {
                return signal == Signal::TERM;
            }
            self.journal.write(&format!("{}: State 'stop-sigterm' timed out. Killing.", self.name));
        }
        false
    }

    async fn stop_post(&mut self, file: &UnitFile) {
        if file.stop_post.is_empty() {
            return;
        }
        self.enter("deactivating", "stop-post", None);
        let limit = (!file.stop_timeout.is_zero()).then(|| Instant::now() + file.stop_timeout);
        for command in &file.stop_post {
            self.helper(file, command, limit, false).await;
        }
    }

    /// Runs a condition, pre-command or post-command until it ends or, if `stoppable`, a stop is ordered.
    async fn helper(&mut self, file: &UnitFile, exec: &Exec, limit: Option<Instant>, stoppable: bool) -> HelperEnd {
        let mut child = match spawn(&self.environment, &self.name, file, exec, None, &self.journal) {
            Ok(child) => child,
            Err(error) => {
                self.journal.write(&format!("{}: Failed to execute {}: {error}", self.name, exec.words.join(" ")));
                return HelperEnd::Exited(Some(EXIT_EXEC));
            }
        };
        loop {
            let orders = async { if stoppable { self.orders.recv().await } else { std::future::pending().await } };
            tokio::select! {
                status = child.wait() => return HelperEnd::Exited(status.ok().and_then(|status| status.code())),
                () = at(limit) => {
                    self.journal.write(&format!("{}: start operation timed out. Terminating.", self.name));
                    self.end_processes(file, Some(&mut child)).await;
                    return HelperEnd::TimedOut;
                }
                order = orders => if let Some(done) = self.accept_order(order) {
                    self.enter("deactivating", "stop-sigterm", None);
                    self.end_processes(file, Some(&mut child)).await;
                    return HelperEnd::Stopped(done);
                },
            }
        }
    }

    fn may_start(&mut self, file: &UnitFile) -> bool {
        let now = Instant::now();
        self.starts.retain(|at| now.duration_since(*at) < file.start_limit_interval);
        if file.start_limit_burst > 0 && self.starts.len() >= file.start_limit_burst {
            return false;
        }
        self.starts.push(now);
        true
    }

    fn end_jobs(&mut self, end: &JobEnd) {
        for job in self.jobs.drain(..) {
            answer(job, end.clone());
        }
    }

    fn set_inactive(&self) {
        self.set(|status| *status = inactive(&status.unit));
    }

    fn enter(&self, active: &str, sub: &str, result: Option<&str>) {
        self.set(|status| {
            if (status.active.as_str(), status.sub.as_str()) != (active, sub) {
                status.since = now();
            }
            active.clone_into(&mut status.active);
            sub.clone_into(&mut status.sub);
            if let Some(result) = result {
                result.clone_into(&mut status.result);
            }
        });
    }

    fn set(&self, change: impl FnOnce(&mut UnitStatus)) {
        self.status.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            *status != before
        });
    }
}

/// Sends an answer; the receiver may have been dropped.
fn answer<T>(to: oneshot::Sender<T>, what: T) {
    let _ = to.send(what);
}

async fn at(limit: Option<Instant>) {
    match limit {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns the status of a unit that has never run, or was stopped.
pub(crate) fn inactive(name: &str) -> UnitStatus {
    UnitStatus {
        unit: name.to_owned(),
        active: "inactive".to_owned(),
        sub: "dead".to_owned(),
        result: "success".to_owned(),
        n_restarts: 0,
        exec_main_status: 0,
        main_pid: 0,
        started_at: None,
        since: now(),
    }
}
