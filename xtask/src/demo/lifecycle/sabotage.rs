//! Deliberate damage between a step and its verification, by the means that a person has: kubectl, files, processes and units. Each makes
//! exactly one verification of its step fail, and is undone.

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    comparison::LABEL_VALUE,
    expectation::{Aspect, Expected, Role},
    observation::{CONFIG, LABEL},
    steps, work,
};
use crate::demo::running::RunningDemo;

/// Undoes a sabotage. May change expectations, for example which pods are kept.
pub(super) type Undo = Box<dyn FnOnce(&RunningDemo, &mut Expected) -> anyhow::Result<()>>;

/// A sabotage.
pub(crate) struct Sabotage {
    pub(super) name: &'static str,
    /// The step after which it acts.
    pub(super) step: &'static str,
    /// The verification that must fail.
    pub(super) aspect: Aspect,
    /// What it does, in words.
    pub(super) what: &'static str,
    pub(super) act: fn(&RunningDemo) -> anyhow::Result<Undo>,
}

impl Sabotage {
    /// Returns the name of the verification that must fail.
    pub(crate) const fn verification(&self) -> &'static str {
        self.aspect.as_str()
    }
}

const fn after(
    step: &'static str,
    aspect: Aspect,
    name: &'static str,
    what: &'static str,
    act: fn(&RunningDemo) -> anyhow::Result<Undo>,
) -> Sabotage {
    Sabotage { name, step, aspect, what, act }
}

/// Every sabotage, in the order of the steps.
pub(super) static SABOTAGES: [Sabotage; 14] = [
    after("deploy", Aspect::Access, "kubeconfig", "the kubeconfig gets the rights of another user", impersonate),
    after("add", Aspect::Labels, "add", "the label of the added KubeNode is removed", remove_label),
    after("drain", Aspect::Cordons, "drain", "the drained KubeNode is uncordoned", uncordon),
    after("drain", Aspect::Pods, "pinned-pod", "a pod is put on the drained KubeNode", pin_pod),
    after("uncordon", Aspect::Cordons, "uncordon", "the KubeNode is cordoned", cordon),
    after("remove", Aspect::Nodes, "remove", "the KubeNode is created again", create_kube_node),
    after("add-again", Aspect::Pods, "add-again", "the process of a pod on the added node is killed", kill_pod),
    after(
        "replace",
        Aspect::Nodes,
        "replace",
        "the KubeNode of the replaced member is created again",
        create_kube_node,
    ),
    after("stop", Aspect::Processes, "stop", "the process of a pod is left", leave_process),
    after("start", Aspect::Pods, "start", "the Deployment is deleted with its pods", delete_deployment),
    after("drift", Aspect::Files, "drift", "the configuration file is changed again", change_config),
    after("drift", Aspect::Files, "disable", "the unit is disabled again", disable_unit),
    after("repair", Aspect::Members, "repair", "the unit is stopped again", stop_unit),
    after("decommission", Aspect::Residue, "decommission", "a file of the distribution is left", leave_file),
];

/// The sabotages that a run of the demo carries out.
#[derive(Clone, Copy)]
pub(crate) enum Choice {
    None,
    All,
    /// Only this one; the run ends after it.
    One(&'static Sabotage),
}

impl Choice {
    /// Parses the value of `--sabotage`.
    pub(crate) fn parse(name: Option<&str>) -> anyhow::Result<Self> {
        match name {
            None => Ok(Self::None),
            Some("all") => Ok(Self::All),
            Some(name) => match SABOTAGES.iter().find(|sabotage| sabotage.name == name) {
                Some(sabotage) => Ok(Self::One(sabotage)),
                None => {
                    let names: Vec<&str> = SABOTAGES.iter().map(|sabotage| sabotage.name).collect();
                    bail!("unknown sabotage {name}; the sabotages are all, {}", names.join(", "))
                }
            },
        }
    }

