//! `rke2.uninstall`: removes RKE2 with its own script, which kills what still runs and removes itself last; then removes the leftovers of
//! that script that can only be RKE2's: the paths that the task names, empty folders, and chains without a rule. It also removes the staged artifacts: a node has one
//! workload at a time, and the next one must not find files that this one's tenant could write to.
//!
//! Guarantees: an uninstall that began is recorded until its end, even if the agent dies right after the script removed itself: the next
//! attempt does the rest, and reports what the first one found. Only on a completely full disk is the record missing.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_app_rke2_tasks::{Rke2Uninstall, Rke2Uninstalled};
use gpuaas_handler::{Context, host_failed, staging::STAGING};
use gpuaas_host::{Changed, Command, Host, HostError};
use gpuaas_model::Code;
use gpuaas_wire::task::TaskFailure;

use crate::{
    UNITS,
    install::PREFIX,
    uninstall_record::{Record, Script},
};

const SCRIPT: &str = "/usr/local/bin/rke2-uninstall.sh";
/// Variable that names the folder in which RKE2 is installed, for the script.
const ROOT_VARIABLE: &str = "INSTALL_RKE2_ROOT";
/// Longest time for the script; it was measured at 2.3 s.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Folders that RKE2 creates around its own folders, innermost first. The script removes only the inner ones.
const FOLDERS: [&str; 5] =
    ["/opt/cni", "/etc/rancher", "/var/lib/rancher", "/usr/local/lib/systemd/system", "/usr/local/lib/systemd"];
/// Folders of the units' files.
const UNIT_FOLDERS: [&str; 2] = ["/etc/systemd/system", "/usr/local/lib/systemd/system"];
/// Flannel's chains with their tables: the script finds flannel's rules by a text that the names of the chains do not contain.
const CHAINS: [(&str, &str); 2] = [("nat", "FLANNEL-POSTRTG"), ("filter", "FLANNEL-FWD")];
const IPTABLES: [&str; 2] = ["/usr/sbin/iptables", "/usr/sbin/ip6tables"];
/// Longest time to delete one chain, including the wait for other programs that change rules.
const CHAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the script if it is there. Its exit status is reported, but not relied on: the residue report shows what is left.
pub(crate) async fn run(task: Rke2Uninstall, context: Context) -> Result<Rke2Uninstalled, TaskFailure> {
    if let Some(path) = task.foreign_path() {
        return Err(TaskFailure::new(Code::TaskParamsInvalid, format!("{path} is not a path of RKE2")));
    }
    let (host, script) = (context.host.as_ref(), Utf8Path::new(SCRIPT));
    // Runs first, and even if nothing is installed: artifacts are staged before the installation.
    if let Err(error) = host.files().remove(Utf8Path::new(STAGING)).await {
        tracing::warn!(%error, "could not remove the staged artifacts");
    }
    let has_script = host.files().exists(script).await.map_err(host_failed)?;
    let earlier = Record::read(host).await?;
    let has_begun = has_script || earlier.is_some();
    let mut record = earlier.unwrap_or_default();
    record.add(find(host, has_begun, &task.paths).await?);
    if has_script {
        run_script(&context, &mut record).await?;
    }
    // A script that failed stays: it cleans more than paths, and the next attempt runs it again. A completed one has removed itself.
    let is_completed = !host.files().exists(script).await.map_err(host_failed)?;
    let has_removed = is_completed && remove_paths(host, &task.paths, &record).await?;
    if has_begun || has_removed {
        remove_leftovers(host).await;
        host.units().daemon_reload().await.map_err(host_failed)?;
    }
    let ended = result(host, record).await?;
    Record::remove(host).await?;
    Ok(ended)
}

/// Runs the script between two writes of the record: one that it begins, and one with its status.
async fn run_script(context: &Context, record: &mut Record) -> Result<(), TaskFailure> {
    let host = context.host.as_ref();
    context.report_progress("uninstalling");
    record.script = Script::Started;
    record.write(host).await?;
    let command =
        Command { program: SCRIPT.into(), arguments: Vec::new(), environment: install_root(), timeout: TIMEOUT };
    record.script = Script::Ended(host.run(&command).await.map_err(host_failed)?.status);
    record.write(host).await
}

