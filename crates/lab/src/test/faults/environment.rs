//! Environment of the cells: booted nodes, a control plane, and enrollments.
//!
//! Guarantees: a cell gets nodes without remains of other cells, or a workload that an earlier cell left running for it. The node's own
//! tools, not the platform, decide whether a node is unchanged; a changed node is powered off and recreated when it is needed again.
//!
//! Deliberately absent: the faults; each cell brings its own.

use std::{rc::Rc, time::Duration};

use anyhow::{Context, ensure};
use gpuaas_api_types::{Enrollment, Operation, OperationDetail};

use crate::{
    control::Power,
    node::{Lab, Node},
    test::{
        command_output::run_script,
        control_plane::ControlPlane,
        evidence,
        parts::{Part, Prepared},
    },
};

/// Nodes that cells share: a cell needs at most two, and a third may keep running a workload.
pub(crate) const NODES: u8 = 3;
/// Parts that must be built for it.
pub(crate) const NEEDS: &[Part] = &[Part::Programs, Part::Packages, Part::Release, Part::Kubectl];
/// Longest wait for anything that takes as long as a deployment.
const DEPLOYMENT_MAX: Duration = Duration::from_secs(300);

/// Script that describes a node's state: packages, mounts, listeners, names, rules, units, programs.
const TRACE: &str = "set -u
    dpkg-query -W
    findmnt --raw --noheadings --output TARGET,FSTYPE,OPTIONS | grep -v -e ^/proc/ -e ^/sys/ -e ^/run/user/
    ss --no-header --tcp --listening --numeric | tr -s ' ' | cut -d ' ' -f 4 | sort
    hostname; cat /etc/hostname /etc/machine-id /etc/hosts /etc/resolv.conf
    iptables-save | grep -v -e '^#' -e '^:'
    systemctl list-units --plain --no-legend --state=failed
    ls -A /etc/systemd/system /usr/local/bin /usr/local/lib /usr/local/share /var/lib /opt /root";

/// The environment.
pub(super) struct Environment {
    pub(super) platform: ControlPlane,
    machines: Vec<Machine>,
    running: Option<Running>,
    registrations: u32,
}

struct Machine {
    node: Rc<Node>,
    use_: Use,
    /// State of the node before any cell used it.
    trace: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Unused, or without remains.
    Idle,
    /// In use by the current cell.
    Taken,
    /// Runs a workload that a cell deployed.
    Running,
    /// Has remains of a cell.
    Spent,
}

/// A registered node and its machine.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) node: Rc<Node>,
    pub(super) name: String,
    pub(super) enrollment: Enrollment,
}

/// A workload that runs on one node.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) workload: String,
    pub(super) member: Member,
}

impl Environment {
    pub(super) fn open(lab: &Lab, given: &Prepared) -> anyhow::Result<Self> {
        let platform = ControlPlane::start(lab, given)?;
        platform.import(given.path(Part::Release)?)?;
        let machine = |node: Node| anyhow::Ok(Machine { trace: trace(&node)?, node: Rc::new(node), use_: Use::Idle });
        let machines = lab.nodes()?.into_iter().map(machine).collect::<anyhow::Result<_>>()?;
        Ok(Self { platform, machines, running: None, registrations: 0 })
    }

