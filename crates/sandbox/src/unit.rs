//! One unit's life: start, notify, end, restart; told in systemd's words.

use std::{cell::RefCell, rc::Rc, time::Duration};

use gpuaas_host::{UnitStatus, sandbox::SandboxEnvironment};
use rustix::process::{Pid, Signal};
use tokio::{
    process::Child,
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    journal::{Journal, now},
    process::{notify_socket, spawn},
    unit_file::{Exec, KillMode, Kind, Restart, UnitFile},
};

/// systemd's default start limit: more starts than this within [`START_LIMIT_INTERVAL`] and a unit has failed.
const START_LIMIT_BURST: usize = 5;
/// See [`START_LIMIT_BURST`].
const START_LIMIT_INTERVAL: Duration = Duration::from_secs(10);
/// ExecMainStatus of a program that could not be executed.
const EXIT_EXEC: i32 = 203;

/// How a start job ended.
pub(crate) type JobEnd = Result<(), String>;

/// A unit that the init knows.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) journal: Journal,
    pub(crate) status: watch::Receiver<UnitStatus>,
    pub(crate) file: Rc<RefCell<UnitFile>>,
    orders: mpsc::UnboundedSender<Order>,
}

enum Order {
    Start(oneshot::Sender<JobEnd>),
    Stop(oneshot::Sender<()>),
}

struct Supervisor {
    name: String,
    environment: SandboxEnvironment,
    file: Rc<RefCell<UnitFile>>,
    journal: Journal,
    status: watch::Sender<UnitStatus>,
    orders: mpsc::UnboundedReceiver<Order>,
    starts: Vec<Instant>,
}

/// Why a run of the main process came to an end.
enum RunEnd {
    /// By itself, before it was up or after; whether it counts as a failure.
    Exited { failed: bool },
    /// A stop was ordered.
    Stopped(oneshot::Sender<()>),
    /// A condition said no.
    Skipped,
}

impl Unit {
    /// Begins to look after a unit, which is inactive.
    pub(crate) fn new(name: &str, file: UnitFile, environment: &SandboxEnvironment, journal: Journal) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let (status, watching) = watch::channel(inactive(name));
        let file = Rc::new(RefCell::new(file));
        let supervisor = Supervisor {
            name: name.to_owned(),
            environment: environment.clone(),
            file: file.clone(),
            journal: journal.clone(),
            status,
            orders: received,
            starts: Vec::new(),
        };
        tokio::task::spawn_local(supervisor.run());
        Self { journal, status: watching, file, orders }
    }

    /// Orders a start. The receiver tells how the start job ended; a unit that runs already ends it at once.
    pub(crate) fn start(&self) -> oneshot::Receiver<JobEnd> {
        let (end, ended) = oneshot::channel();
        // The supervisor lives as long as the init; a dropped sender would read as a hung-up job.
        let _ = self.orders.send(Order::Start(end));
        ended
    }

    /// Orders a stop. The receiver tells when the unit is inactive.
    pub(crate) fn stop(&self) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        let _ = self.orders.send(Order::Stop(end));
        ended
    }
}

fn inactive(name: &str) -> UnitStatus {
    UnitStatus {
        unit: name.to_owned(),
        active: "inactive".to_owned(),
        sub: "dead".to_owned(),
        result: "success".to_owned(),
        n_restarts: 0,
        exec_main_status: 0,
        main_pid: 0,
        since: now(),
    }
}

impl Supervisor {
    async fn run(mut self) {
        while let Some(order) = self.orders.recv().await {
            match order {
                Order::Stop(done) => {
                    self.set(|status| *status = inactive(&status.unit));
                    let _ = done.send(());
                }
                Order::Start(job) => self.run_until_inactive(job).await,
            }
        }
    }

