//! A node's identity in the cluster: its name, address and certificates.

use std::net::IpAddr;
use std::sync::Arc;

use crate::api_client::{Client, join_host_port};
use crate::paths::{self, HostPaths};
use crate::pki::Leaf;
use crate::server_files::kubeconfig;
use crate::settings::{APISERVER_PORT, Settings};
use crate::tls;

/// The name that the server's certificate must contain. As in RKE2, whose agents reach the server through a load balancer on loopback,
/// the certificate does not need to contain the name or address in the agent's `server` option.
pub(crate) const LOAD_BALANCER: &str = "127.0.0.1";

/// The identity of a joined node.
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) hostname: String,
    pub(crate) address: IpAddr,
    /// Host of the apiserver.
    pub(crate) apiserver: String,
    pub(crate) server_ca: String,
    pub(crate) client_ca: String,
    /// Client certificate of `system:node:NAME` in the group `system:nodes`.
    pub(crate) client: Leaf,
    /// Serving certificate of the kubelet's port.
    pub(crate) serving: Leaf,
}

impl Identity {
    /// Combines the node's names and address from `settings` with its certificates: `cas` are server and client CA, `leaves` are client and
    /// serving certificate.
    pub(crate) fn new(settings: &Settings, apiserver: String, cas: (String, String), leaves: (Leaf, Leaf)) -> Self {
        let ((server_ca, client_ca), (client, serving)) = (cas, leaves);
        let (name, hostname) = (settings.node_name.clone(), settings.hostname.clone());
        Self { name, hostname, address: settings.address, apiserver, server_ca, client_ca, client, serving }
    }

    /// Returns a client of the apiserver that authenticates as this node.
    pub(crate) fn client(&self) -> anyhow::Result<Arc<Client>> {
        let tls = tls::client_config(&self.server_ca, Some(&self.client))?;
        Ok(Arc::new(Client::new(&self.apiserver, APISERVER_PORT, tls, Vec::new()).with_server_name(LOAD_BALANCER)))
    }

    /// Writes the node's certificates and its kubeconfig to RKE2's paths.
    pub(crate) fn write(&self, host: &HostPaths) -> anyhow::Result<()> {
        paths::make_dir(&host.data("agent"), 0o755)?;
        paths::make_dir(&host.data("agent/logs"), 0o750)?;
        // Empty on a sandbox node, but checks for the residue of a node must find the same folders as with RKE2.
        paths::make_dir(&host.at("/run/k3s/containerd"), 0o711)?;
        paths::make_dir(&host.at("/var/lib/kubelet"), 0o700)?;
        for (name, ca) in [("server-ca.crt", &self.server_ca), ("client-ca.crt", &self.client_ca)] {
            paths::write(&host.data("agent").join(name), 0o644, ca)?;
        }
        for (name, leaf) in [("client-kubelet", &self.client), ("serving-kubelet", &self.serving)] {
            paths::write(&host.data("agent").join(format!("{name}.key")), 0o600, &leaf.key)?;
            paths::write(&host.data("agent").join(format!("{name}.crt")), 0o644, &leaf.certificate)?;
        }
        let server = format!("https://{}", join_host_port(&self.apiserver, APISERVER_PORT));
        let text = kubeconfig(&server, &self.server_ca, &self.client, "user");
        Ok(paths::write(&host.data("agent/kubelet.kubeconfig"), 0o600, text)?)
    }
}
