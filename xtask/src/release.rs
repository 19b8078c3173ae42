//! Packages the stand-in as a directory with the layout of an RKE2 release and a marker that identifies it.
//!
//! Guarantees: the same inputs give the same bytes (no times, owners or file orders of this machine); a release appears completely or not
//! at all; nothing is rebuilt while the input digests in the marker match.
//!
//! The images archive always lists the genuine components by digest and path, which is all that sandbox nodes need. A release for booted
//! nodes contains the images too.
//!
//! Each release is signed with a new key that is not stored. The release contains the public key, which the demo's control plane trusts.

mod images;
mod layer;

pub(crate) mod official;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::Context as _;
use aws_lc_rs::digest::{SHA256, digest};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;

use crate::components::{self, ComponentsDir, Part, VERSION, digest_of};
use crate::shell;

/// File that marks a release directory as a stand-in's; importers read it.
pub(crate) const MARKER: &str = "STAND-IN";
const TARBALL: &str = "rke2.linux-amd64.tar.gz";
const IMAGES: &str = "rke2-images.linux-amd64.tar.zst";
const IMAGES_LIST: &str = "rke2-images-all.linux-amd64.txt";
/// List of digests by which a release is verified.
pub(crate) const SUMS: &str = "sha256sum-amd64.txt";
const SIGNATURE: &str = "sha256sum-amd64.txt.minisig";
/// Public key of the signature in minisign's format: a comment, then the key.
const PUBLIC_KEY: &str = "stand-in.pub";
/// Version of the layout; increase it when the layout changes.
const LAYOUT: u32 = 2;

/// Options of [`build`].
#[derive(Clone, Debug)]
pub(crate) struct ReleaseOptions {
    /// The genuine components that the release lists.
    pub(crate) components: ComponentsDir,
    /// Programs of booted nodes; without them the release is small and only sandbox nodes can run it.
    pub(crate) node: Option<ComponentsDir>,
    /// A built `rke2`; if None, it is built with `profile`.
    pub(crate) rke2: Option<Utf8PathBuf>,
    /// Cargo profile, `dev` by default.
    pub(crate) profile: String,
    /// The release's directory; if None, `target/release-stand-in/<version>`, with the suffix `-sandboxes` for a small one.
    pub(crate) out: Option<Utf8PathBuf>,
}

/// Options of `cargo xtask release`.
#[derive(clap::Args)]
pub(crate) struct ReleaseChore {
    #[command(flatten)]
    components: components::ComponentsOptions,
    /// Package this built `rke2` instead of building one.
    #[arg(long)]
    rke2: Option<Utf8PathBuf>,
    /// Cargo profile to build it with.
    #[arg(long, default_value = "dev")]
    profile: String,
    /// Output directory of the release.
    #[arg(long)]
    out: Option<Utf8PathBuf>,
    /// Leave out the images: small and fast to build, but only for sandbox nodes on this machine.
    #[arg(long)]
    sandboxes_only: bool,
}

/// Runs `cargo xtask release`: prints the release's directory on standard output.
pub(crate) fn run(chore: &ReleaseChore) -> anyhow::Result<()> {
    let components = components::ensure(&chore.components, Part::ControlPlane)?;
    let node = (!chore.sandboxes_only).then(|| components::ensure(&chore.components, Part::Node));
    let (rke2, profile, out) = (chore.rke2.clone(), chore.profile.clone(), chore.out.clone());
    println!("{}", build(&ReleaseOptions { components, node: node.transpose()?, rke2, profile, out })?);
    Ok(())
}