    /// Returns the sabotages after a step.
    pub(super) fn after(self, step: &str) -> Vec<&'static Sabotage> {
        match self {
            Self::None => Vec::new(),
            Self::All => SABOTAGES.iter().filter(|sabotage| sabotage.step == step).collect(),
            Self::One(sabotage) => Some(sabotage).filter(|sabotage| sabotage.step == step).into_iter().collect(),
        }
    }
}

/// Prints every sabotage with the verification that it makes fail.
pub(crate) fn print() {
    for Sabotage { name, step, aspect, what, .. } in &SABOTAGES {
        println!("  {name:<14} after {step:<14} fails {:<10} {what}", aspect.as_str());
    }
}

fn undo(act: impl FnOnce(&RunningDemo, &mut Expected) -> anyhow::Result<()> + 'static) -> Undo {
    Box::new(act)
}

/// Returns an undo that runs kubectl.
fn undo_with(arguments: &'static [&'static str]) -> Undo {
    undo(move |running, _| running.kubectl(arguments).map(drop))
}

fn impersonate(running: &RunningDemo) -> anyhow::Result<Undo> {
    let delivered = fs::read_to_string(running.kubeconfig())?;
    // The tenant is an administrator of the cluster, and so may act as another one.
    let changed = delivered.replace("    token:", "    as: eve\n    as-groups: [\"system:masters\"]\n    token:");
    fs::write(running.kubeconfig(), changed)?;
    Ok(undo(move |running, _| Ok(fs::write(running.kubeconfig(), delivered)?)))
}

fn remove_label(running: &RunningDemo) -> anyhow::Result<Undo> {
    running.kubectl(&["label", "node", steps::ADDED, &format!("{LABEL}-")])?;
    let label = format!("{LABEL}={LABEL_VALUE}");
    Ok(undo(move |running, _| running.kubectl(&["label", "--overwrite", "node", steps::ADDED, &label]).map(drop)))
}

fn uncordon(running: &RunningDemo) -> anyhow::Result<Undo> {
    running.kubectl(&["uncordon", steps::ADDED])?;
    Ok(undo_with(&["cordon", steps::ADDED]))
}

fn cordon(running: &RunningDemo) -> anyhow::Result<Undo> {
    running.kubectl(&["cordon", steps::ADDED])?;
    Ok(undo_with(&["uncordon", steps::ADDED]))
}

/// A pod that names its node passes by the scheduler, and so by the cordon.
fn pin_pod(running: &RunningDemo) -> anyhow::Result<Undo> {
    let manifest = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pinned","labels":{{"app":"{}"}}}},
            "spec":{{"nodeName":"{}","containers":[{{"name":"pinned","image":"docker.io/stand-in/busybox"}}]}}}}"#,
        work::WEB,
        steps::ADDED
    );
    work::create(running, "create", "pinned-pod.json", &manifest)?;
    Ok(undo_with(&["delete", "pod", "pinned", "--grace-period=1"]))
}

fn create_kube_node(running: &RunningDemo) -> anyhow::Result<Undo> {
    let manifest = format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{}"}}}}"#, steps::ADDED);
    work::create(running, "create", "kube-node.json", &manifest)?;
    Ok(undo_with(&["delete", "node", steps::ADDED]))
}

/// Kills the process of one pod. The kubelet reports that the pod is not ready, and starts it again by itself.
fn kill_pod(running: &RunningDemo) -> anyhow::Result<Undo> {
    let root = running.root(steps::ADDED);
    let is_pod = |command: &str| command.contains(root.as_str()) && command.contains(work::PROCESS);
    let process = running.processes()?.into_iter().find(|process| is_pod(&process.command));
    let pid = process.and_then(|process| Pid::from_raw(process.pid.cast_signed())).context("the node runs no pod")?;
    kill_process(pid, Signal::KILL).context("killing the process of a pod")?;
    Ok(undo(|_, _| Ok(())))
}