/// Returns what exists of RKE2: of the paths that the task names and, if an uninstall has begun, also of those that its script removes, and
/// the units. Without an uninstall those can belong to other software.
async fn find(host: &dyn Host, has_begun: bool, paths: &[String]) -> Result<Vec<String>, TaskFailure> {
    let of_script = Rke2Uninstall::REMOVABLE.into_iter().chain(UNITS).filter(|_| has_begun);
    let mut found = Vec::new();
    for name in of_script.chain(paths.iter().map(String::as_str)) {
        if exists(host, name).await? {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// Returns the result, with those of the found paths and units that no longer exist.
async fn result(host: &dyn Host, Record { script, found }: Record) -> Result<Rke2Uninstalled, TaskFailure> {
    let mut removed = Vec::new();
    for name in &found {
        if !exists(host, name).await? {
            removed.push(name.clone());
        }
    }
    Ok(Rke2Uninstalled { exit_status: script.exit_status(), found, removed })
}

/// Returns true if this unit has a file, or anything has this path. A path below a link counts: the link is not followed.
async fn exists(host: &dyn Host, name: &str) -> Result<bool, TaskFailure> {
    let paths = if UNITS.contains(&name) {
        UNIT_FOLDERS.iter().map(|folder| Utf8Path::new(folder).join(name)).collect()
    } else {
        vec![Utf8PathBuf::from(name)]
    };
    for path in paths {
        match host.files().exists(&path).await {
            Ok(false) => {}
            Ok(true) | Err(HostError::UnsafePath { .. }) => return Ok(true),
            Err(error) => return Err(host_failed(error)),
        }
    }
    Ok(false)
}

/// Returns the variable that names the folder in which RKE2 is installed, for its scripts: on SUSE with /usr/local as a separate mount,
/// they would look in /opt/rke2 and end at once.
pub(crate) fn install_root() -> Vec<(String, String)> {
    vec![(ROOT_VARIABLE.to_owned(), PREFIX.to_owned())]
}

/// Removes the paths and returns whether there was one. Follows no link and empties no mount; what cannot be removed stays, for example an
/// immutable file, and the residue report lists it.
async fn remove_paths(host: &dyn Host, paths: &[String], record: &Record) -> Result<bool, TaskFailure> {
    if paths.iter().any(|path| record.found.contains(path)) {
        record.write(host).await?;
    }
    let mut has_removed = false;
    for path in paths {
        match host.files().remove(Utf8Path::new(path)).await {
            Ok(changed) => has_removed |= changed == Changed::Yes,
            Err(error) => tracing::warn!(path, %error, "could not remove a path that the uninstall left"),
        }
    }
    Ok(has_removed)
}

/// Removes the leftovers. Those that cannot be removed stay; the residue report lists them if they are residue.
async fn remove_leftovers(host: &dyn Host) {
    for folder in FOLDERS.map(Utf8Path::new) {
        if let Err(error) = host.files().remove_empty_folder(folder).await {
            tracing::warn!(%folder, %error, "could not remove an empty folder");
        }
    }
    for program in IPTABLES.map(Utf8PathBuf::from) {
        if !host.files().exists(&program).await.unwrap_or_default() {
            continue;
        }
        for (table, chain) in CHAINS {
            // iptables refuses for a chain that does not exist, that holds a rule, or to which a rule jumps. The last two are residue and
            // are reported.
            let arguments = ["--wait", "5", "--table", table, "--delete-chain", chain].map(str::to_owned).to_vec();
            let command =
                Command { program: program.clone(), arguments, environment: Vec::new(), timeout: CHAIN_TIMEOUT };
            if let Err(error) = host.run(&command).await {
                tracing::warn!(chain, %error, "could not delete an iptables chain");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_handler::test_host::{context, sandbox};

    use super::*;

    #[tokio::test]
    async fn begun_uninstall_is_finished_and_nothing_is_done_without_one() {
        let (folder, host) = sandbox(&[]);
        std::fs::create_dir_all(folder.path().join("etc/rancher")).unwrap();
        let found = run(Rke2Uninstall::default(), context(&host)).await.unwrap();
        assert_eq!(found.exit_status, None);
        assert!(folder.path().join("etc/rancher").exists(), "empty folders stay if no uninstall was begun");
        let earlier = Record { script: Script::Ended(Some(3)), found: vec!["/var/lib/rancher".to_owned()] };
        earlier.write(host.as_ref()).await.unwrap();
        // This host has no init to reload, so the uninstall does not end and stays recorded.
        run(Rke2Uninstall::default(), context(&host)).await.unwrap_err();
        assert!(!folder.path().join("etc/rancher").exists());
        assert_eq!(Record::read(host.as_ref()).await.unwrap(), Some(earlier));
    }

    #[tokio::test]
    async fn uninstall_script_gets_the_install_root() {
        // Like RKE2's own script on SUSE with /usr/local on a separate disk: it looks in /opt/rke2 unless the variable is set.
        let text = "#!/bin/sh\nset -e\n: \"${INSTALL_RKE2_ROOT:=/opt/rke2}\"\n\
                    rm \"$GPUAAS_SANDBOX_ROOT$INSTALL_RKE2_ROOT/bin/rke2\"\n";
        let (folder, host) = sandbox(&[(SCRIPT, text), ("/usr/local/bin/rke2", "")]);
        let script = folder.path().join(SCRIPT.trim_start_matches('/'));
        std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        // This host has no init, so the reload after the script fails.
        run(Rke2Uninstall::default(), context(&host)).await.unwrap_err();
        let record = Record::read(host.as_ref()).await.unwrap().unwrap();
        assert_eq!(record.script, Script::Ended(Some(0)), "the script must succeed");
        assert!(!folder.path().join("usr/local/bin/rke2").exists());
    }

    #[tokio::test]
    async fn empty_rke2_folders_are_removed_and_others_stay() {
        let (folder, host) = sandbox(&[("/opt/cni/mine", ""), ("/usr/local/lib/systemd/user/mine.service", "")]);
        for made in ["etc/rancher", "mnt/rancher", "var/lib", "usr/local/lib/systemd/system"] {
            std::fs::create_dir_all(folder.path().join(made)).unwrap();
        }
        std::os::unix::fs::symlink("../../mnt/rancher", folder.path().join("var/lib/rancher")).unwrap();
        remove_leftovers(host.as_ref()).await;
        let is_there = |path: &str| folder.path().join(path).exists();
        assert!(is_there("opt/cni/mine") && is_there("usr/local/lib/systemd/user/mine.service"));
        assert!(!is_there("etc/rancher") && !is_there("usr/local/lib/systemd/system"));
        assert!(is_there("var/lib/rancher") && is_there("mnt/rancher"), "links to other disks stay");
    }

    #[tokio::test]
    async fn repeated_uninstall_removes_what_the_script_left_and_no_mount_or_link_target() {
        let (folder, host) =
            sandbox(&[("/var/lib/kubelet/pods/1", ""), ("/etc/cni/net.d/10", ""), ("/mnt/disk/x", "")]);
        std::fs::create_dir_all(folder.path().join("var/log")).unwrap();
        std::os::unix::fs::symlink("../../mnt/disk", folder.path().join("var/log/pods")).unwrap();
        let paths = ["/var/lib/kubelet", "/var/log/pods", "/var/lib/cni"].map(str::to_owned).to_vec();
        // This host has no init, so the reload after the removal fails.
        run(Rke2Uninstall { paths: paths.clone() }, context(&host)).await.unwrap_err();
        let is_there = |path: &str| folder.path().join(path).exists();
        assert!(!is_there("var/lib/kubelet") && !is_there("var/log/pods"));
        assert!(is_there("mnt/disk/x") && is_there("etc/cni/net.d/10"), "only the named paths are removed");
        let record = Record::read(host.as_ref()).await.unwrap().unwrap();
        assert_eq!(
            record.found,
            ["/var/lib/kubelet", "/var/log/pods"],
            "an attempt after a crash knows what was there"
        );
        let ended = result(host.as_ref(), record).await.unwrap();
        assert_eq!((ended.exit_status, ended.removed), (None, ended.found));
    }

    #[tokio::test]
    async fn task_with_a_path_of_other_software_removes_nothing() {
        for foreign in [
            "/",
            "",
            "/etc",
            "/etc/passwd",
            "/var/lib/kubelet2",
            "/var/lib/kubelet/../docker",
            "/var/lib/rancher/./../../home",
            "/opt/cni//../x",
            "var/lib/kubelet",
            "/var/log",
            "/usr/local/bin/rke2x",
        ] {
            let (folder, host) = sandbox(&[("/var/lib/kubelet/x", ""), ("/home/x", ""), (STAGING, "")]);
            let paths = ["/var/lib/kubelet", foreign].map(str::to_owned).to_vec();
            let refused = run(Rke2Uninstall { paths }, context(&host)).await.expect_err(foreign);
            assert_eq!(refused.code, Code::TaskParamsInvalid, "{foreign:?}: {}", refused.message);
            for kept in ["var/lib/kubelet/x", "home/x", STAGING.trim_start_matches('/')] {
                assert!(folder.path().join(kept).exists(), "a task with {foreign:?} removed {kept}");
            }
        }
    }

    #[tokio::test]
    async fn failed_script_stays_and_its_paths_too() {
        let text = "#!/bin/sh\nexit 3\n";
        let (folder, host) = sandbox(&[(SCRIPT, text), ("/var/lib/kubelet/x", "")]);
        let script = folder.path().join(SCRIPT.trim_start_matches('/'));
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let task = Rke2Uninstall { paths: vec![SCRIPT.to_owned(), "/var/lib/kubelet".to_owned()] };
        run(task, context(&host)).await.unwrap_err();
        assert!(script.exists() && folder.path().join("var/lib/kubelet/x").exists());
    }

    #[tokio::test]
    async fn every_uninstall_removes_staged_artifacts() {
        let (folder, host) =
            sandbox(&[("/var/lib/gpuaas-agent/artifacts/0a1b", "x"), ("/var/lib/gpuaas-agent/artifacts/2c.part", "y")]);
        std::fs::write(folder.path().join("var/lib/gpuaas-agent/identity.json"), "kept").unwrap();
        for _ in 0..2 {
            assert_eq!(run(Rke2Uninstall::default(), context(&host)).await.unwrap().exit_status, None);
            assert_eq!(host.files().list("/var/lib/gpuaas-agent".into()).await.unwrap(), ["identity.json"]);
        }
    }
}