/// Packages the release and returns its directory.
pub(crate) fn build(options: &ReleaseOptions) -> anyhow::Result<Utf8PathBuf> {
    let root = components::root()?;
    let program = match &options.rke2 {
        Some(path) => path.clone(),
        None => Utf8PathBuf::from_path_buf(shell::build_stand_in(&options.profile)?)
            .ok()
            .context("the path is not UTF-8")?,
    };
    let name = if options.node.is_some() { VERSION.to_owned() } else { format!("{VERSION}-sandboxes") };
    let out = options.out.clone().unwrap_or_else(|| target_dir(root).join("release-stand-in").join(name));
    let package = root.join("crates/standin/package");
    let images = images_inputs(&package, options)?;
    let marker = marker(&program, &package, &images)?;
    let complete =
        [TARBALL, IMAGES, IMAGES_LIST, SUMS, SIGNATURE, PUBLIC_KEY].iter().all(|name| out.join(name).is_file());
    let before = fs::read_to_string(out.join(MARKER)).unwrap_or_default();
    if complete && before == marker {
        return Ok(out);
    }
    let parent = out.parent().context("the output directory has no parent")?;
    fs::create_dir_all(parent)?;
    let staging = tempfile::Builder::new().prefix(".release-").tempdir_in(parent)?;
    let dir = Utf8Path::from_path(staging.path()).context("the path is not UTF-8")?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    fs::write(dir.join(TARBALL), tarball(&program, &package)?)?;
    // Half a gigabyte of images is packed only when they change, not with every build of the program.
    let packed = complete && before.contains(&images) && fs::hard_link(out.join(IMAGES), dir.join(IMAGES)).is_ok();
    if !packed {
        pack_images(options, &package, &dir.join(IMAGES))?;
    }
    fs::write(dir.join(IMAGES_LIST), images::list())?;
    fs::write(dir.join(MARKER), &marker)?;
    fs::write(dir.join(SUMS), sums(dir)?)?;
    sign(dir)?;
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::rename(staging.keep(), &out)?;
    Ok(out)
}

fn pack_images(options: &ReleaseOptions, package: &Utf8Path, target: &Utf8Path) -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    let scratch = tempfile::tempdir()?;
    let scratch = Utf8Path::from_path(scratch.path()).context("the path is not UTF-8")?;
    let (control_plane, node, charts) = (&options.components, options.node.as_ref(), &package.join("charts"));
    images::write(&images::Sources { control_plane, node, charts }, target, scratch)?;
    if node.is_some() {
        let size = fs::metadata(target)?.len() / 1_000_000;
        eprintln!("    packed {IMAGES}: {size} MB, {:.1} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Digest of the inputs of the images archive.
fn images_inputs(package: &Utf8Path, options: &ReleaseOptions) -> anyhow::Result<String> {
    let mut inputs = format!("layout {LAYOUT}\ncomponents {}\n", options.components.dir);
    let node = options.node.iter().flat_map(|node| &node.files);
    for file in options.components.files.iter().chain(node) {
        inputs.push_str(&format!("{} {}\n", file.name, file.sha256));
    }
    if options.node.is_some() {
        for (name, path, _) in files_in(package, "charts", 0o644)? {
            inputs.push_str(&format!("{name} {}\n", digest_of(&path)?.0));
        }
    }
    Ok(format!("sha256:{}", hex::encode(digest(&SHA256, inputs.as_bytes()))))
}

fn target_dir(root: &Utf8Path) -> Utf8PathBuf {
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), |dir| root.join(dir))
}

/// Describes the release and its inputs; the same inputs give the same marker.
fn marker(program: &Utf8Path, package: &Utf8Path, images: &str) -> anyhow::Result<String> {
    let mut inputs = format!("layout {LAYOUT}\nrke2 {}\nimages {images}\n", digest_of(program)?.0);
    for (name, path, mode) in package_files(package)? {
        inputs.push_str(&format!("{name} {mode:o} {}\n", digest_of(&path)?.0));
    }
    let marker = json!({
        "stand_in": true,
        "for": "rke2",
        "version": VERSION,
        "inputs": format!("sha256:{}", hex::encode(digest(&SHA256, inputs.as_bytes()))),
        "images": images,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&marker)?))
}

/// Every file of the release except the program: name in the release, path here, and mode; sorted.
fn package_files(package: &Utf8Path) -> anyhow::Result<Vec<(String, Utf8PathBuf, u32)>> {
    let mut files = Vec::new();
    for (folder, mode) in [("bin", 0o755), ("lib/systemd/system", 0o644), ("share/rke2", 0o644)] {
        files.extend(files_in(package, folder, mode)?);
    }
    files.sort();
    Ok(files)
}

