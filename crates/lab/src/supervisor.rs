//! Supervisor of a node: a separate process that boots the node, boots it again after a reboot, and reports its condition.
//!
//! Guarantees: every boot has a new network namespace and an empty cgroup; everything of it is removed before the next one begins. The
//! supervisor outlives the command that started it and ends when `down` kills it. `down` then cleans up as after a crash.

use std::{
    fs, io,
    process::{ExitStatus, Stdio},
    time::Instant,
};

use anyhow::Context;
use camino::Utf8Path;
use tokio::{
    net::{UnixDatagram, UnixListener},
    process::Child,
    sync::{mpsc, watch},
};

use super::{
    cgroups,
    control::{self, Condition, Power, Request},
    kind::{self, BootEnd, Kind, LEADER},
    name::NodeName,
    network, place,
    plan::Plan,
    state::State,
};

/// Consecutive boots that end in a reboot before they complete, after which a node stays off. Any other end turns it off at once.
const FAILED_BOOTS_MAX: u32 = 5;
/// Line that the supervisor prints once its control socket accepts connections.
pub(super) const LISTENING: &str = "listening";

/// Runs the hidden command: supervises a node of the lab that the state file describes.
pub(super) fn run(name: &NodeName) -> anyhow::Result<()> {
    let state = State::read()?.context("there is no lab to supervise")?;
    let (kind, plan) = (kind::named(&state.shape.kind)?, Plan::of(&state, name)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(supervise(kind.as_ref(), &plan))
}

async fn supervise(kind: &dyn Kind, plan: &Plan) -> anyhow::Result<()> {
    let off = Condition { power: Power::Off("not started".to_owned()), boots: 0, leader: None, boot_ms: None };
    let (condition, watched) = watch::channel(off);
    let (sender, requests) = mpsc::channel(8);
    let control = control::socket_of(&plan.name);
    let listener = UnixListener::bind(&control).with_context(|| control.to_string())?;
    let serving = tokio::spawn(control::serve(listener, watched, sender));
    println!("{LISTENING}");
    let mut node = Supervised { kind, plan, condition, requests };
    tokio::select! {
        biased;
        served = serving => Ok(served??),
        () = node.run() => Ok(()),
    }
}

/// State of the supervision of one node.
struct Supervised<'a> {
    kind: &'a dyn Kind,
    plan: &'a Plan,
    condition: watch::Sender<Condition>,
    requests: mpsc::Receiver<Request>,
}

impl Supervised<'_> {
    /// Boots the node, and waits for requests while it is off; ends when no request can arrive any more.
    async fn run(&mut self) {
        let mut failed = 0;
        loop {
            let ended = self.boot().await.unwrap_or_else(|error| BootEnd::Failed(format!("{error:#}")));
            let has_booted = self.condition.borrow().power == Power::On;
            failed = if has_booted { 0 } else { failed + 1 };
            let why = match ended {
                BootEnd::Reboot if failed < FAILED_BOOTS_MAX => continue,
                BootEnd::Reboot => format!("{failed} consecutive boots failed"),
                BootEnd::Off => "switched off".to_owned(),
                BootEnd::Failed(why) => why,
            };
            eprintln!("{}: {why}", self.plan.name);
            self.condition.send_modify(|condition| (condition.power, condition.leader) = (Power::Off(why), None));
            failed = 0;
            loop {
                match self.requests.recv().await {
                    Some(Request::Start) => break,
                    Some(_) => {}
                    None => return,
                }
            }
        }
    }

    /// Runs one boot, including the cleanup before and after it.
    async fn boot(&mut self) -> anyhow::Result<BootEnd> {
        self.condition.send_modify(|condition| {
            *condition = Condition { power: Power::Booting, boots: condition.boots + 1, leader: None, boot_ms: None };
        });
        let plan = self.plan;
        let name = &plan.name;
        let group = place::group(name.as_str());
        clear(name, &group)?;
        cgroups::make(&group)?;
        network::attach(name, &plan.subnet, plan.address)?;
        let console = fs::File::create(console_of(name))?;
        let notify = place::run_of(name).join("notify");
        let notices = listen(&notify)?;
        let mut command = tokio::process::Command::from(self.kind.boot(plan, &notify)?);
        command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
        let mut child = command.spawn().context("starting the boot's process")?;
        let followed = self.follow(&mut child, &notices, &group).await;
        clear(name, &group)?;
        let (status, was_cut) = followed?;
        Ok(if was_cut { BootEnd::Failed("power cut".to_owned()) } else { self.kind.boot_end(status) })
    }

    /// Processes the boot's notifications until it ends.
    async fn follow(
        &mut self,
        child: &mut Child,
        notices: &UnixDatagram,
        group: &str,
    ) -> anyhow::Result<(ExitStatus, bool)> {
        let (began, mut was_cut) = (Instant::now(), false);
        let mut notice = [0; 4096];
        loop {
            tokio::select! {
                biased;
                status = child.wait() => return Ok((status?, was_cut)),
                request = self.requests.recv() => if request == Some(Request::Cut) {
                    was_cut = true;
                    cgroups::end(group)?;
                },
                length = notices.recv(&mut notice) => {
                    let text = String::from_utf8_lossy(&notice[..length?]).into_owned();
                    self.condition.send_if_modified(|condition| apply_notification(condition, &text, began));
                }
            }
        }
    }
}

/// Kills the remaining processes of a boot and removes its network.
fn clear(name: &NodeName, group: &str) -> anyhow::Result<()> {
    cgroups::end(group)?;
    cgroups::remove(group)?;
    network::detach(name)
}

/// Creates a fresh notification socket for one boot, so that late notifications of the previous boot do not reach it.
fn listen(notify: &Utf8Path) -> anyhow::Result<UnixDatagram> {
    match fs::remove_file(notify) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(|| notify.to_string()),
        _ => {}
    }
    UnixDatagram::bind(notify).with_context(|| notify.to_string())
}

/// Applies `sd_notify` lines to the condition; returns whether it changed.
fn apply_notification(condition: &mut Condition, text: &str, began: Instant) -> bool {
    let before = condition.clone();
    for line in text.lines() {
        if let Some(leader) = line.strip_prefix(LEADER) {
            condition.leader = leader.parse().ok();
        } else if line == "READY=1" && condition.power == Power::Booting {
            condition.power = Power::On;
            condition.boot_ms = u64::try_from(began.elapsed().as_millis()).ok();
        }
    }
    *condition != before
}

/// File with a node's console output.
pub(super) fn console_of(name: &NodeName) -> camino::Utf8PathBuf {
    place::run_of(name).join("console.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_on_only_after_its_ready_notification() {
        let mut condition = Condition { power: Power::Booting, boots: 1, leader: None, boot_ms: None };
        let began = Instant::now();
        assert!(apply_notification(&mut condition, "STATUS=Container running.\nX_NSPAWN_LEADER_PID=4711", began));
        assert_eq!((&condition.power, condition.leader), (&Power::Booting, Some(4711)));
        assert!(!apply_notification(&mut condition, "STATUS=Starting units\nREADY=0", began));
        assert!(apply_notification(&mut condition, "READY=1\n", began));
        assert_eq!((&condition.power, condition.boot_ms.is_some()), (&Power::On, true));
        assert!(!apply_notification(&mut condition, "READY=1", began));
    }
}
