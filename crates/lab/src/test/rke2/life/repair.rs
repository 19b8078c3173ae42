//! An agent whose program is damaged and whose service therefore fails, and its repair, which touches no other member.

use anyhow::{Context, ensure};
use gpuaas_api_types::{Member, WorkloadDetail};

use super::{Life, WORKLOAD, check_ready};
use crate::{
    node::Node,
    test::{check::check, command_output::capture_script, evidence, machines::WAIT_MAX, rke2::usage},
};

/// What `--sabotage` breaks: the repaired program is damaged again.
pub(super) const REPAIRED: &str = "repaired";

/// Replaces RKE2's program by one that fails at once, and kills the running one. The kubelet ends with it; the pods run on.
const DAMAGE: &str = r"
set -e
printf '#!/bin/sh\nexit 1\n' >/usr/local/bin/rke2.damaged
chmod 755 /usr/local/bin/rke2.damaged
mv /usr/local/bin/rke2.damaged /usr/local/bin/rke2
kill -KILL $(systemctl show --property=MainPID --value rke2-agent)
";

/// Breaks the moved agent and repairs it.
pub(super) fn run_checks(life: &Life<'_>) -> anyhow::Result<()> {
    let member = life.member_on(life.moved)?.name;
    let on_it: Vec<_> =
        usage::pods(life.cluster)?.into_iter().filter(|pod| pod.node == life.moved.name().as_str()).collect();
    let others = [main_pid(life.server, "rke2-server")?, main_pid(life.steady, "rke2-agent")?];
    life.while_probing(|| {
        check("the service of an agent fails, and the platform offers its repair", || damage(life, &member))?;
        check("a repair of this member installs its program again and brings back its pods", || {
            let repair = ["workload", "repair", WORKLOAD, "--scope", "member", "--member", &member, "--yes"];
            life.control_plane.run_operation(&repair)?;
            if life.breaks(REPAIRED) {
                capture_script(life.moved, DAMAGE)?;
            }
            let active = life.moved.run(&["systemctl", "is-active", "rke2-agent"])?;
            ensure!(active.status.success(), "the service is not active");
            usage::await_restarts(life.cluster, &on_it)
        })
    })?;
    check("all three are Ready, and the workload is healthy", || {
        check_ready(life.control_plane, life.cluster, &life.nodes())?;
        await_healthy(life)
    })?;
    check("the services of the other members run on", || {
        let now = [main_pid(life.server, "rke2-server")?, main_pid(life.steady, "rke2-agent")?];
        ensure!(now == others, "their processes were {others:?} and are {now:?}");
        Ok(())
    })?;
    check("pods on all three answer each other", || usage::answer_each_other(life.cluster, &life.nodes()))
}

/// Breaks the agent and waits until its member has a fault that names the repair.
fn damage(life: &Life<'_>, member: &str) -> anyhow::Result<()> {
    capture_script(life.moved, DAMAGE)?;
    let command = format!("gpuaas workload repair {WORKLOAD} --scope member --member {member}");
    let offered = |of: &Member| {
        let fault = of.fault.clone().filter(|_| of.health != "healthy")?;
        (fault.command.as_deref() == Some(command.as_str())).then_some(fault)
    };
    let what = format!("the platform offers `{command}`");
    let fault = life.control_plane.until(&what, WAIT_MAX, || Ok(offered(&life.member_on(life.moved)?)))?;
    println!("    {}", evidence::describe_fault(&fault));
    Ok(())
}

fn await_healthy(life: &Life<'_>) -> anyhow::Result<()> {
    life.control_plane.until("the workload is healthy", WAIT_MAX, || {
        let detail: WorkloadDetail = life.control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
        Ok((detail.workload.health == "healthy").then_some(()))
    })
}

fn main_pid(node: &Node, unit: &str) -> anyhow::Result<u32> {
    let pid = node.capture(&["systemctl", "show", "--property=MainPID", "--value", unit])?;
    pid.parse().ok().filter(|pid| *pid != 0).with_context(|| format!("{unit} does not run on {}", node.name()))
}
