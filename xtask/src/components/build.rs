//! Builds the pinned Go module's tools.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use aws_lc_rs::digest::{Context as Digest, SHA256};
use camino::Utf8Path;

use super::VERSION;

/// Package, name of the program, and what a build took on two cores from nothing, in seconds.
const TOOLS: [(&str, &str, u32); 6] = [
    ("go.etcd.io/etcd/server/v3", "etcd", 42),
    ("go.etcd.io/etcd/etcdctl/v3", "etcdctl", 2),
    ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver", 166),
    ("k8s.io/kubernetes/cmd/kubectl", "kubectl", 19),
    ("k8s.io/kubernetes/cmd/kube-controller-manager", "kube-controller-manager", 50),
    ("k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler", 5),
];

fn linker_flags() -> String {
    let set = |name: &str, value: &str| format!(" -X k8s.io/component-base/version.{name}={value}");
    format!("-s -w{}{}{}", set("gitVersion", VERSION), set("gitMajor", "1"), set("gitMinor", "36"))
}

/// Changes whenever the pins or the way of building change.
pub(super) fn recipe_digest(module: &Utf8Path) -> anyhow::Result<String> {
    let mut digest = Digest::new(&SHA256);
    for file in ["go.mod", "go.sum"] {
        let content = fs::read(module.join(file)).with_context(|| module.join(file).to_string())?;
        digest.update(&(content.len() as u64).to_be_bytes());
        digest.update(&content);
    }
    digest.update(linker_flags().as_bytes());
    for (package, name, _) in TOOLS {
        digest.update(format!("{package}={name};").as_bytes());
    }
    Ok(hex::encode(digest.finish()))
}

/// Builds every tool into `target` with the Go toolchain `go`.
pub(super) fn all(module: &Utf8Path, target: &Utf8Path, go: &Utf8Path) -> anyhow::Result<()> {
    eprintln!("building the Kubernetes components once for this version (about five minutes on two cores)");
    for (package, name, seconds) in TOOLS {
        let started = Instant::now();
        eprintln!("  building {name} (about {seconds} s from nothing)");
        let status = Command::new(go)
            .current_dir(module)
            .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", &linker_flags(), "-o"])
            .arg(target.join(name))
            .arg(package)
            .env("CGO_ENABLED", "0")
            .env("GOOS", "linux")
            // The toolchain that was found and no other: fetching one would surprise.
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off")
            // Compilers that collect less garbage take two thirds of the time, and more memory.
            .env("GOGC", "400")
            .status()
            .with_context(|| format!("{go} does not run"))?;
        ensure!(status.success(), "go build of {package} failed: {status}");
        eprintln!("  {name}: {:.0} s", started.elapsed().as_secs_f32());
    }
    Ok(())
}
