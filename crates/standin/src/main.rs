//! The stand-in `rke2`: RKE2's host contract around genuine Kubernetes components.
//!
//! Guaranteed: the files, modes, ports, tokens, certificates, log lines and notify protocol that RKE2 shows to whoever
//! operates it; behind them run an unmodified etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
//!
//! On a booted machine these are pods, with an unmodified kubelet, containerd, kube-proxy, flannel and CoreDNS ([`booted`]). On a sandbox node,
//! which its init names in the environment, they are processes, and a light double of the kubelet registers the KubeNode and keeps its lease.
//!
//! Deliberately absent: Helm, more than one server per cluster. Whatever names the runtime says `stand-in`.

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
