//! What cells work with: booted nodes, a control plane, and lines that bring nodes in.
//!
//! Guarantees: a cell gets nodes on which nothing of another cell is left, or the workload that one left running for it. Whether a node is as it was is looked at from outside of the platform,
//! by the node's own tools; one that is not is switched off and made anew when it is needed again.
//!
//! Deliberately absent: what is wrong with them; each cell brings its own fault.

use std::{rc::Rc, time::Duration};

use anyhow::{Context, ensure};
use gpuaas_api_types::{Enrollment, Operation, OperationDetail};

use crate::lab::{
    control::Power,
    node::{Lab, Node},
    test::{
        control_plane::ControlPlane,
        evidence,
        prepare::{Part, Prepared},
        said::in_shell,
    },
};

/// Nodes that cells share: two are the most that one needs at once, and one may go on running what a cell deployed.
pub(crate) const NODES: u8 = 3;
/// What stories must have made for it.
pub(crate) const NEEDS: &[Part] = &[Part::Programs, Part::Packages, Part::Release, Part::Kubectl];
/// Longest wait for something that takes a deployment's time.
const DEPLOYMENT_MAX: Duration = Duration::from_secs(300);

/// How a node is that nobody has touched: packages, mounts, listeners, names, rules, units, programs.
const TRACE: &str = "set -u
    dpkg-query -W
    findmnt --raw --noheadings --output TARGET,FSTYPE,OPTIONS | grep -v -e ^/proc/ -e ^/sys/ -e ^/run/user/
    ss --no-header --tcp --listening --numeric | tr -s ' ' | cut -d ' ' -f 4 | sort
    hostname; cat /etc/hostname /etc/machine-id /etc/hosts /etc/resolv.conf
    iptables-save | grep -v -e '^#' -e '^:'
    systemctl list-units --plain --no-legend --state=failed
    ls -A /etc/systemd/system /usr/local/bin /usr/local/lib /usr/local/share /var/lib /opt /root";

/// Everything.
pub(super) struct World<'a> {
    pub(super) lab: &'a Lab,
    pub(super) given: &'a Prepared,
    pub(super) platform: ControlPlane,
    machines: Vec<Machine>,
    running: Option<Running>,
    lines: u32,
}

struct Machine {
    node: Rc<Node>,
    use_: Use,
    /// How it was when nobody had touched it.
    trace: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Nobody has touched it, or nothing is left of it.
    Idle,
    /// The present cell has it.
    Taken,
    /// It runs what a cell deployed.
    Running,
    /// Something is left on it.
    Spent,
}

/// A node that the control plane knows, and the machine that it is.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) node: Rc<Node>,
    pub(super) name: String,
    pub(super) enrollment: Enrollment,
}

/// A workload that runs, on one node.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) workload: String,
    pub(super) member: Member,
}

impl<'a> World<'a> {
    pub(super) fn open(lab: &'a Lab, given: &'a Prepared) -> anyhow::Result<Self> {
        let platform = ControlPlane::start(lab, given)?;
        platform.import(given.path(Part::Release)?)?;
        let machine = |node: Node| anyhow::Ok(Machine { trace: trace(&node)?, node: Rc::new(node), use_: Use::Idle });
        let machines = lab.nodes()?.into_iter().map(machine).collect::<anyhow::Result<_>>()?;
        Ok(Self { lab, given, platform, machines, running: None, lines: 0 })
    }

    /// A node on which nothing is.
    pub(super) fn machine(&mut self) -> anyhow::Result<Rc<Node>> {
        let of = |wanted: Use| move |machine: &Machine| machine.use_ == wanted;
        let position = |wanted: Use, machines: &[Machine]| machines.iter().position(of(wanted));
        if let Some(at) = position(Use::Idle, &self.machines) {
            self.machines[at].use_ = Use::Taken;
            return Ok(self.machines[at].node.clone());
        }
        let found = position(Use::Spent, &self.machines).or_else(|| position(Use::Running, &self.machines));
        let machine = &mut self.machines[found.context("the cell wants more nodes than the lab has")?];
        if machine.use_ == Use::Running {
            self.running = None;
        }
        if machine.node.condition()?.power == Power::On {
            machine.node.power_cut()?;
        }
        machine.node.reimage()?;
        machine.trace = trace(&machine.node)?;
        machine.use_ = Use::Taken;
        Ok(machine.node.clone())
    }

