//! `host.residue`: lists what an app left behind, and nothing that belongs to anything else.

use std::collections::BTreeSet;

use camino::Utf8Path;
use gpuaas_handler::{Context, host_failed, settled, staging::STAGING};
use gpuaas_host::{HostError, Listener, Process, Protocol};
use gpuaas_wire::task::{Residue, ResidueItem, ResidueKind, ResidueReport, TaskFailure};

use super::mounts;

/// Folders in which systemd looks for installed system units.
const UNIT_FOLDERS: [&str; 6] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/transient",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Checks for residue. Repeats the check until processes and listeners have ended, or the settle time is over: they end a moment after
/// what ended them.
pub(crate) async fn run(task: Residue, context: Context) -> Result<ResidueReport, TaskFailure> {
    let may_end = |item: &ResidueItem| matches!(item.kind, ResidueKind::Port | ResidueKind::Process);
    settled(&context, || find_residue(&task, &context), |report| report.items.iter().any(may_end)).await
}

async fn find_residue(task: &Residue, context: &Context) -> Result<ResidueReport, TaskFailure> {
    let host = &context.host;
    let mut found = Found::default();
    let disks = mounts::empty_disks(host, &task.paths).await.map_err(host_failed)?;
    for path in absent_paths(task, &disks) {
        match host.files().exists(Utf8Path::new(path)).await {
            Ok(true) => found.item(ResidueKind::Path, path.to_owned()),
            Ok(false) => {}
            // The check does not follow a link: it reports the link.
            Err(HostError::UnsafePath { at, .. }) => found.item(ResidueKind::Path, at.into_string()),
            Err(error) => return Err(host_failed(error)),
        }
    }
    for mount in mounts::under(host, &task.mount_prefixes).await.map_err(host_failed)? {
        found.mount(mount, &disks);
    }
    let listeners = host.inventory().listeners().await.map_err(host_failed)?;
    for listener in listeners.iter().filter(|listener| is_on_one_of(&task.ports, &task.udp_ports, listener)) {
        found.item(ResidueKind::Port, listener.to_string());
    }
    for unit in units(task, context).await? {
        found.item(ResidueKind::Unit, unit);
    }
    // Without a prefix no process can match, so the processes are not listed; the same holds for links and rules.
    if !(task.process_prefixes.is_empty() && task.group_prefixes.is_empty()) {
        found.processes(host.inventory().processes(&[]).await.map_err(host_failed)?, task);
    }
    if !task.link_prefixes.is_empty() {
        found.links(host.inventory().links().await.map_err(host_failed)?, &task.link_prefixes);
    }
    if !task.firewall_marks.is_empty() {
        found.rules(host.inventory().firewall_rules(&task.firewall_marks).await);
    }
    found.report.items.truncate(ResidueReport::ITEMS_MAX);
    Ok(found.report)
}

/// Returns the paths at which nothing may be. Every app stages artifacts, so the folder of those is always one.
fn absent_paths<'a>(task: &'a Residue, disks: &'a BTreeSet<String>) -> impl Iterator<Item = &'a str> {
    let of_app = task.paths.iter().filter(move |path| !disks.contains(*path));
    of_app.map(String::as_str).chain([STAGING])
}

/// Returns the units that are active or failed, and inactive ones that have a unit file. systemd may remember an inactive unit without a
/// file until the next daemon-reload; this task does not reload, because a reload affects everything else on the machine.
async fn units(task: &Residue, context: &Context) -> Result<Vec<String>, TaskFailure> {
    let host = &context.host;
    let mut present = Vec::new();
    for unit in &task.units {
        let Some(status) = host.units().unit(unit).await.map_err(host_failed)? else { continue };
        let mut is_present = status.active != "inactive";
        for folder in UNIT_FOLDERS.map(Utf8Path::new) {
            is_present = is_present || host.files().exists(&folder.join(unit)).await.map_err(host_failed)?;
        }
        if is_present {
            present.push(unit.clone());
        }
    }
    Ok(present)
}

struct Found {
    report: ResidueReport,
}

impl Default for Found {
    fn default() -> Self {
        Self { report: ResidueReport { items: Vec::new(), unseen: Vec::new() } }
    }
}

impl Found {
    fn item(&mut self, kind: ResidueKind, what: String) {
        let item = ResidueItem { kind, what };
        if !self.report.items.contains(&item) {
            self.report.items.push(item);
        }
    }

    /// Adds a mount, unless it is one of the empty disks of the machine.
    fn mount(&mut self, mount: String, disks: &BTreeSet<String>) {
        if !disks.contains(&mount) {
            self.item(ResidueKind::Mount, mount);
        }
    }

    /// Adds the processes of the app, recognized by the path of their program, or by their control group for processes of containers, whose
    /// programs have other paths.
    fn processes(&mut self, processes: Vec<Process>, task: &Residue) {
        let is_left = |process: &Process| {
            let program = Utf8Path::new(&process.program);
            let begins = |name: &str| task.group_prefixes.iter().any(|prefix| name.starts_with(prefix));
            task.process_prefixes.iter().any(|prefix| program.starts_with(prefix))
                || process.cgroup.split('/').any(begins)
        };
        for process in processes.into_iter().filter(is_left) {
            self.item(ResidueKind::Process, process.to_string());
        }
    }

    fn links(&mut self, links: Vec<String>, prefixes: &[String]) {
        let is_left = |link: &String| prefixes.iter().any(|prefix| link.starts_with(prefix));
        links.into_iter().filter(is_left).for_each(|link| self.item(ResidueKind::Link, link));
    }

    /// Adds the rules. Rules that cannot be listed are reported as unchecked, not as clean.
    fn rules(&mut self, rules: Result<Option<Vec<String>>, HostError>) {
        let why = match rules {
            Ok(Some(rules)) => return rules.into_iter().for_each(|rule| self.item(ResidueKind::FirewallRule, rule)),
            Ok(None) => "no program that lists them is installed".to_owned(),
            Err(error) => error.to_string(),
        };
        self.report.unseen.push(format!("firewall rules: {why}"));
    }
}

fn is_on_one_of(tcp: &[u16], udp: &[u16], listener: &Listener) -> bool {
    match listener.protocol {
        Protocol::Tcp => tcp.contains(&listener.address.port()),
        Protocol::Udp => udp.contains(&listener.address.port()),
    }
}

#[cfg(test)]
mod tests;