    /// Returns a node without remains.
    pub(super) fn machine(&mut self) -> anyhow::Result<Rc<Node>> {
        let of = |wanted: Use| move |machine: &Machine| machine.use_ == wanted;
        let position = |wanted: Use, machines: &[Machine]| machines.iter().position(of(wanted));
        if let Some(at) = position(Use::Idle, &self.machines) {
            self.machines[at].use_ = Use::Taken;
            return Ok(self.machines[at].node.clone());
        }
        let found = position(Use::Spent, &self.machines).or_else(|| position(Use::Running, &self.machines));
        let machine = &mut self.machines[found.context("the cell needs more nodes than the lab has")?];
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

    /// Inspects the nodes after a cell: unchanged ones become idle, all others are powered off. An unresponsive node fails the
    /// next cell that needs it.
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

    /// Leaves a workload running for a later cell.
    pub(super) fn leave_running(&mut self, workload: String, member: Member) {
        for machine in &mut self.machines {
            if Rc::ptr_eq(&machine.node, &member.node) {
                machine.use_ = Use::Running;
            } else if machine.use_ == Use::Running {
                // One running workload is enough.
                machine.use_ = Use::Taken;
            }
        }
        self.running = Some(Running { workload, member });
    }

    /// Returns a running workload, either left by an earlier cell or new. It then belongs to the current cell.
    pub(super) fn running(&mut self) -> anyhow::Result<Running> {
        if let Some(running) = self.running.take() {
            for machine in self.machines.iter_mut().filter(|machine| Rc::ptr_eq(&machine.node, &running.member.node)) {
                machine.use_ = Use::Taken;
            }
            return Ok(running);
        }
        let member = self.allocated("running")?;
        let workload = member.name.clone();
        self.platform.wait_success(&self.deploy(&workload, &member, &[])?)?;
        Ok(Running { workload, member })
    }

    /// Registers a node under an unused name; returns the name and the enrollment.
    pub(super) fn register(&mut self, tag: &str) -> anyhow::Result<(String, Enrollment)> {
        self.registrations += 1;
        let name = format!("{tag}-{}", self.registrations);
        let enrollment = self.platform.register(&name)?;
        Ok((name, enrollment))
    }

    /// Returns a machine that is enrolled.
    pub(super) fn enrolled(&mut self, tag: &str) -> anyhow::Result<Member> {
        let node = self.machine()?;
        self.enrolled_on(node, tag)
    }

    /// Enrolls this machine.
    pub(super) fn enrolled_on(&mut self, node: Rc<Node>, tag: &str) -> anyhow::Result<Member> {
        let (name, enrollment) = self.register(tag)?;
        self.platform.enroll(&node, &name, &enrollment)?;
        Ok(Member { node, name, enrollment })
    }

    /// Returns an enrolled machine that is allocated to the project.
    pub(super) fn allocated(&mut self, tag: &str) -> anyhow::Result<Member> {
        let node = self.machine()?;
        self.allocated_on(node, tag)
    }

    /// Enrolls this machine and allocates it to the project.
    pub(super) fn allocated_on(&mut self, node: Rc<Node>, tag: &str) -> anyhow::Result<Member> {
        let member = self.enrolled_on(node, tag)?;
        self.platform.allocate(&member.name)?;
        Ok(member)
    }

    /// Starts a deployment.
    pub(super) fn deploy(&self, workload: &str, server: &Member, agents: &[&Member]) -> anyhow::Result<Operation> {
        let mut words = vec!["workload", "deploy", "rke2", "--name", workload, "--server", &server.name];
        words.extend(agents.iter().flat_map(|agent| ["--agent", agent.name.as_str()]));
        self.platform.begin(&words)
    }

    /// Waits until a step is in one of these states and its detail contains the text `detail`.
    pub(super) fn until_step(
        &self,
        operation: &Operation,
        key: &str,
        states: &[&str],
        detail: &str,
    ) -> anyhow::Result<()> {
        self.platform.until(&format!("{key} is {}", states.join(" or ")), DEPLOYMENT_MAX, || {
            let now: OperationDetail = self.platform.gpuaas(&["operation", "show", &operation.id])?;
            ensure!(now.operation.ended_at.is_none(), evidence::describe_operation(&self.platform, &now));
            let is_there = now.steps.iter().any(|step| {
                let text = step.detail.as_deref().unwrap_or_default();
                step.key == key && states.contains(&step.state.as_str()) && text.contains(detail)
            });
            Ok(is_there.then_some(()))
        })
    }
}

/// Fails if anything of the agent is on the node.
pub(super) fn check_unchanged(node: &Node) -> anyhow::Result<()> {
    let left = "ls -d /var/lib/gpuaas-agent /usr/bin/gpuaas-agent /usr/local/bin/gpuaas-agent 2>/dev/null; dpkg-query -W gpuaas-agent 2>/dev/null";
    let left = run_script(node, left)?.out;
    ensure!(left.is_empty(), "the refused enrollment left files: {left}");
    Ok(())
}

fn trace(node: &Node) -> anyhow::Result<String> {
    // Units may still start or stop shortly after a boot.
    node.run(&["systemctl", "is-system-running", "--wait"])?;
    Ok(run_script(node, TRACE)?.out)
}
