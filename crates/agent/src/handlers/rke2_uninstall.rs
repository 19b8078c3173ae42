//! `rke2.uninstall`: removes RKE2 by its own script, which kills what still runs and removes itself last; then what that script leaves behind of
//! RKE2's own and what nobody else can have put there: empty folders, and chains without a rule. It also removes the staged artifacts: a node
//! has one workload at a time, and the next one must not find files that this one's tenant could write to.
//!
//! Guarantees: an uninstall that was begun is known until its end, also where the agent died when the script had just removed itself: the rest is
//! done then, and it is not reported as one that found nothing. Only where the disk has no room at all is that not written down.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::{Command, FileSpec, Host};
use gpuaas_wire::task::{Rke2Uninstall, Rke2Uninstalled, TaskFailure};

use super::{artifact_fetch::STAGING, rke2_install::PREFIX};
use crate::context::{Context, host_failed};

/// That an uninstall was begun and has not come to its end, and its script's exit status once that has one.
const BEGUN: &str = "/var/lib/gpuaas-agent/rke2-uninstall";
const BEGUN_BYTES_MAX: u64 = 64;
const SCRIPT: &str = "/usr/local/bin/rke2-uninstall.sh";
/// Tells the script where RKE2 was laid out.
const ROOT_VARIABLE: &str = "INSTALL_RKE2_ROOT";
/// Longest time for the script; it was measured at 2.3 s.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Folders that RKE2 makes to put others into, innermost first. The script removes only these others.
const FOLDERS: [&str; 5] =
    ["/opt/cni", "/etc/rancher", "/var/lib/rancher", "/usr/local/lib/systemd/system", "/usr/local/lib/systemd"];
/// Chains of flannel, by their table: the script finds flannel's rules by a word that the chains' names do not hold.
const CHAINS: [(&str, &str); 2] = [("nat", "FLANNEL-POSTRTG"), ("filter", "FLANNEL-FWD")];
const IPTABLES: [&str; 2] = ["/usr/sbin/iptables", "/usr/sbin/ip6tables"];
/// Longest time for one chain, the wait for others who change rules among it.
const CHAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the script if it is there. Its exit status is reported and not believed: the residue report tells.
pub(crate) async fn run(_task: Rke2Uninstall, context: Context) -> Result<Rke2Uninstalled, TaskFailure> {
    let (host, script) = (context.host.as_ref(), Utf8Path::new(SCRIPT));
    // First, and also where nothing is installed: artifacts are staged before that.
    if let Err(error) = host.remove(Utf8Path::new(STAGING)).await {
        tracing::warn!(%error, "staged artifacts stay");
    }
    let status = if host.exists(script).await.map_err(host_failed)? {
        context.say("uninstalling");
        begun(host, None).await?;
        // On SUSE the script looks in /opt/rke2 where /usr/local is a mount of its own, and would end at once.
        let environment = vec![(ROOT_VARIABLE.to_owned(), PREFIX.to_owned())];
        let command = Command { program: script.to_owned(), arguments: Vec::new(), environment, timeout: TIMEOUT };
        let status = host.run(&command).await.map_err(host_failed)?.status;
        begun(host, status).await?;
        status
    } else {
        let Some(status) = of_before(host).await? else { return Ok(Rke2Uninstalled { exit_status: None }) };
        Some(status)
    };
    remove_leavings(host).await;
    host.daemon_reload().await.map_err(host_failed)?;
    host.remove(Utf8Path::new(BEGUN)).await.map_err(host_failed)?;
    Ok(Rke2Uninstalled { exit_status: status })
}

/// The status of an uninstall that was begun, and whose script is gone; none where none was begun.
async fn of_before(host: &dyn Host) -> Result<Option<i32>, TaskFailure> {
    let read = host.read(Utf8Path::new(BEGUN), BEGUN_BYTES_MAX).await.map_err(host_failed)?;
    // A script that is gone has come to its end: removing itself is the last that it does.
    Ok(read.map(|text| String::from_utf8_lossy(&text).trim().parse().unwrap_or(0)))
}

/// Writes that down. Read by whoever goes on behind a death.
async fn begun(host: &dyn Host, status: Option<i32>) -> Result<(), TaskFailure> {
    let content = status.map(|status| status.to_string()).unwrap_or_default().into_bytes();
    match host.write(&FileSpec { path: BEGUN.into(), mode: 0o600, content }).await {
        // It is the uninstall that makes room again.
        Err(error) if error.is_full() => {
            tracing::warn!(%error, "an uninstall is not written down");
            Ok(())
        }
        written => written.map(drop).map_err(host_failed),
    }
}

