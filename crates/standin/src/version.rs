//! Names and versions that the stand-in reports, and the RKE2 release it imitates.

/// The RKE2 release that the stand-in imitates; the genuine components are built with this version string.
pub(crate) const RELEASE: &str = "v1.36.3+rke2r1";
/// The release as an image tag and in folder names, where `+` is not allowed.
pub(crate) const RELEASE_TAG: &str = "v1.36.3-rke2r1";
/// The `containerRuntimeVersion` of a sandbox node: it marks the node as a stand-in wherever the runtime is shown.
pub(crate) const CONTAINER_RUNTIME: &str = concat!("stand-in://", env!("CARGO_PKG_VERSION"));
/// The value printed in place of RKE2's commit.
pub(crate) const COMMIT: &str = concat!("stand-in-", env!("CARGO_PKG_VERSION"));
/// The image whose reference determines the name of the data folder, as in RKE2.
pub(crate) const RUNTIME_IMAGE: &str = "index.docker.io/rancher/rke2-runtime:v1.36.3-rke2r1";

/// The programs that a booted node unpacks from [`RUNTIME_IMAGE`].
pub(crate) const RUNTIME_PROGRAMS: [&str; 6] =
    ["containerd", "containerd-shim-runc-v2", "ctr", "kubectl", "kubelet", "runc"];

/// The full name of a preloaded image.
pub(crate) fn image(name: &str) -> String {
    format!("docker.io/stand-in/{name}:{RELEASE_TAG}")
}

/// The two lines of `rke2 --version`. RKE2 prints its Go version on the second; the stand-in prints a placeholder.
pub(crate) fn text() -> String {
    format!("rke2 version {RELEASE} ({COMMIT})\ngo version go0 (stand-in, no Go inside)")
}
