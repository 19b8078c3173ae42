//! Nodes where something blocks a deployment before it changes anything: the deployment names it, and continues once it is removed.

use anyhow::ensure;

use super::{
    command_output::{capture_script, expect_fault, run_script},
    environment::Environment,
    table::CellResult,
};

/// An obstacle.
pub(super) struct Block {
    /// Prefix for the names of nodes and workloads with it.
    tag: &'static str,
    /// Shell text that creates the obstacle.
    plant: &'static str,
    /// Command of the node's own tools that shows it, and a whole word that its output must contain.
    seen: (&'static str, &'static str),
    /// Name of the failing preflight check.
    check: &'static str,
    /// Text in the evidence.
    evidence: &'static str,
    /// Text in the next action.
    next: &'static str,
    /// Shell text that removes the obstacle.
    fix: &'static str,
}

/// Another program, a socket unit of the node's systemd, listens on the port of the Kubernetes API.
pub(super) const PORT_TAKEN: Block = Block {
    tag: "port-taken",
    plant: "printf '[Socket]\\nListenStream=6443\\nAccept=yes\\n' >/run/systemd/system/squatter.socket
        printf '[Service]\\nExecStart=-/bin/cat\\nStandardInput=socket\\n' >/run/systemd/system/squatter@.service
        systemctl daemon-reload && systemctl start squatter.socket",
    seen: ("ss --no-header -ltnp 'sport = :6443'", "6443"),
    check: "port_taken",
    evidence: "port 6443 (tcp) is already in use",
    next: "stop it",
    fix: "systemctl stop squatter.socket && rm /run/systemd/system/squatter.socket /run/systemd/system/squatter@.service",
};

/// The database of an older cluster still exists.
pub(super) const LEFTOVERS: Block = Block {
    tag: "leftovers",
    plant: "mkdir -p /var/lib/rancher/rke2/server/db/etcd/member/wal",
    seen: ("find /var/lib/rancher -mindepth 3", "/var/lib/rancher/rke2/server/db/etcd"),
    check: "leftover",
    evidence: "/var/lib/rancher/rke2/server/db is left from an earlier installation",
    next: "rm -r /var/lib/rancher/rke2/server/db",
    fix: "rm -r /var/lib/rancher",
};

/// The distribution's unit was masked before it was installed.
pub(super) const UNIT_MASKED: Block = Block {
    tag: "rke2-masked",
    plant: "systemctl mask rke2-server.service",
    seen: ("systemctl is-enabled rke2-server.service", "masked"),
    check: "unit_masked",
    evidence: "rke2-server.service is masked",
    next: "systemctl unmask rke2-server.service",
    fix: "systemctl unmask rke2-server.service",
};

/// The folder of the distribution's programs is mounted `noexec`.
pub(super) const FOLDER_NOEXEC: Block = Block {
    tag: "data-noexec",
    plant: "mkdir -p /var/lib/rancher && mount -t tmpfs -o noexec,size=8g tmpfs /var/lib/rancher",
    seen: ("findmnt --noheadings --output TARGET,OPTIONS /var/lib/rancher", "noexec"),
    check: "noexec",
    evidence: "/var/lib/rancher is mounted noexec",
    next: "without noexec",
    fix: "mount -o remount,exec /var/lib/rancher",
};

/// The folder of the distribution's programs is read-only.
pub(super) const FOLDER_READ_ONLY: Block = Block {
    tag: "program-ro",
    plant: "mount --bind /usr/local/bin /usr/local/bin && mount -o remount,bind,ro /usr/local/bin",
    seen: ("findmnt --noheadings --output TARGET,OPTIONS /usr/local/bin", "ro"),
    check: "read_only",
    evidence: "/usr/local/bin is mounted ro",
    next: "mount /usr/local/bin writable",
    fix: "umount /usr/local/bin",
};

/// Deploys onto a node with the obstacle, and again without it.
pub(super) fn deploy(environment: &mut Environment, of: &Block) -> anyhow::Result<CellResult> {
    let member = environment.allocated(of.tag)?;
    capture_script(&member.node, of.plant)?;
    let seen = run_script(&member.node, of.seen.0)?.out;
    let mut words = seen.split(|c: char| c.is_whitespace() || ",:=".contains(c));
    ensure!(words.any(|word| word == of.seen.1), "the node's tools do not show the obstacle: {seen}");
    let workload = member.name.clone();
    let stopped = environment.platform.wait_needs_attention(&environment.deploy(&workload, &member, &[])?)?;
    let reported = stopped.operation.fault.as_ref();
    let outcome = expect_fault(reported, "rke2_preflight_blocked", of.next)?;
    let text_of = |text: Option<&String>| text.cloned().unwrap_or_default();
    let (source, evidence) = reported
        .map(|reported| (text_of(reported.evidence_source.as_ref()), text_of(reported.evidence.as_ref())))
        .unwrap_or_default();
    ensure!(source == format!("preflight {}", of.check) && evidence.contains(of.evidence), "{source}: {evidence}");
    let resume = format!("gpuaas workload resume {workload}");
    ensure!(
        reported.is_some_and(|reported| reported.command.as_deref() == Some(resume.as_str())),
        "the fault does not name the command to continue: {reported:?}"
    );
    let installed = run_script(
        &member.node,
        "ls /usr/local/bin/rke2 /usr/local/lib/systemd/system/rke2-server.service 2>/dev/null",
    )?
    .out;
    ensure!(installed.is_empty(), "the blocked deployment installed files: {installed}");
    capture_script(&member.node, of.fix)?;
    environment.platform.wait_success(&environment.platform.begin(&["workload", "resume", &workload])?)?;
    let outcome = format!("{}: {outcome}; removed, then resumed to success", of.check);
    environment.leave_running(workload, member);
    CellResult::new(outcome, [format!("{}: {seen}", of.seen.0.split(' ').next().unwrap_or_default())])
}
