//! Checks of the kernel's settings for containers, and of swap, control groups and the clock.

use gpuaas_host::survey::{ModuleState, module_state};
use gpuaas_model::{Check, FixKind};
use gpuaas_wire::task::{ClockSync, Finding};

use super::{
    HostSnapshot,
    report::{Report, listed, warning, with_evidence},
};

pub(super) fn check(look: &HostSnapshot<'_>, report: &mut Report) {
    report.record(low(look, FixKind::Inotify, Check::InotifyLow, "raise it"));
    report.record(low(look, FixKind::Forwarding, Check::ForwardingOff, "switch it on"));
    report.record(modules(look, Check::ModulesUnloaded));
    report.record(modules(look, Check::ModulesMissing));
    if look.has_own("/proc/swaps") {
        report.record(swap(look));
    }
    if look.has_own("/sys/fs/cgroup") {
        report.record(cgroups(look));
    }
    if let Some(found) = clock(look) {
        report.record(found);
    }
}

/// Finds kernel parameters below the value that their fix would set; parameters that this kernel does not have are skipped.
fn low(look: &HostSnapshot<'_>, fix: FixKind, check: Check, what: &str) -> Option<Finding> {
    let mut low = Vec::new();
    let mut evidence = Vec::new();
    for &(name, least) in fix.sysctls() {
        let Some(present) = look.tree.sysctl(name) else { continue };
        if present.parse::<u64>().is_ok_and(|present| present < least) {
            low.push(format!("{} is {present}; {} needs {least}", name.trim_start_matches("fs."), look.who()));
            evidence.push(format!("/proc/sys/{}: {present}", name.replace('.', "/")));
        }
    }
    let finding = || warning(check, low.join("; "), format!("{what}, now and at boot ({})", fix.path()));
    (!low.is_empty()).then(|| with_evidence(finding(), evidence.join(", ")))
}

fn modules(look: &HostSnapshot<'_>, check: Check) -> Option<Finding> {
    let state_of = |name: &&&str| module_state(&look.tree, name);
    let of = |states: &[ModuleState]| -> Vec<String> {
        let names = FixKind::Modules.modules().iter();
        names.filter(|name| states.contains(&state_of(name))).map(|name| (*name).to_owned()).collect()
    };
    let release = &look.facts.kernel;
    match check {
        Check::ModulesUnloaded => {
            let names = of(&[ModuleState::Loadable]);
            let detail = format!("kernel modules are not loaded: {}", listed(&names));
            let fix = format!("load them, now and at boot ({})", FixKind::Modules.path());
            (!names.is_empty()).then(|| warning(check, detail, fix))
        }
        _ => {
            let (missing, unknown) = (of(&[ModuleState::Missing]), of(&[ModuleState::Unknown]));
            let not_found = format!("/lib/modules/{release} is missing");
            let (names, why) =
                if missing.is_empty() { (unknown, not_found) } else { (missing, "they are not installed".to_owned()) };
            let detail = format!("kernel modules are missing: {}; {why}", listed(&names));
            let fix = format!(
                "install them (kernel-modules-extra, linux-modules-extra-{release}), or reboot after an upgrade of the kernel"
            );
            (!names.is_empty()).then(|| warning(check, detail, fix))
        }
    }
}

fn swap(look: &HostSnapshot<'_>) -> Option<Finding> {
    let bytes = look.machine.swap_bytes;
    let detail = format!("{} MiB of swap are on: Kubernetes expects memory that is not swapped out", bytes >> 20);
    (bytes > 0).then(|| warning(Check::SwapOn, detail, "run swapoff -a, and remove the swap from /etc/fstab"))
}

fn cgroups(look: &HostSnapshot<'_>) -> Option<Finding> {
    let is_v2 = look.tree.own_exists("/sys/fs/cgroup/cgroup.controllers");
    let finding = || {
        let detail = "the host uses cgroup v1: the kubelet of newer Kubernetes refuses it by default";
        warning(
            Check::CgroupV1,
            detail,
            "boot with systemd.unified_cgroup_hierarchy=1, or use a newer operating system",
        )
    };
    (!is_v2).then(finding)
}

/// Checks the clock; `None` if the clock is that of the machine around the node, or its state is unknown.
fn clock(look: &HostSnapshot<'_>) -> Option<Option<Finding>> {
    let detail = match &look.machine.clock {
        ClockSync::ByMachine | ClockSync::Unknown => return None,
        ClockSync::Synchronized { .. } => return Some(None),
        ClockSync::NotYet { by } => format!("{by} runs, but the clock is not synchronized"),
        ClockSync::ByNobody => "no time service keeps the clock".to_owned(),
    };
    let detail = format!("{detail}: a cluster's certificates are invalid while the clock is wrong");
    Some(Some(warning(Check::ClockUnsynchronized, detail, "install chrony, or timedatectl set-ntp true")))
}
