//! `rke2.uninstall`: removes RKE2 by its own script, which kills what still runs and removes itself last; then what that script leaves behind of
//! RKE2's own and what nobody else can have put there: empty folders, and chains without a rule.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::{Command, Host, HostError};
use gpuaas_wire::task::{Rke2Uninstall, Rke2Uninstalled, TaskFailure};

use crate::context::{Context, host_failed};

const SCRIPT: &str = "/usr/local/bin/rke2-uninstall.sh";
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
    let script = Utf8Path::new(SCRIPT);
    if !context.host.exists(script).await.map_err(host_failed)? {
        return Ok(Rke2Uninstalled { exit_status: None });
    }
    context.say("uninstalling");
    let command = Command { program: script.to_owned(), arguments: Vec::new(), timeout: TIMEOUT };
    let end = context.host.run(&command).await.map_err(host_failed)?;
    remove_leavings(context.host.as_ref()).await.map_err(host_failed)?;
    context.host.daemon_reload().await.map_err(host_failed)?;
    Ok(Rke2Uninstalled { exit_status: end.status })
}

async fn remove_leavings(host: &dyn Host) -> Result<(), HostError> {
    for folder in FOLDERS.map(Utf8Path::new) {
        if host.exists(folder).await? && host.list(folder).await?.is_empty() {
            host.remove(folder).await?;
        }
    }
    for program in IPTABLES.map(Utf8PathBuf::from) {
        if !host.exists(&program).await? {
            continue;
        }
        for (table, chain) in CHAINS {
            // Refused for a chain that is not there, that holds a rule, or that one leads to. The last two are residue, and told.
            let arguments = ["--wait", "5", "--table", table, "--delete-chain", chain].map(str::to_owned).to_vec();
            host.run(&Command { program: program.clone(), arguments, timeout: CHAIN_TIMEOUT }).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::test_host::sandbox;

    #[tokio::test]
    async fn empty_folders_of_rke2_go_and_what_holds_something_stays() {
        let (folder, host) = sandbox(&[("/opt/cni/mine", ""), ("/usr/local/lib/systemd/user/mine.service", "")]);
        for made in ["etc/rancher", "var/lib/rancher", "usr/local/lib/systemd/system"] {
            std::fs::create_dir_all(folder.path().join(made)).unwrap();
        }
        remove_leavings(host.as_ref()).await.unwrap();
        let is_there = |path: &str| folder.path().join(path).exists();
        assert!(is_there("opt/cni/mine") && is_there("usr/local/lib/systemd/user/mine.service"));
        assert!(!is_there("etc/rancher") && !is_there("var/lib/rancher") && !is_there("usr/local/lib/systemd/system"));
    }
}
