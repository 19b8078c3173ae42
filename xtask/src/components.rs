//! The genuine Kubernetes components that the stand-in runs, built once per version into a per-user cache.
//!
//! Guarantees: [`ensure()`] returns a folder whose programs match the digests of its manifest, verified at every call. A build gets its final
//! name only when it is complete, so a crash leaves nothing that looks complete. Of two concurrent builds, the second waits and uses the
//! first one's result.
//!
//! There are two parts, built separately: sandbox nodes need only the control plane; the rest is for booted nodes.
//!
//! Deliberately absent: knowledge of what the programs do. The versions are pinned in `components/go.mod`, `components/node/go.mod` and
//! their checksum files.

mod build;
mod debian;
mod download;
mod go;
mod part;

use std::fs;

use anyhow::{Context as _, bail, ensure};
use aws_lc_rs::digest::{Context as Digest, SHA256};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

pub(crate) use download::fetch;
pub(crate) use part::Part;

/// Release version that the components report.
pub(crate) const VERSION: &str = "v1.36.3+rke2r1";
/// Names a folder whose programs are used instead of building any.
pub(crate) const DIR_VARIABLE: &str = "GPUAAS_COMPONENTS";
const MANIFEST: &str = "manifest.json";
/// Subfolder of a given components folder with the programs of booted nodes.
const NODE_FOLDER: &str = "node";

/// Options of [`ensure()`].
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ComponentsOptions {
    /// Fetch the official release binaries instead of building them.
    #[arg(long)]
    pub(crate) download: bool,
    /// Use the programs in this folder as they are; those of booted nodes are in its subfolder `node`.
    #[arg(long, env = DIR_VARIABLE)]
    pub(crate) dir: Option<Utf8PathBuf>,
}

/// Options of `cargo xtask components`.
#[derive(clap::Args)]
pub(crate) struct ComponentsChore {
    #[command(flatten)]
    options: ComponentsOptions,
    /// Build the programs of booted nodes instead: kubelet, kube-proxy, containerd, runc, CNI plugins, flannel, CoreDNS.
    #[arg(long)]
    node: bool,
}

/// One verified program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ComponentFile {
    /// File name.
    pub(crate) name: String,
    /// SHA-256 in hex.
    pub(crate) sha256: String,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// A folder of verified programs.
#[derive(Clone, Debug)]
pub(crate) struct ComponentsDir {
    /// Absolute path.
    pub(crate) dir: Utf8PathBuf,
    /// The programs, sorted by name.
    pub(crate) files: Vec<ComponentFile>,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    version: String,
    files: Vec<ComponentFile>,
}

impl ComponentsDir {
    /// Path of the program `name`.
    pub(crate) fn program(&self, name: &str) -> Utf8PathBuf {
        self.dir.join(name)
    }
}

/// Runs `cargo xtask components`: prints the folder on standard output.
pub(crate) fn run(chore: &ComponentsChore) -> anyhow::Result<()> {
    let part = if chore.node { Part::Node } else { Part::ControlPlane };
    println!("{}", ensure(&chore.options, part)?.dir);
    Ok(())
}

