//! A booted machine: root, an init, control groups of its own. Here runs what RKE2 runs: containerd and kubelet as children that end with
//! `rke2`, everything else as pods, of which the control plane's and kube-proxy's are static.
//!
//! Pods outlive a stop and are found again by the next start, because containerd and kubelet keep their own records; nothing here does.
//!
//! Deliberately absent: Helm charts (the manifests of the network and of DNS are applied as they are), the cloud controller, ingress, metrics,
//! SELinux, registries, the websocket tunnel (the apiserver reaches kubelets directly).

pub(crate) mod agent;
mod apply;
pub(crate) mod child;
mod cluster;
mod containerd;
mod images;
mod kubelet;
mod load_balancer;
mod machine;
mod manifests;
mod mounts;
mod node;
mod pod;
mod registration;
mod runtime_image;
pub(crate) mod server;
pub(crate) mod static_pods;
mod system;
