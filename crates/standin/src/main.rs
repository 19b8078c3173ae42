//! The stand-in `rke2`: RKE2's host contract around genuine Kubernetes components.
//!
//! Guarantees the files, modes, ports, tokens, certificates, log lines and notify protocol that RKE2 shows to its
//! operator. Behind them run an unmodified etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
//!
//! On a booted machine these components are pods, with an unmodified kubelet, containerd, kube-proxy, flannel and CoreDNS ([`booted`]).
//! On a sandbox node, which the sandbox's init marks by an environment variable, they are processes, and a minimal kubelet replacement
//! registers the KubeNode, renews its Lease and runs a process per pod ([`pods`]).
//!
//! Deliberately absent: Helm, more than one server per cluster. Every name of the runtime contains `stand-in`.

mod agent;
mod api_client;
mod booted;
mod cli;
mod component;
mod config;
mod control_plane;
mod counters;
mod environment;
mod faults;
mod flags;
mod identity;
mod join;
mod kubelet_api;
mod kubenode;
mod log;
mod node_facts;
mod node_password;
mod notify;
mod paths;
mod pki;
mod pods;
mod runtime;
mod server;
mod server_files;
mod server_nodes;
mod settings;
mod supervisor;
mod tls;
mod token;
mod version;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args().skip(1).collect())
}
