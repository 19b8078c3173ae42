//! What the stand-in calls itself, and which Kubernetes it stands for.

/// The release the stand-in imitates; the genuine components are built with this as their own version.
pub(crate) const RELEASE: &str = "v1.36.3+rke2r1";
/// The release as an image tag and in folder names, where `+` is not allowed.
pub(crate) const RELEASE_TAG: &str = "v1.36.3-rke2r1";
/// What every screen that shows the runtime must carry.
pub(crate) const CONTAINER_RUNTIME: &str = concat!("stand-in://", env!("CARGO_PKG_VERSION"));
/// Where the real program prints its commit.
pub(crate) const COMMIT: &str = concat!("stand-in-", env!("CARGO_PKG_VERSION"));
/// The image whose reference names the data folder, as RKE2 does.
pub(crate) const RUNTIME_IMAGE: &str = "index.docker.io/rancher/rke2-runtime:v1.36.3-rke2r1";

/// What a booted node takes out of that image.
pub(crate) const RUNTIME_PROGRAMS: [&str; 6] =
    ["containerd", "containerd-shim-runc-v2", "ctr", "kubectl", "kubelet", "runc"];

/// The full name of a preloaded image.
pub(crate) fn image(name: &str) -> String {
    format!("docker.io/stand-in/{name}:{RELEASE_TAG}")
}

/// RKE2's two lines; the second names the Go toolchain there, of which the stand-in has none.
pub(crate) fn text() -> String {
    format!("rke2 version {RELEASE} ({COMMIT})\ngo version go0 (stand-in, no Go inside)")
}
