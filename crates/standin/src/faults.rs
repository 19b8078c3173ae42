//! Injected faults: each line of a file on the node names one fault to switch on.
//!
//! The texts come from public failure reports, so that the journal contains the lines that RKE2 prints.
//! The file is read at every start. An unknown name is fatal: a misspelt fault would otherwise look like a healthy node.

use crate::api_client::join_host_port;
use crate::paths::{self, HostPaths};

/// The file with the fault names, one per line; `#` starts a comment.
pub(crate) const FILE: &str = "/etc/rancher/rke2/stand-in-faults";

/// A fault that the stand-in can inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Exits immediately with a fatal log line.
    ExitAtOnce,
    /// Runs, but never sends `READY=1` to the service manager.
    NeverReady,
    /// An agent whose server does not respond.
    ServerUnreachable,
    /// An agent whose token contains the hash of another CA.
    CaMismatch,
    /// An agent whose node password the server refuses.
    NodePasswordRejected,
    /// A server whose data were written with another token.
    BootstrapTokenMismatch,
    /// A server whose critical flags differ from those of the cluster's other servers.
    ConfigMismatch,
    /// A server whose etcd member name is already in use.
    DuplicateMemberName,
    /// A server whose address is no longer the one that its etcd member was created with.
    NotAMember,
    /// A server that waits for etcd forever.
    EtcdNeverReady,
    /// A kubelet that exits at every start; the KubeNode never appears.
    KubeletExited,
    /// A KubeNode that stays NotReady because no CNI plugin is initialized.
    CniNotInitialized,
}

use Fault as F;

/// The name of each fault in the file.
const NAMES: [(&str, Fault); 12] = [
    ("exit-at-once", F::ExitAtOnce),
    ("never-ready", F::NeverReady),
    ("server-unreachable", F::ServerUnreachable),
    ("ca-mismatch", F::CaMismatch),
    ("node-password-rejected", F::NodePasswordRejected),
    ("bootstrap-token-mismatch", F::BootstrapTokenMismatch),
    ("config-mismatch", F::ConfigMismatch),
    ("duplicate-member-name", F::DuplicateMemberName),
    ("not-a-member", F::NotAMember),
    ("etcd-never-ready", F::EtcdNeverReady),
    ("kubelet-exited", F::KubeletExited),
    ("cni-not-initialized", F::CniNotInitialized),
];

/// The faults switched on at this start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Reads the file; a missing file means no faults.
    pub(crate) fn read(paths: &HostPaths) -> anyhow::Result<Self> {
        Self::parse(&paths::read_optional(&paths.at(FILE))?.unwrap_or_default())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let named = lines.filter(|name| !name.is_empty()).map(|name| {
            let found = NAMES.iter().find(|(known, _)| *known == name);
            found.map(|(_, fault)| *fault).ok_or_else(|| anyhow::anyhow!("unknown stand-in fault {name:?}"))
        });
        named.collect::<Result<_, _>>().map(Self)
    }

    /// Whether `fault` is switched on.
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }

    /// The fatal text of the first active fault that ends the program, if any.
    pub(crate) fn fatal_text(&self, node_name: &str, address: &str) -> Option<String> {
        self.0.iter().find_map(|fault| match fault {
            F::ExitAtOnce => Some("starting kubernetes: preparing server: stand-in fault exit-at-once".to_owned()),
            F::BootstrapTokenMismatch => Some(BOOTSTRAP_TOKEN_MISMATCH.to_owned()),
            F::ConfigMismatch => Some(
                "starting kubernetes: preparing server: failed to validate server configuration: critical configuration \
                 value mismatch between servers"
                    .to_owned(),
            ),
            F::DuplicateMemberName => {
                Some("ETCD join failed: duplicate node name found, please use a unique name for this node".to_owned())
            }
            F::NotAMember => Some(format!(
                "starting kubernetes: preparing server: start managed database: this server is a not a member of the etcd \
                 cluster. Found [{node_name}-00000000=https://192.0.2.1:2380], expect: {node_name}-00000000=https://{}",
                join_host_port(address, 2380)
            )),
            F::NeverReady
            | F::ServerUnreachable
            | F::CaMismatch
            | F::NodePasswordRejected
            | F::EtcdNeverReady
            | F::KubeletExited
            | F::CniNotInitialized => None,
        })
    }
}

/// The fatal text for data written with another token. Also used without a fault, when the configured token differs from the stored one.
pub(crate) const BOOTSTRAP_TOKEN_MISMATCH: &str =
    "starting kubernetes: preparing server: bootstrap data already found and encrypted with different token";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_one_per_line_with_comments() {
        let faults = Faults::parse("# none yet\nnever-ready\n  ca-mismatch # both\n\n").unwrap();
        assert!(faults.has(Fault::NeverReady) && faults.has(Fault::CaMismatch) && !faults.has(Fault::ExitAtOnce));
    }

    #[test]
    fn unknown_fault_is_refused() {
        assert!(Faults::parse("never-redy").unwrap_err().to_string().contains("never-redy"));
    }

    #[test]
    fn only_faults_that_end_the_program_have_a_fatal_text() {
        let text = |name| Faults::parse(name).unwrap().fatal_text("n1", "127.1.2.3");
        assert!(text("not-a-member").unwrap().contains("this server is a not a member of the etcd cluster. Found ["));
        assert_eq!(text("etcd-never-ready"), None);
    }
}
