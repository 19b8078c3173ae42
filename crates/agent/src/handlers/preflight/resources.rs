//! Checks of disk, memory and processors.

use std::collections::BTreeSet;

use gpuaas_host::survey;
use gpuaas_model::Check;
use gpuaas_wire::task::Finding;

use super::{
    HostSnapshot,
    report::{Report, blocking, warning, with_evidence},
};

pub(super) fn check(snapshot: &HostSnapshot<'_>, report: &mut Report) {
    report.record(Check::DiskSpace, space(snapshot));
    if let Some(found) = slow(snapshot) {
        report.record(Check::DiskSlow, found);
    }
    if !snapshot.wants.data_dir.is_empty() {
        report.record(
            Check::NoExec,
            restricted_mounts(snapshot, "noexec", Check::NoExec, "programs cannot run", "without noexec"),
        );
        report.record(
            Check::ReadOnly,
            restricted_mounts(snapshot, "ro", Check::ReadOnly, "nothing can be written", "writable"),
        );
        report.record(Check::FolderIsSymlink, linked(snapshot));
    }
    if snapshot.wants.cpus_min > 0 {
        report.record(Check::InsufficientCpu, processors(snapshot));
    }
    if snapshot.wants.memory_bytes_min > 0 {
        report.record(Check::InsufficientMemory, memory(snapshot));
    }
}

fn space(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let least = snapshot.task.free_bytes_min;
    let disks: Vec<(&str, u64)> = match &snapshot.machine.data_disk {
        Some(disk) => vec![(&disk.folder, disk.on.free_bytes)],
        None => snapshot.facts.disks.iter().map(|disk| (disk.path.as_str(), disk.free_bytes)).collect(),
    };
    let little = disks.into_iter().filter(|(_, free)| *free < least).map(|(folder, free)| {
        let detail = format!("{folder} has {} MiB free of the {} MiB needed", free >> 20, least >> 20);
        blocking(Check::DiskSpace, detail, "free some space or add a disk")
    });
    little.collect()
}

/// Checks the latency of writes: no answer if it was not measured; otherwise the finding, if there is one.
fn slow(snapshot: &HostSnapshot<'_>) -> Option<Option<Finding>> {
    let disk = snapshot.machine.data_disk.as_ref()?;
    let writes = disk.writes.filter(|_| snapshot.wants.write_p99_us_max > 0)?;
    let most = snapshot.wants.write_p99_us_max;
    let ms = |us: u32| f64::from(us) / 1_000.0;
    Some((writes.p99_us > most).then(|| {
        let detail = format!(
            "writes under {} have a p99 latency of {:.1} ms; {} needs at most {:.0} ms",
            disk.folder,
            ms(writes.p99_us),
            snapshot.who(),
            ms(most)
        );
        let evidence = format!(
            "{} writes on {}: half within {:.1} ms, the slowest {:.1} ms",
            writes.writes,
            disk.on.device,
            ms(writes.p50_us),
            ms(writes.max_us)
        );
        let fix = format!("put {} on a faster disk, for example a separate SSD", disk.folder);
        with_evidence(warning(Check::DiskSlow, detail, fix), evidence)
    }))
}

/// Finds folders in which the app writes or from which it runs programs, on mounts with an option that forbids it.
fn restricted_mounts(
    snapshot: &HostSnapshot<'_>,
    option: &str,
    check: Check,
    what: &str,
    wanted: &str,
) -> Vec<Finding> {
    let folders = std::iter::once(&snapshot.wants.data_dir).chain(&snapshot.wants.program_dirs);
    let found = folders.filter_map(|folder| {
        let mount = survey::file_system(&snapshot.tree, folder).filter(|mount| mount.has(option))?;
        let detail = format!("{what} under {folder}: {} is mounted {option}", mount.path);
        let finding = blocking(check, detail, format!("mount {} {wanted}", mount.path));
        Some(with_evidence(
            finding,
            format!("{} {} {} {}", mount.device, mount.path, mount.kind, mount.options.join(",")),
        ))
    });
    found.collect()
}

/// Finds symbolic links in the paths of folders in which the app writes. The agent follows none, because a former tenant with root access
/// may have created it.
fn linked(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let folders = std::iter::once(&snapshot.wants.data_dir).chain(&snapshot.wants.program_dirs);
    let links: BTreeSet<_> = folders.filter_map(|folder| snapshot.tree.symlink_in_path(folder)).collect();
    let found = links.into_iter().map(|link| {
        let leads_to = snapshot.tree.link(link.as_str()).map(|to| format!("{link} points to {to}")).unwrap_or_default();
        let detail = format!("{link} is a symbolic link, and the agent does not write through links");
        with_evidence(
            blocking(Check::FolderIsSymlink, detail, format!("replace the link with a mount of the disk at {link}")),
            leads_to,
        )
    });
    found.collect()
}

fn processors(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let (cpus, least) = (snapshot.facts.cpus, snapshot.wants.cpus_min);
    let detail = format!("the node has {cpus} CPUs; {} needs {least}", snapshot.who());
    (cpus < least).then(|| warning(Check::InsufficientCpu, detail, "choose a larger machine"))
}

fn memory(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let (memory, least) = (snapshot.facts.memory_bytes, snapshot.wants.memory_bytes_min);
    let detail = format!("the node has {} MiB of memory; {} needs {} MiB", memory >> 20, snapshot.who(), least >> 20);
    (memory < least).then(|| warning(Check::InsufficientMemory, detail, "choose a larger machine"))
}