fn leave_process(running: &RunningDemo) -> anyhow::Result<Undo> {
    let name = running.root(steps::FIRST).join("var/lib/rancher/rke2/data/left/bin").join(work::PROCESS);
    let mut left = Command::new("sh")
        .arg0(name.as_str())
        .args(["-c", "echo; read nothing"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a process")?;
    // Its command line can be read only a moment after its start.
    let mut output = [0_u8; 1];
    left.stdout.as_mut().context("stdout is not piped")?.read_exact(&mut output)?;
    Ok(undo(move |_, _| end(left)))
}

fn end(mut left: Child) -> anyhow::Result<()> {
    left.kill()?;
    left.wait()?;
    Ok(())
}

fn delete_deployment(running: &RunningDemo) -> anyhow::Result<Undo> {
    running.kubectl(&["delete", "deployment", work::WEB])?;
    Ok(undo(|running, expected| {
        // The pods of the new Deployment have other names.
        expected.kept.clear();
        work::apply(running, expected.replicas)
    }))
}

fn change_config(running: &RunningDemo) -> anyhow::Result<Undo> {
    steps::change_config(running)?;
    Ok(undo(|running, expected| {
        let (node, written) = expected.config.as_ref().context("the file was not read before")?;
        // Writes into the file that exists, which keeps its mode and owner.
        let mut file = fs::File::options().write(true).truncate(true).open(running.root(node).join(CONFIG))?;
        Ok(file.write_all(written.as_bytes())?)
    }))
}

fn disable_unit(running: &RunningDemo) -> anyhow::Result<Undo> {
    running.systemctl_ok(steps::FIRST, &["disable", Role::Agent.unit()])?;
    Ok(undo(|running, _| running.systemctl_ok(steps::FIRST, &["enable", Role::Agent.unit()]).map(drop)))
}

fn stop_unit(running: &RunningDemo) -> anyhow::Result<Undo> {
    running.systemctl_ok(steps::FIRST, &["stop", Role::Agent.unit()])?;
    Ok(undo(|running, _| running.systemctl_ok(steps::FIRST, &["start", Role::Agent.unit()]).map(drop)))
}

fn leave_file(running: &RunningDemo) -> anyhow::Result<Undo> {
    let folder = running.root(steps::FIRST).join("etc/rancher/rke2");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("left.yaml"), "left: true\n")?;
    Ok(undo(move |_, _| Ok(fs::remove_dir_all(folder)?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_step_and_every_kind_of_verification_has_a_sabotage() {
        let steps: BTreeSet<&str> = SABOTAGES.iter().map(|sabotage| sabotage.step).collect();
        assert_eq!(steps, steps::STEPS.iter().map(|step| step.name).collect::<BTreeSet<_>>());
        let aspects: BTreeSet<Aspect> = SABOTAGES.iter().map(|sabotage| sabotage.aspect).collect();
        assert_eq!(aspects, Aspect::ALL.into_iter().collect::<BTreeSet<_>>());
        let names: BTreeSet<&str> = SABOTAGES.iter().map(|sabotage| sabotage.name).collect();
        assert_eq!(names.len(), SABOTAGES.len());
        assert!(!names.contains("all") && !names.contains("list"), "both have another meaning");
    }

    #[test]
    fn sabotages_are_chosen_by_name_and_act_after_their_step() {
        let names = |choice: Choice, step: &str| -> Vec<&str> {
            choice.after(step).into_iter().map(|sabotage| sabotage.name).collect()
        };
        let parsed = |name| Choice::parse(name).expect("a choice");
        assert_eq!(names(parsed(Some("all")), "drain"), ["drain", "pinned-pod"]);
        assert_eq!(names(parsed(Some("pinned-pod")), "drain"), ["pinned-pod"]);
        assert!(names(parsed(Some("pinned-pod")), "remove").is_empty() && names(parsed(None), "drain").is_empty());
        let refused = Choice::parse(Some("coffee")).err().expect("there is no such sabotage").to_string();
        assert!(refused.contains("coffee") && refused.contains("pinned-pod"), "{refused}");
    }
}
