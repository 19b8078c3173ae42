//! Misbehaviour on request: each line of a file on the node switches one fault on, by name.
//!
//! The texts are those of public failure reports, so that whoever reads the journal meets what the real program prints.
//! The file is read at every start; a name that does not exist is fatal, for a misspelt fault would pass as health.

use crate::paths::{self, HostPaths};

/// The file with the fault names, one per line; `#` starts a comment.
pub(crate) const FILE: &str = "/etc/rancher/rke2/stand-in-faults";

/// What the stand-in can be told to do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Ends at once with a fatal line.
    ExitAtOnce,
    /// Runs, and never tells the service manager that it is ready.
    NeverReady,
    /// An agent that finds nobody at its server's address.
    ServerUnreachable,
    /// An agent whose token pins another CA.
    CaMismatch,
    /// An agent whose node password the server refuses.
    NodePasswordRejected,
    /// A server whose data were written under another token.
    BootstrapTokenMismatch,
    /// A server whose flags differ from the cluster's.
    ConfigMismatch,
    /// A server whose etcd member name is taken.
    DuplicateMemberName,
    /// A server whose address changed under its etcd.
    NotAMember,
    /// A server that waits for etcd for ever.
    EtcdNeverReady,
    /// A kubelet that ends at once; the KubeNode never appears.
    KubeletExited,
    /// A KubeNode that stays NotReady for want of a CNI.
    CniNotInitialized,
}

use Fault as F;

/// Every name a line may hold.
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
    /// Reads the switches; no file, no faults.
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

    /// The fatal text of the first fault that ends the program, if one does.
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
                 cluster. Found [{node_name}-00000000=https://192.0.2.1:2380], expect: {node_name}-00000000=https://{address}:2380"
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

/// Printed also without a fault, where a token was really changed over existing data.
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
    fn a_misspelt_fault_is_refused_instead_of_passing_as_health() {
        assert!(Faults::parse("never-redy").unwrap_err().to_string().contains("never-redy"));
    }

    #[test]
    fn only_faults_that_end_the_program_have_a_fatal_text() {
        let text = |name| Faults::parse(name).unwrap().fatal_text("n1", "127.1.2.3");
        assert!(text("not-a-member").unwrap().contains("this server is a not a member of the etcd cluster. Found ["));
        assert_eq!(text("etcd-never-ready"), None);
    }
}
