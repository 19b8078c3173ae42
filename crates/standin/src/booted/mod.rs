//! A node on a booted machine, which has root, an init and its own control groups. Runs the same programs as RKE2: containerd and kubelet
//! as children that end with `rke2`, everything else as pods. The pods of control plane and kube-proxy are static.
//!
//! Pods keep running when `rke2` stops, and the next start finds them again through the records of containerd and kubelet. This module
//! keeps no records.
//!
//! Deliberately absent: Helm charts (network and DNS are plain manifests), the cloud controller, ingress, metrics, SELinux, registries, the
//! websocket tunnel (the apiserver reaches kubelets directly).

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
