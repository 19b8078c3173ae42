//! Checks of the kernel's settings for containers, and of swap, control groups and the clock.

use gpuaas_host::survey::{ModuleState, module_state};
use gpuaas_model::{Check, FixKind};
use gpuaas_wire::task::{ClockSync, Finding};

use super::{
    HostSnapshot,
    report::{Report, listed, warning, with_evidence},
};

pub(super) fn check(snapshot: &HostSnapshot<'_>, report: &mut Report) {
    report.record(Check::InotifyLow, low(snapshot, FixKind::Inotify, Check::InotifyLow, "raise it"));
    report.record(Check::ForwardingOff, low(snapshot, FixKind::Forwarding, Check::ForwardingOff, "switch it on"));
    report.record(Check::ModulesUnloaded, unloaded_modules(snapshot));
    report.record(Check::ModulesMissing, missing_modules(snapshot));
    if snapshot.has_own("/proc/swaps") {
        report.record(Check::SwapOn, swap(snapshot));
    }
    if snapshot.has_own("/sys/fs/cgroup") {
        report.record(Check::CgroupV1, cgroups(snapshot));
    }
    if let Some(found) = clock(snapshot) {
        report.record(Check::ClockUnsynchronized, found);
    }
}

/// Finds kernel parameters below the value that their fix would set; parameters that this kernel does not have are skipped.
fn low(snapshot: &HostSnapshot<'_>, fix: FixKind, check: Check, what: &str) -> Option<Finding> {
    let mut low = Vec::new();
    let mut evidence = Vec::new();
    for &(name, least) in fix.sysctls() {
        let Some(present) = snapshot.tree.sysctl(name) else { continue };
        if present.parse::<u64>().is_ok_and(|present| present < least) {
            low.push(format!("{} = {least} (now {present})", name.trim_start_matches("fs.")));
            evidence.push(format!("/proc/sys/{}: {present}", name.replace('.', "/")));
        }
    }
    let detail = format!("{} needs {}", snapshot.who(), low.join(", "));
    let finding = || warning(check, detail, format!("{what}, now and at boot ({})", fix.path()));
    (!low.is_empty()).then(|| with_evidence(finding(), evidence.join(", ")))
}

/// Returns the modules of the fix that are in this state.
fn modules_in(snapshot: &HostSnapshot<'_>, state: ModuleState) -> Vec<String> {
    let names = FixKind::Modules.modules().iter();
    names.filter(|name| module_state(&snapshot.tree, name) == state).map(|name| (*name).to_owned()).collect()
}

fn unloaded_modules(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let names = modules_in(snapshot, ModuleState::Loadable);
    let detail = format!("kernel modules are not loaded: {}", listed(&names));
    let fix = format!("load them, now and at boot ({})", FixKind::Modules.path());
    (!names.is_empty()).then(|| warning(Check::ModulesUnloaded, detail, fix))
}

fn missing_modules(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let release = &snapshot.facts.kernel;
    let missing = modules_in(snapshot, ModuleState::Missing);
    let (names, why) = match missing.is_empty() {
        true => (modules_in(snapshot, ModuleState::Unknown), format!("/lib/modules/{release} is missing")),
        false => (missing, "they are not installed".to_owned()),
    };
    let detail = format!("kernel modules are missing: {}; {why}", listed(&names));
    let fix = format!(
        "install them (kernel-modules-extra, linux-modules-extra-{release}), or reboot after an upgrade of the kernel"
    );
    (!names.is_empty()).then(|| warning(Check::ModulesMissing, detail, fix))
}

fn swap(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let bytes = snapshot.machine.swap_bytes;
    let detail = format!("{} MiB of swap are on: Kubernetes expects memory that is not swapped out", bytes >> 20);
    (bytes > 0).then(|| warning(Check::SwapOn, detail, "run swapoff -a, and remove the swap from /etc/fstab"))
}

fn cgroups(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let is_v2 = snapshot.tree.own_exists("/sys/fs/cgroup/cgroup.controllers");
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

/// Checks the clock: no answer if it is the clock of the machine around the node, or if its state is unknown; otherwise the finding, if there
/// is one.
fn clock(snapshot: &HostSnapshot<'_>) -> Option<Option<Finding>> {
    let detail = match &snapshot.machine.clock {
        ClockSync::ByMachine | ClockSync::Unknown => return None,
        ClockSync::Synchronized { .. } => return Some(None),
        ClockSync::NotYet { by } => format!("{by} runs, but the clock is not synchronized"),
        ClockSync::NoTimeService => "no time service synchronizes the clock".to_owned(),
    };
    let detail = format!("{detail}: a cluster's certificates are invalid while the clock is wrong");
    Some(Some(warning(Check::ClockUnsynchronized, detail, "install chrony, or timedatectl set-ntp true")))
}
