//! Builds the pinned Go modules' programs.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use aws_lc_rs::digest::{Context as Digest, SHA256};
use camino::{Utf8Path, Utf8PathBuf};

use super::{Part, VERSION, debian};

/// A program and its source.
struct Tool {
    /// Folder of the module, relative to the checkout's root.
    module: &'static str,
    package: &'static str,
    program: &'static str,
    /// Build time from scratch on two cores, in seconds, after the tools above it were built.
    seconds: u32,
    linking: Linking,
}

/// Linker options in addition to omitting debug information.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linking {
    Plain,
    /// Sets the release as the version that the program reports.
    Versioned,
    /// Links C code statically, so that the program runs on nodes of any age.
    StaticC,
}

const fn tool(
    module: &'static str,
    package: &'static str,
    program: &'static str,
    seconds: u32,
    linking: Linking,
) -> Tool {
    Tool { module, package, program, seconds, linking }
}

const KUBERNETES: &str = "components";
const NODE: &str = "components/node";

const CONTROL_PLANE: &[Tool] = &[
    tool(KUBERNETES, "go.etcd.io/etcd/server/v3", "etcd", 42, Linking::Versioned),
    tool(KUBERNETES, "go.etcd.io/etcd/etcdctl/v3", "etcdctl", 2, Linking::Versioned),
    tool(KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver", 166, Linking::Versioned),
    tool(KUBERNETES, "k8s.io/kubernetes/cmd/kubectl", "kubectl", 19, Linking::Versioned),
    tool(
        KUBERNETES,
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-controller-manager",
        50,
        Linking::Versioned,
    ),
    tool(KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler", 5, Linking::Versioned),
];

const BOOTED: &[Tool] = &[
    tool(KUBERNETES, "./kubernetes", "kubernetes", 60, Linking::Versioned),
    tool(NODE, "./containerd", "containerd", 40, Linking::Versioned),
    tool(
        NODE,
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "containerd-shim-runc-v2",
        3,
        Linking::Versioned,
    ),
    tool(NODE, "github.com/containernetworking/plugins/plugins/main/bridge", "bridge", 3, Linking::Plain),
    tool(NODE, "github.com/containernetworking/plugins/plugins/main/loopback", "loopback", 1, Linking::Plain),
    tool(NODE, "github.com/containernetworking/plugins/plugins/ipam/host-local", "host-local", 1, Linking::Plain),
    tool(NODE, "github.com/containernetworking/plugins/plugins/meta/portmap", "portmap", 1, Linking::Plain),
    tool(NODE, "./flannel", "flanneld", 30, Linking::Plain),
    tool(NODE, "./coredns", "coredns", 15, Linking::Plain),
    tool(NODE, "github.com/opencontainers/runc", "runc", 15, Linking::StaticC),
];

/// Compiler flags for every package: no debug information, which the linker would drop anyway. Saves a twelfth of the time.
const COMPILER_FLAGS: &str = "-gcflags=all=-dwarf=false";

/// Source of the pause program within the Kubernetes module, and its image tag for this version.
const PAUSE: (&str, &str) = ("build/pause/linux/pause.c", "3.10.2");

impl Part {
    const fn tools(self) -> &'static [Tool] {
        match self {
            Self::ControlPlane => CONTROL_PLANE,
            Self::Node => BOOTED,
        }
    }
}

fn linker_flags(linking: Linking) -> String {
    let set = |name: &str, value: &str| format!(" -X {name}={value}");
    let kubernetes = |name: &str, value: &str| set(&format!("k8s.io/component-base/version.{name}"), value);
    match linking {
        Linking::Plain => "-s -w".to_owned(),
        Linking::StaticC => "-s -w -extldflags -static".to_owned(),
        // A program uses the values for those packages that it contains; the others have no effect.
        Linking::Versioned => format!(
            "-s -w{}{}{}{}",
            kubernetes("gitVersion", VERSION),
            kubernetes("gitMajor", "1"),
            kubernetes("gitMinor", "36"),
            set("github.com/containerd/containerd/v2/version.Version", "2.2.3-stand-in")
        ),
    }
}

/// Digest of the pins and the build recipe.
pub(super) fn recipe_digest(root: &Utf8Path, part: Part) -> anyhow::Result<String> {
    let mut digest = Digest::new(&SHA256);
    let mut files = vec!["components/go.mod", "components/go.sum"];
    if part == Part::Node {
        files.extend([
            "components/kubernetes/main.go",
            "components/node/go.mod",
            "components/node/go.sum",
            "components/node/containerd/main.go",
            "components/node/coredns/main.go",
            "components/node/flannel/main.go",
        ]);
    }
    for file in files {
        let content = fs::read(root.join(file)).with_context(|| root.join(file).to_string())?;
        digest.update(&(content.len() as u64).to_be_bytes());
        digest.update(&content);
    }
    digest.update(COMPILER_FLAGS.as_bytes());
    for tool in part.tools() {
        digest.update(format!("{}={} {};", tool.package, tool.program, linker_flags(tool.linking)).as_bytes());
    }
    Ok(hex::encode(digest.finish()))
}

/// Builds every program of `part` into `target` with the Go toolchain `go`.
pub(super) fn all(root: &Utf8Path, part: Part, target: &Utf8Path, go: &Utf8Path) -> anyhow::Result<()> {
    let total: u32 = part.tools().iter().map(|tool| tool.seconds).sum();
    eprintln!("building {} once for this version (about {total} s on two cores)", part.what());
    let packages = match part {
        Part::ControlPlane => None,
        Part::Node => Some(debian::Packages::unpack(&["busybox-static", "libseccomp-dev"])?),
    };
    for tool in part.tools() {
        let started = Instant::now();
        eprintln!("  building {} (about {} s from scratch)", tool.program, tool.seconds);
        let mut command = Command::new(go);
        command
            .current_dir(root.join(tool.module))
            .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", COMPILER_FLAGS])
            .args(["-ldflags", &linker_flags(tool.linking)])
            .env("GOOS", "linux")
            // Use the toolchain that was found, and never download another.
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off")
            // Less garbage collection makes compilers faster, at the cost of memory.
            .env("GOGC", "400");
        match (tool.linking, &packages) {
            (Linking::StaticC, Some(packages)) => {
                // Name resolution and user lookup in Go: the C library's cannot be linked statically.
                command.args(["-tags", "seccomp netgo osusergo"]).env("CGO_ENABLED", "1");
                command.env("PKG_CONFIG", packages.pkg_config("libseccomp", "seccomp")?);
            }
            _ => {
                command.env("CGO_ENABLED", "0");
            }
        }
        let status = command.arg("-o").arg(target.join(tool.program)).arg(tool.package).status();
        let status = status.with_context(|| format!("{go} does not run"))?;
        ensure!(status.success(), "go build of {} failed: {status}", tool.package);
        let size = fs::metadata(target.join(tool.program))?.len();
        eprintln!("  {}: {:.0} s, {} MB", tool.program, started.elapsed().as_secs_f32(), size / 1_000_000);
    }
    if let Some(packages) = packages {
        fs::copy(packages.program("busybox")?, target.join("busybox"))?;
        pause(root, target, go)?;
    }
    Ok(())
}

/// Compiles the pause program, which keeps a pod's namespaces: the only program of a node that is written entirely in C.
fn pause(root: &Utf8Path, target: &Utf8Path, go: &Utf8Path) -> anyhow::Result<()> {
    let mut list = Command::new(go);
    list.current_dir(root.join(KUBERNETES)).env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    let folder = crate::shell::capture(list.args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]))?;
    let source = Utf8PathBuf::from(folder.trim()).join(PAUSE.0);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-Os", "-Wall", "-static", "-s", &format!("-DVERSION={}", PAUSE.1), "-o"])
        .arg(target.join("pause"))
        .arg(source)
        .status()
        .with_context(|| format!("{compiler} does not run"))?;
    ensure!(status.success(), "pause could not be compiled: {status}");
    Ok(())
}