/// Provides the programs of `part`: from the given folder, else from the cache, else by building them now (minutes on two cores) or, for
/// the control plane, by downloading them.
pub(crate) fn ensure(options: &ComponentsOptions, part: Part) -> anyhow::Result<ComponentsDir> {
    let given = options
        .dir
        .clone()
        .or_else(|| std::env::var(DIR_VARIABLE).ok().filter(|d| !d.is_empty()).map(Utf8PathBuf::from));
    match (given, part) {
        (Some(dir), Part::ControlPlane) => return take_as_is(&dir, part),
        (Some(dir), Part::Node) if dir.join(NODE_FOLDER).is_dir() => return take_as_is(&dir.join(NODE_FOLDER), part),
        _ => {}
    }
    let download = options.download && part == Part::ControlPlane;
    let kind = if download { "official" } else { "built" };
    let parent = cache_dir()?.join("components");
    fs::create_dir_all(&parent).with_context(|| parent.to_string())?;
    let dir = parent.join(part.folder(&build::recipe_digest(root()?, part)?[..16], kind));
    // Held until the end, so that the second of two builds finds the first one's result.
    let lock = fs::File::create(parent.join("lock"))?;
    lock.lock()?;
    match verified(&dir, part) {
        Ok(found) => return Ok(found),
        Err(error) if dir.exists() => {
            eprintln!("components in {dir} do not match their manifest: {error:#}; building them again");
            fs::remove_dir_all(&dir)?;
        }
        Err(_) => {}
    }
    let staging = tempfile::Builder::new().prefix(".building-").tempdir_in(&parent)?;
    let target = Utf8Path::from_path(staging.path()).context("the cache's path is not UTF-8")?;
    if download {
        download::all(target)?;
    } else {
        build::all(root()?, part, target, &go::find(&cache_dir()?)?)?;
    }
    let files = describe(target, part)?;
    fs::write(target.join(MANIFEST), serde_json::to_vec_pretty(&Manifest { version: VERSION.to_owned(), files })?)?;
    let path = staging.keep();
    fs::rename(&path, &dir)?;
    verified(&dir, part)
}

/// The root of this checkout.
pub(crate) fn root() -> anyhow::Result<&'static Utf8Path> {
    Utf8Path::from_path(crate::shell::root()).context("the checkout's path is not UTF-8")
}

/// `$XDG_CACHE_HOME/gpuaas` or `~/.cache/gpuaas`.
fn cache_dir() -> anyhow::Result<Utf8PathBuf> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()).map(Utf8PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("gpuaas"))
}

fn verified(dir: &Utf8Path, part: Part) -> anyhow::Result<ComponentsDir> {
    let manifest: Manifest = serde_json::from_slice(&fs::read(dir.join(MANIFEST))?).context(MANIFEST)?;
    ensure!(manifest.version == VERSION, "the manifest has version {}", manifest.version);
    let found = describe(dir, part)?;
    ensure!(found == manifest.files, "a program's digest differs from the manifest's");
    Ok(ComponentsDir { dir: dir.to_owned(), files: found })
}

fn take_as_is(dir: &Utf8Path, part: Part) -> anyhow::Result<ComponentsDir> {
    let dir = dir.canonicalize_utf8().with_context(|| format!("components folder {dir}"))?;
    let files = describe(&dir, part)?;
    let checked: &[&str] = if part == Part::ControlPlane { part.required() } else { &[] };
    for name in checked {
        let arguments: &[&str] = if *name == "kubectl" { &["version", "--client"] } else { &["--version"] };
        let output = std::process::Command::new(dir.join(name)).args(arguments).output();
        let runs = output.with_context(|| format!("{name} in {dir} does not run"))?;
        ensure!(runs.status.success(), "{name} in {dir} does not run: {}", runs.status);
    }
    Ok(ComponentsDir { dir, files })
}

/// Names, sizes and digests of the programs in `dir`; fails if a required one is missing.
fn describe(dir: &Utf8Path, part: Part) -> anyhow::Result<Vec<ComponentFile>> {
    let mut files = Vec::new();
    for name in part.required().iter().chain(part.optional()).copied() {
        let path = dir.join(name);
        if path.is_file() {
            let (sha256, size) = digest_of(&path)?;
            files.push(ComponentFile { name: name.to_owned(), sha256, size });
        } else if part.required().contains(&name) {
            bail!("{dir} does not contain {name}");
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// SHA-256 in hex and length of a file.
pub(crate) fn digest_of(path: &Utf8Path) -> anyhow::Result<(String, u64)> {
    let mut file = fs::File::open(path).with_context(|| path.to_string())?;
    let (mut digest, mut size, mut buffer) = (Digest::new(&SHA256), 0, vec![0; 1 << 20]);
    loop {
        let read = std::io::Read::read(&mut file, &mut buffer)?;
        if read == 0 {
            return Ok((hex::encode(digest.finish()), size));
        }
        digest.update(&buffer[..read]);
        size += read as u64;
    }
}