/// What cannot be removed stays, and is told by the residue report where it is residue.
async fn remove_leavings(host: &dyn Host) {
    for folder in FOLDERS.map(Utf8Path::new) {
        if let Err(error) = host.remove_empty_folder(folder).await {
            tracing::warn!(%folder, %error, "an empty folder stays");
        }
    }
    for program in IPTABLES.map(Utf8PathBuf::from) {
        if !host.exists(&program).await.unwrap_or_default() {
            continue;
        }
        for (table, chain) in CHAINS {
            // Refused for a chain that is not there, that holds a rule, or that one leads to. The last two are residue, and told.
            let arguments = ["--wait", "5", "--table", table, "--delete-chain", chain].map(str::to_owned).to_vec();
            let command =
                Command { program: program.clone(), arguments, environment: Vec::new(), timeout: CHAIN_TIMEOUT };
            if let Err(error) = host.run(&command).await {
                tracing::warn!(chain, %error, "a chain stays");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::test_host::{context, sandbox};

    #[tokio::test]
    async fn an_uninstall_that_was_begun_is_ended_and_one_that_was_not_finds_nothing() {
        let (folder, host) = sandbox(&[]);
        std::fs::create_dir_all(folder.path().join("etc/rancher")).unwrap();
        let found = run(Rke2Uninstall {}, context(&host)).await.unwrap();
        assert_eq!(found.exit_status, None);
        assert!(
            folder.path().join("etc/rancher").exists(),
            "an empty folder is nobody's leaving where nothing was begun"
        );
        for (status, known) in [(None, 0), (Some(0), 0), (Some(3), 3)] {
            begun(host.as_ref(), status).await.unwrap();
            assert_eq!(of_before(host.as_ref()).await.unwrap(), Some(known));
        }
        // There is no init here to tell that units are gone: the uninstall has not come to its end, and is known.
        run(Rke2Uninstall {}, context(&host)).await.unwrap_err();
        assert!(!folder.path().join("etc/rancher").exists());
        assert_eq!(of_before(host.as_ref()).await.unwrap(), Some(3));
    }

    #[tokio::test]
    async fn script_gets_the_root_that_rke2_was_laid_out_in() {
        // As RKE2's own on SUSE with /usr/local on a disk of its own: it looks in /opt/rke2 unless the variable is set.
        let text = "#!/bin/sh\nset -e\n: \"${INSTALL_RKE2_ROOT:=/opt/rke2}\"\n\
                    rm \"$GPUAAS_SANDBOX_ROOT$INSTALL_RKE2_ROOT/bin/rke2\"\n";
        let (folder, host) = sandbox(&[(SCRIPT, text), ("/usr/local/bin/rke2", "")]);
        let script = folder.path().join(SCRIPT.trim_start_matches('/'));
        std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        // There is no init here: what comes behind the script fails.
        run(Rke2Uninstall {}, context(&host)).await.unwrap_err();
        assert_eq!(of_before(host.as_ref()).await.unwrap(), Some(0), "the script failed");
        assert!(!folder.path().join("usr/local/bin/rke2").exists());
    }

    #[tokio::test]
    async fn empty_folders_of_rke2_go_and_what_holds_something_stays() {
        let (folder, host) = sandbox(&[("/opt/cni/mine", ""), ("/usr/local/lib/systemd/user/mine.service", "")]);
        for made in ["etc/rancher", "mnt/rancher", "var/lib", "usr/local/lib/systemd/system"] {
            std::fs::create_dir_all(folder.path().join(made)).unwrap();
        }
        std::os::unix::fs::symlink("../../mnt/rancher", folder.path().join("var/lib/rancher")).unwrap();
        remove_leavings(host.as_ref()).await;
        let is_there = |path: &str| folder.path().join(path).exists();
        assert!(is_there("opt/cni/mine") && is_there("usr/local/lib/systemd/user/mine.service"));
        assert!(!is_there("etc/rancher") && !is_there("usr/local/lib/systemd/system"));
        assert!(
            is_there("var/lib/rancher") && is_there("mnt/rancher"),
            "a link to somebody's own disk is nobody else's"
        );
    }

    #[tokio::test]
    async fn staged_artifacts_go_with_every_uninstall_also_where_nothing_was_installed() {
        let (folder, host) =
            sandbox(&[("/var/lib/gpuaas-agent/artifacts/0a1b", "x"), ("/var/lib/gpuaas-agent/artifacts/2c.part", "y")]);
        std::fs::write(folder.path().join("var/lib/gpuaas-agent/identity.json"), "kept").unwrap();
        for _ in 0..2 {
            assert_eq!(run(Rke2Uninstall {}, context(&host)).await.unwrap().exit_status, None);
            assert_eq!(host.list("/var/lib/gpuaas-agent".into()).await.unwrap(), ["identity.json"]);
        }
    }
}
