//! `host.fix`: writes the file of a fix and applies it. A value becomes the fix's, unless the present one is higher.

use camino::Utf8Path;
use gpuaas_handler::{Context, host_failed};
use gpuaas_host::{Changed, FileSpec, survey};
use gpuaas_model::{Code, FixKind};
use gpuaas_wire::task::{Applied, Fix, Fixed, TaskFailure};

/// Applies the fix. A second run changes nothing.
pub(crate) async fn run(task: Fix, context: Context) -> Result<Fixed, TaskFailure> {
    let (sysctls, modules) = (wanted_sysctls(task.kind, &context)?, wanted_modules(task.kind, &context)?);
    let path = Utf8Path::new(task.kind.path());
    let content = file(task.kind, &sysctls, &modules).into_bytes();
    let written = context.host.files().write(&FileSpec { path: path.to_owned(), mode: 0o644, content }).await;
    let mut changed = written.map_err(host_failed)?;
    let mut applied = Vec::new();
    for module in modules {
        context.report_progress(format!("loading {module}"));
        if context.host.load_module(module).await.map_err(host_failed)? == Changed::Yes {
            changed = Changed::Yes;
            applied.push(Applied { name: module.to_owned(), before: None, now: "loaded".to_owned() });
        }
    }
    for SysctlTarget { name, present, value } in sysctls {
        let value = value.to_string();
        if context.host.set_sysctl(name, &value).await.map_err(host_failed)? == Changed::Yes {
            changed = Changed::Yes;
            applied.push(Applied { name: name.to_owned(), before: Some(present), now: value });
        }
    }
    applied.truncate(Fixed::APPLIED_MAX);
    Ok(Fixed { path: path.to_string(), changed: changed == Changed::Yes, applied })
}

/// A kernel parameter of this host, with its present and its wanted value.
struct SysctlTarget {
    name: &'static str,
    present: String,
    value: u64,
}

/// Returns those parameters of the fix that this kernel has.
fn wanted_sysctls(kind: FixKind, context: &Context) -> Result<Vec<SysctlTarget>, TaskFailure> {
    let tree = context.host.inventory().tree();
    let mut wanted = Vec::new();
    for &(name, least) in kind.sysctls() {
        let Some(present) = tree.sysctl(name) else { continue };
        let number: u64 = present
            .parse()
            .map_err(|_| TaskFailure::new(Code::HostFailed, format!("{name} is {present:?}, which is not a number")))?;
        wanted.push(SysctlTarget { name, present, value: number.max(least) });
    }
    if wanted.is_empty() && !kind.sysctls().is_empty() {
        return Err(TaskFailure::new(
            Code::HostFailed,
            format!("this kernel has none of the parameters that the fix {kind} sets"),
        ));
    }
    Ok(wanted)
}

/// Returns those modules of the fix that are present or can be loaded: a file that names others would fail at every boot.
fn wanted_modules(kind: FixKind, context: &Context) -> Result<Vec<&'static str>, TaskFailure> {
    use survey::ModuleState as S;
    let tree = context.host.inventory().tree();
    let mut wanted = Vec::new();
    for &module in kind.modules() {
        match survey::module_state(&tree, module) {
            S::Present | S::Loadable => wanted.push(module),
            S::Missing | S::Unknown => {}
        }
    }
    if wanted.is_empty() && !kind.modules().is_empty() {
        let message = format!("none of the modules {} can be loaded on this host", kind.modules().join(", "));
        return Err(TaskFailure::new(Code::HostFailed, message));
    }
    Ok(wanted)
}

/// Returns the content of the file, in the form that systemd reads at boot.
fn file(kind: FixKind, sysctls: &[SysctlTarget], modules: &[&str]) -> String {
    let mut text = format!("# Written by gpuaas-agent (fix {kind}). To undo the fix, remove this file and reboot.\n");
    for SysctlTarget { name, value, .. } in sysctls {
        text.push_str(&format!("{name} = {value}\n"));
    }
    for module in modules {
        text.push_str(&format!("{module}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_handler::test_host::{self, sandbox};

    #[tokio::test]
    async fn a_fix_writes_its_file_applies_it_and_changes_nothing_the_second_time() {
        let (folder, host) = sandbox(&[("/proc/sys/fs/inotify/max_user_instances", "128\n")]);
        let fixed = run(Fix { kind: FixKind::Inotify }, test_host::context(&host)).await.unwrap();
        assert!(fixed.changed && fixed.path == FixKind::Inotify.path());
        let instances = fixed.applied.iter().find(|of| of.name == "fs.inotify.max_user_instances").unwrap();
        assert_eq!((instances.before.as_deref(), instances.now.as_str()), (Some("128"), "8192"));
        let file = std::fs::read_to_string(folder.path().join("etc/sysctl.d/60-gpuaas-inotify.conf")).unwrap();
        assert!(file.contains("fs.inotify.max_user_instances = 8192\n"), "{file}");
        assert_eq!(host.inventory().tree().sysctl("fs.inotify.max_user_instances").as_deref(), Some("8192"));
        let again = run(Fix { kind: FixKind::Inotify }, test_host::context(&host)).await.unwrap();
        assert_eq!((again.changed, again.applied.len()), (false, 0));
    }

    #[tokio::test]
    async fn higher_values_are_kept_in_the_kernel_and_in_the_file() {
        let (folder, host) = sandbox(&[
            ("/proc/sys/fs/inotify/max_user_instances", "65536\n"),
            ("/proc/sys/fs/inotify/max_user_watches", "8192\n"),
        ]);
        let fixed = run(Fix { kind: FixKind::Inotify }, test_host::context(&host)).await.unwrap();
        assert_eq!(
            fixed.applied.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(),
            ["fs.inotify.max_user_watches"]
        );
        let file = std::fs::read_to_string(folder.path().join("etc/sysctl.d/60-gpuaas-inotify.conf")).unwrap();
        assert!(
            file.contains("max_user_instances = 65536\n") && file.contains("max_user_watches = 524288\n"),
            "{file}"
        );
    }

    #[tokio::test]
    async fn unavailable_modules_are_not_listed_for_boot() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let dep = format!("/lib/modules/{}/modules.dep", release.trim());
        let (folder, host) =
            sandbox(&[("/proc/modules", "overlay 1 0 - Live 0x0\n"), (&dep, "kernel/net/br_netfilter.ko:\n")]);
        let fixed = run(Fix { kind: FixKind::Modules }, test_host::context(&host)).await.unwrap();
        assert!(fixed.changed);
        let file = std::fs::read_to_string(folder.path().join("etc/modules-load.d/60-gpuaas.conf")).unwrap();
        assert!(
            file.lines().any(|line| line == "overlay") && file.lines().any(|line| line == "br_netfilter"),
            "{file}"
        );
        for module in ["overlay", "br_netfilter"] {
            assert_eq!(
                survey::module_state(&host.inventory().tree(), module),
                survey::ModuleState::Present,
                "{module}"
            );
        }
    }

    #[tokio::test]
    async fn non_numeric_parameter_is_refused_and_nothing_is_written() {
        let (folder, host) = sandbox(&[("/proc/sys/net/ipv4/ip_forward", "odd\n")]);
        let failure = run(Fix { kind: FixKind::Forwarding }, test_host::context(&host)).await.unwrap_err();
        assert!(failure.code == Code::HostFailed && failure.message.contains("odd"), "{failure:?}");
        assert!(!folder.path().join("etc/sysctl.d").exists(), "nothing was written");
    }
}