    /// Sees to what a cell left: what is as it was goes on, everything else ends. A node of which nothing is heard is told by who wants it next.
    pub(super) fn settle(&mut self) {
        for machine in self.machines.iter_mut().filter(|machine| machine.use_ == Use::Taken) {
            let is_on = machine.node.condition().is_ok_and(|now| now.power == Power::On);
            if is_on && trace(&machine.node).is_ok_and(|now| now == machine.trace) {
                machine.use_ = Use::Idle;
                continue;
            }
            machine.use_ = Use::Spent;
            if is_on && let Err(error) = machine.node.power_cut() {
                eprintln!("    {}: {error:#}", machine.node.name());
            }
        }
    }

    /// Lets a workload run on for a later cell.
    pub(super) fn leave_running(&mut self, workload: String, member: Member) {
        for machine in &mut self.machines {
            if Rc::ptr_eq(&machine.node, &member.node) {
                machine.use_ = Use::Running;
            } else if machine.use_ == Use::Running {
                // One is enough.
                machine.use_ = Use::Taken;
            }
        }
        self.running = Some(Running { workload, member });
    }

    /// A workload that runs: one that a cell left, or a new one. It is the present cell's now.
    pub(super) fn running(&mut self) -> anyhow::Result<Running> {
        if let Some(running) = self.running.take() {
            for machine in self.machines.iter_mut().filter(|machine| Rc::ptr_eq(&machine.node, &running.member.node)) {
                machine.use_ = Use::Taken;
            }
            return Ok(running);
        }
        let member = self.allocated("running")?;
        let workload = member.name.clone();
        self.platform.succeeds(&self.deploy(&workload, &member, &[])?)?;
        Ok(Running { workload, member })
    }

    /// Registers a node under a name that nobody has; returns the name and what brings it in.
    pub(super) fn line(&mut self, tag: &str) -> anyhow::Result<(String, Enrollment)> {
        self.lines += 1;
        let name = format!("{tag}-{}", self.lines);
        let enrollment = self.platform.register(&name)?;
        Ok((name, enrollment))
    }

    /// A machine that was brought in.
    pub(super) fn enrolled(&mut self, tag: &str) -> anyhow::Result<Member> {
        let node = self.machine()?;
        self.enrolled_on(node, tag)
    }

    /// That machine, brought in.
    pub(super) fn enrolled_on(&mut self, node: Rc<Node>, tag: &str) -> anyhow::Result<Member> {
        let (name, enrollment) = self.line(tag)?;
        self.platform.enroll(&node, &name, &enrollment)?;
        Ok(Member { node, name, enrollment })
    }

    /// A machine that the project may deploy to.
    pub(super) fn allocated(&mut self, tag: &str) -> anyhow::Result<Member> {
        let node = self.machine()?;
        self.allocated_on(node, tag)
    }

    /// That machine, which the project may deploy to.
    pub(super) fn allocated_on(&mut self, node: Rc<Node>, tag: &str) -> anyhow::Result<Member> {
        let member = self.enrolled_on(node, tag)?;
        self.platform.allocate(&member.name)?;
        Ok(member)
    }

    /// Begins a deployment.
    pub(super) fn deploy(&self, workload: &str, server: &Member, agents: &[&Member]) -> anyhow::Result<Operation> {
        let mut words = vec!["workload", "deploy", "rke2", "--name", workload, "--server", &server.name];
        words.extend(agents.iter().flat_map(|agent| ["--agent", agent.name.as_str()]));
        self.platform.begin(&words)
    }

    /// Waits until a step is in one of these states, and its detail holds these words.
    pub(super) fn until_step(
        &self,
        operation: &Operation,
        key: &str,
        states: &[&str],
        detail: &str,
    ) -> anyhow::Result<()> {
        self.platform.until(&format!("{key} is {}", states.join(" or ")), DEPLOYMENT_MAX, || {
            let now: OperationDetail = self.platform.gpuaas(&["operation", "show", &operation.id])?;
            ensure!(now.operation.ended_at.is_none(), evidence::of_operation(&self.platform, &now));
            let is_there = now.steps.iter().any(|step| {
                let said = step.detail.as_deref().unwrap_or_default();
                step.key == key && states.contains(&step.state.as_str()) && said.contains(detail)
            });
            Ok(is_there.then_some(()))
        })
    }
}

/// Nothing of the agent may be on the node.
pub(super) fn must_be_untouched(node: &Node) -> anyhow::Result<()> {
    let left = "ls -d /var/lib/gpuaas-agent /usr/bin/gpuaas-agent /usr/local/bin/gpuaas-agent 2>/dev/null; dpkg-query -W gpuaas-agent 2>/dev/null";
    let left = in_shell(node, left)?.out;
    ensure!(left.is_empty(), "the refusal came behind a change: {left}");
    Ok(())
}

fn trace(node: &Node) -> anyhow::Result<String> {
    // Units of a boot may still come and go.
    node.run(&["systemctl", "is-system-running", "--wait"])?;
    Ok(in_shell(node, TRACE)?.out)
}