fn files_in(package: &Utf8Path, folder: &str, mode: u32) -> anyhow::Result<Vec<(String, Utf8PathBuf, u32)>> {
    let mut files = Vec::new();
    for entry in package.join(folder).read_dir_utf8().with_context(|| package.join(folder).to_string())? {
        let entry = entry?;
        files.push((format!("{folder}/{}", entry.file_name()), entry.path().to_owned(), mode));
    }
    files.sort();
    Ok(files)
}

fn tarball(program: &Utf8Path, package: &Utf8Path) -> anyhow::Result<Vec<u8>> {
    let mut files = package_files(package)?;
    files.push(("bin/rke2".to_owned(), program.to_owned(), 0o755));
    files.sort();
    // Fast compression: the tarball is repacked with every build of the stand-in.
    let gzip = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for (name, path, mode) in files {
        let content = fs::read(&path)?;
        tar.append_data(&mut layer::header(mode, content.len() as u64), &name, content.as_slice())?;
    }
    Ok(tar.into_inner()?.finish()?)
}

fn sums(dir: &Utf8Path) -> anyhow::Result<String> {
    let mut lines = String::new();
    for name in [MARKER, IMAGES_LIST, IMAGES, TARBALL] {
        lines.push_str(&format!("{}  {name}\n", digest_of(&dir.join(name))?.0));
    }
    Ok(lines)
}

/// Signs the list with a new key.
fn sign(dir: &Utf8Path) -> anyhow::Result<()> {
    let pair = minisign::KeyPair::generate_unencrypted_keypair().context("generating a key")?;
    let comment = format!("file:{SUMS}");
    let signed = minisign::sign(None, &pair.sk, fs::File::open(dir.join(SUMS))?, Some(&comment), Some("stand-in"));
    fs::write(dir.join(SIGNATURE), signed.context("signing the list")?.into_string())?;
    Ok(fs::write(dir.join(PUBLIC_KEY), pair.pk.to_box().context("writing the key")?.into_string())?)
}

/// Public key of a stand-in release, in the format of a control plane's settings.
pub(crate) fn public_key(release: &Utf8Path) -> anyhow::Result<String> {
    let path = release.join(PUBLIC_KEY);
    let text = fs::read_to_string(&path).with_context(|| path.to_string())?;
    Ok(text.lines().nth(1).with_context(|| format!("{path} contains no key"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_signed_with_the_stored_public_key() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        fs::write(dir.join(SUMS), "sums").unwrap();
        sign(dir).unwrap();
        let key = minisign::PublicKey::from_base64(&public_key(dir).unwrap()).unwrap();
        let signature = fs::read_to_string(dir.join(SIGNATURE)).unwrap();
        let signature = minisign::SignatureBox::from_string(&signature).unwrap();
        let holds = |list: &'static str| {
            minisign::verify(&key, &signature, std::io::Cursor::new(list), true, false, false).is_ok()
        };
        assert!(holds("sums") && !holds("other"));
    }

    fn package(mtime: std::time::SystemTime) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap();
        for file in ["bin/b.sh", "bin/a.sh", "lib/systemd/system/u.service", "share/rke2/L.txt", "rke2"] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), file).unwrap();
            fs::File::options().append(true).open(root.join(file)).unwrap().set_modified(mtime).unwrap();
        }
        let bytes = tarball(&root.join("rke2"), root).unwrap();
        (dir, bytes)
    }

    #[test]
    fn tarball_does_not_depend_on_modification_times() {
        let day = std::time::Duration::from_secs(86_400);
        let (_one, first) = package(std::time::SystemTime::UNIX_EPOCH + day);
        let (_two, second) = package(std::time::SystemTime::UNIX_EPOCH + 2 * day);
        assert_eq!(first, second);
        let names: Vec<String> = tar::Archive::new(flate2::read::GzDecoder::new(first.as_slice()))
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["bin/a.sh", "bin/b.sh", "bin/rke2", "lib/systemd/system/u.service", "share/rke2/L.txt"]);
    }
}