    /// From a start order until the unit is inactive or failed.
    async fn run_until_inactive(&mut self, job: oneshot::Sender<JobEnd>) {
        let mut job = Some(job);
        self.set(|status| status.n_restarts = 0);
        loop {
            if !self.may_start() {
                self.journal.write(&format!("{}: Start request repeated too quickly.", self.name));
                self.enter("failed", "failed", Some("start-limit-hit"));
                end_job(&mut job, Err(format!("Job for {} failed: start request repeated too quickly.", self.name)));
                return;
            }
            let file = self.file.borrow().clone();
            match self.run_once(&file, &mut job).await {
                RunEnd::Skipped => {
                    self.journal.write(&format!("{}: Skipped due to 'exec-condition'.", self.name));
                    self.set(|status| *status = inactive(&status.unit));
                    // systemctl's own start job succeeds though nothing was started.
                    end_job(&mut job, Ok(()));
                    return;
                }
                RunEnd::Stopped(done) => {
                    self.stop_post(&file).await;
                    self.journal.write(&format!("{}: Deactivated successfully.", self.name));
                    self.set(|status| *status = inactive(&status.unit));
                    end_job(&mut job, Err(format!("Job for {} canceled.", self.name)));
                    let _ = done.send(());
                    return;
                }
                RunEnd::Exited { failed } => {
                    end_job(
                        &mut job,
                        Err(format!(
                            "Job for {} failed because the control process exited with error code.",
                            self.name
                        )),
                    );
                    self.stop_post(&file).await;
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
                        self.set(|status| *status = inactive(&status.unit));
                        let _ = done.send(());
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
                order = self.orders.recv() => match order {
                    Some(Order::Stop(done)) => return Some(done),
                    Some(Order::Start(job)) => {
                        // Already on its way; a blocking systemctl would wait, which nobody here needs.
                        let _ = job.send(Ok(()));
                    }
                    None => std::future::pending::<()>().await,
                }
            }
        }
    }

    async fn run_once(&mut self, file: &UnitFile, job: &mut Option<oneshot::Sender<JobEnd>>) -> RunEnd {
        self.enter("activating", "start-pre", Some("success"));
        for condition in &file.condition {
            if !self.helper(file, condition).await {
                return RunEnd::Skipped;
            }
        }
        for command in &file.start_pre {
            if !self.helper(file, command).await && !command.may_fail {
                self.set(|status| status.result = "exit-code".to_owned());
                return RunEnd::Exited { failed: true };
            }
        }
        let notify = match file.kind {
            Kind::Notify => notify_socket(&self.environment, &self.name).ok(),
            Kind::Simple => None,
        };
        let name = notify.as_ref().map(|(_, name)| name.as_str());
        let child = match spawn(&self.environment, &self.name, file, &file.start, name, &self.journal) {
            Ok(child) => child,
            Err(error) => {
                self.journal.write(&format!("{}: Failed to execute {}: {error}", self.name, file.start.words[0]));
                self.set(|status| {
                    status.exec_main_status = EXIT_EXEC;
                    status.result = "exit-code".to_owned();
                });
                return RunEnd::Exited { failed: true };
            }
        };
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
        self.set(|status| status.main_pid = pid);
        if file.kind == Kind::Simple {
            self.enter("active", "running", None);
            end_job(job, Ok(()));
        } else {
            self.enter("activating", "start", None);
        }
        self.follow(file, child, notify.map(|(socket, _)| socket), job).await
    }

    /// Follows the main process to its end.
    async fn follow(
        &mut self,
        file: &UnitFile,
        mut child: Child,
        notify: Option<tokio::net::UnixDatagram>,
        job: &mut Option<oneshot::Sender<JobEnd>>,
    ) -> RunEnd {
        let mut message = [0_u8; 1_024];
        let give_up =
            (file.kind == Kind::Notify && !file.start_timeout.is_zero()).then(|| Instant::now() + file.start_timeout);
        loop {
            let starting = self.status.borrow().active == "activating";
            let told = async {
                match &notify {
                    Some(socket) => socket.recv(&mut message).await.unwrap_or(0),
                    None => std::future::pending().await,
                }
            };
            let timeout = async {
                match give_up.filter(|_| starting) {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                length = told => {
                    let ready = message[..length].split(|&byte| byte == b'\n').any(|line| line == b"READY=1");
                    if ready && starting {
                        self.enter("active", "running", None);
                        end_job(job, Ok(()));
                    }
                }
                status = child.wait() => return self.exited(status),
                () = timeout => {
                    self.journal.write(&format!("{}: start operation timed out. Terminating.", self.name));
                    self.kill(file, &child, Signal::KILL);
                    let _ = child.wait().await;
                    self.set(|status| { status.result = "timeout".to_owned(); status.main_pid = 0; });
                    return RunEnd::Exited { failed: true };
                }
                order = self.orders.recv() => match order {
                    Some(Order::Start(again)) => {
                        // The unit runs, or is on its way there.
                        let _ = again.send(Ok(()));
                    }
                    Some(Order::Stop(done)) => {
                        self.stop(file, &mut child).await;
                        return RunEnd::Stopped(done);
                    }
                    None => std::future::pending::<()>().await,
                }
            }
        }
    }

    fn exited(&mut self, status: std::io::Result<std::process::ExitStatus>) -> RunEnd {
        use std::os::unix::process::ExitStatusExt;
        let (code, signal) = match &status {
            Ok(status) => (status.code(), status.signal()),
            Err(_) => (Some(1), None),
        };
        let failed = code != Some(0);
        let (result, number, how) = match (code, signal) {
            (Some(0), _) => ("success", 0, "exited, status=0/SUCCESS".to_owned()),
            (Some(code), _) => ("exit-code", code, format!("exited, status={code}/FAILURE")),
            (None, signal) => ("signal", signal.unwrap_or(0), format!("killed, status={}", signal.unwrap_or(0))),
        };
        self.journal.write(&format!("{}: Main process exited, code={how}", self.name));
        if failed {
            self.journal.write(&format!("{}: Failed with result '{result}'.", self.name));
        }
        self.set(|status| {
            status.result = result.to_owned();
            status.exec_main_status = number;
            status.main_pid = 0;
        });
        RunEnd::Exited { failed }
    }

    async fn stop(&mut self, file: &UnitFile, child: &mut Child) {
        self.enter("deactivating", "stop-sigterm", None);
        self.kill(file, child, Signal::TERM);
        if tokio::time::timeout(file.stop_timeout, child.wait()).await.is_err() {
            self.journal.write(&format!("{}: State 'stop-sigterm' timed out. Killing.", self.name));
            self.kill(file, child, Signal::KILL);
            let _ = child.wait().await;
        }
        self.set(|status| status.main_pid = 0);
    }

    fn kill(&self, file: &UnitFile, child: &Child, signal: Signal) {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        // A process that has ended meanwhile needs no signal.
        let _ = match file.kill_mode {
            KillMode::Process => rustix::process::kill_process(pid, signal),
            KillMode::ControlGroup => rustix::process::kill_process_group(pid, signal),
        };
    }

    async fn stop_post(&mut self, file: &UnitFile) {
        for command in &file.stop_post {
            self.helper(file, command).await;
        }
    }

    /// Runs a condition, a pre- or a post-command to its end. True when it succeeded.
    async fn helper(&self, file: &UnitFile, exec: &Exec) -> bool {
        match spawn(&self.environment, &self.name, file, exec, None, &self.journal) {
            Ok(mut child) => child.wait().await.is_ok_and(|status| status.success()),
            Err(error) => {
                self.journal.write(&format!("{}: Failed to execute {}: {error}", self.name, exec.words.join(" ")));
                false
            }
        }
    }

    fn may_start(&mut self) -> bool {
        let now = Instant::now();
        self.starts.retain(|at| now.duration_since(*at) < START_LIMIT_INTERVAL);
        self.starts.push(now);
        self.starts.len() <= START_LIMIT_BURST
    }

    fn enter(&self, active: &str, sub: &str, result: Option<&str>) {
        self.set(|status| {
            if status.active != active {
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

fn end_job(job: &mut Option<oneshot::Sender<JobEnd>>, end: JobEnd) {
    if let Some(job) = job.take() {
        // Nobody waits for a start that was ordered with --no-block.
        let _ = job.send(end);
    }
}
