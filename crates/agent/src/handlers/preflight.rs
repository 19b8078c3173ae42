//! `host.preflight`: tells whether an app could run here, before anything is changed. Findings are its result, not its failure.

use camino::Utf8Path;
use gpuaas_wire::task::{Finding, Preflight, PreflightReport, Severity, TaskFailure};

use crate::context::{Context, host_failed};

/// Looks.
pub(crate) async fn run(task: Preflight, context: Context) -> Result<PreflightReport, TaskFailure> {
    let mut report = PreflightReport { passed: 0, findings: Vec::new() };
    let taken = context.host.listening(&task.ports).await.map_err(host_failed)?;
    report.passed += u32::try_from(task.ports.len() - taken.len()).unwrap_or(u32::MAX);
    for port in taken {
        report.findings.push(Finding {
            check: "port_taken".to_owned(),
            severity: Severity::Blocking,
            detail: format!("something listens on port {port} already"),
            fix: format!("see what it is (ss -ltnp 'sport = :{port}') and stop it"),
        });
    }
    for (paths, severity) in [(&task.absent_paths, Severity::Blocking), (&task.endangered_paths, Severity::Warning)] {
        for path in paths {
            match context.host.exists(Utf8Path::new(path)).await.map_err(host_failed)? {
                true => report.findings.push(leftover(path, severity)),
                false => report.passed += 1,
            }
        }
    }
    let facts = context.host.facts().await.map_err(host_failed)?;
    for disk in &facts.disks {
        if disk.free_bytes >= task.free_bytes_min {
            report.passed += 1;
            continue;
        }
        report.findings.push(Finding {
            check: "disk_space".to_owned(),
            severity: Severity::Blocking,
            detail: format!(
                "{} has {} MiB free of the {} MiB needed",
                disk.path,
                disk.free_bytes >> 20,
                task.free_bytes_min >> 20
            ),
            fix: "free some space or add a disk".to_owned(),
        });
    }
    Ok(report)
}

fn leftover(path: &str, severity: Severity) -> Finding {
    match severity {
        Severity::Blocking => Finding {
            check: "leftover".to_owned(),
            severity,
            detail: format!("{path} is left from an earlier installation"),
            fix: "run that installation's own uninstall script, or have the machine reimaged".to_owned(),
        },
        Severity::Warning => Finding {
            check: "endangered".to_owned(),
            severity,
            detail: format!("{path} exists, and a later uninstall deletes it whole"),
            fix: "move what is worth keeping elsewhere".to_owned(),
        },
    }
}
