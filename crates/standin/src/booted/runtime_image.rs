//! Extracts programs and manifests from the runtime image, which is in an images archive, to a folder of the data directory.
//!
//! A marker with the image's name is written last; without it, the next start extracts again. Only files of `bin` and `charts` are
//! extracted.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;

use super::images::{self, open_archive};
use crate::paths::{self, HostPaths};
use crate::runtime;
use crate::version::{RUNTIME_IMAGE, RUNTIME_PROGRAMS};

const MANIFEST: &str = "manifest.json";
/// Limit of the archive's manifest, which lists about a dozen images with short names.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Limit of one extracted file. The largest program, all of Kubernetes in one file, has 180 MB.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// One image of an archive, in the format of `docker save`.
#[derive(Debug, Deserialize)]
struct Image {
    #[serde(rename = "RepoTags", default)]
    tags: Vec<String>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// Installs the programs of a booted node and returns their folder.
pub(super) fn install(host: &HostPaths) -> anyhow::Result<Utf8PathBuf> {
    runtime::install_with(host, |target| {
        for archive in images::archives(host)? {
            if extract(&archive, target).with_context(|| archive.to_string())? {
                return Ok(());
            }
        }
        anyhow::bail!(
            "no archive in {} contains it and the stand-in does not pull; a release for sandbox nodes only has no images",
            host.data(images::FOLDER)
        )
    })
}

/// Extracts the runtime image to `target`. Returns whether `archive` contains it.
fn extract(archive: &Utf8Path, target: &Utf8Path) -> anyhow::Result<bool> {
    let mut tar = tar::Archive::new(open_archive(archive)?);
    let mut wanted: Option<Vec<String>> = None;
    for entry in tar.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        match &mut wanted {
            None if name == MANIFEST => {
                let mut text = String::new();
                entry.take(MANIFEST_BYTES_MAX).read_to_string(&mut text)?;
                let images: Vec<Image> = serde_json::from_str(&text).context(MANIFEST)?;
                let runtime = images.into_iter().find(|image| image.tags.iter().any(|tag| tag == RUNTIME_IMAGE));
                let Some(runtime) = runtime else { return Ok(false) };
                wanted = Some(runtime.layers);
            }
            None => {}
            Some(layers) => {
                if let Some(at) = layers.iter().position(|layer| *layer == name) {
                    take_files(&mut entry, target)?;
                    layers.remove(at);
                }
                // The rest of the archive belongs to other images.
                if layers.is_empty() {
                    return Ok(true);
                }
            }
        }
    }
    match wanted {
        None => Ok(false),
        Some(missing) => anyhow::bail!("the archive is missing layers of {RUNTIME_IMAGE}: {}", missing.join(", ")),
    }
}

/// Extracts the programs and manifests of one layer.
fn take_files(layer: &mut impl Read, target: &Utf8Path) -> anyhow::Result<()> {
    // Paths of extracted files by name in the image, for hard links to them.
    let mut placed: HashMap<String, Utf8PathBuf> = HashMap::new();
    for entry in tar::Archive::new(layer).entries()? {
        let entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let Some(path) = place(&name).map(|place| target.join(place)) else { continue };
        match entry.header().entry_type() {
            tar::EntryType::Regular => {
                let mode = entry.header().mode()? & 0o755;
                let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
                let size = entry.size();
                anyhow::ensure!(size <= FILE_BYTES_MAX, "{name} is too large: {size} bytes");
                std::io::copy(&mut entry.take(FILE_BYTES_MAX), &mut file)?;
                placed.insert(name, path);
            }
            tar::EntryType::Link => {
                let of = entry.link_name()?.map(|of| of.to_string_lossy().into_owned()).unwrap_or_default();
                let of =
                    placed.get(&of).with_context(|| format!("{name} is a hard link to {of}, which does not exist"))?;
                fs::hard_link(of, &path)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the path below the target for a file of the image; none for a file that is not extracted.
fn place(name: &str) -> Option<Utf8PathBuf> {
    let (folder, file) = name.split_once('/')?;
    let wanted = match folder {
        "bin" => RUNTIME_PROGRAMS.contains(&file),
        "charts" => !file.contains('/') && file.ends_with(".yaml"),
        _ => false,
    };
    wanted.then(|| Utf8Path::new(folder).join(file))
}

/// Reads the release's manifests from the `charts` folder next to `bin`: name without `.yaml`, and text. Sorted by name.
pub(super) fn charts(bin: &Utf8Path) -> anyhow::Result<Vec<(String, String)>> {
    let folder = bin.parent().map(|release| release.join("charts")).context("the folder of programs has no parent")?;
    let mut charts = Vec::new();
    for entry in folder.read_dir_utf8().with_context(|| folder.to_string())? {
        let entry = entry?;
        if let Some(name) = entry.file_name().strip_suffix(".yaml") {
            charts.push((name.to_owned(), paths::read_optional(entry.path())?.unwrap_or_default()));
        }
    }
    charts.sort();
    Ok(charts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar(entries: &[(&str, &[u8], Option<&str>)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, content, link) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            header.set_size(content.len() as u64);
            match link {
                None => tar.append_data(&mut header, name, *content).unwrap(),
                Some(of) => {
                    header.set_entry_type(tar::EntryType::Link);
                    tar.append_link(&mut header, name, of).unwrap();
                }
            }
        }
        tar.into_inner().unwrap()
    }

    /// Extracts an archive with these entries after its manifest.
    fn extracted(dir: &Utf8Path, tag: &str, entries: &[(&str, &[u8], Option<&str>)]) -> anyhow::Result<bool> {
        let (archive, target) = (dir.join("images.tar"), dir.join("target"));
        for part in ["bin", "charts"] {
            fs::create_dir_all(target.join(part)).unwrap();
        }
        let manifest = format!(
            r#"[{{"Config":"c","RepoTags":["x/y:1"],"Layers":["other.tar"]}},{{"RepoTags":["{tag}"],"Layers":["one.tar","two.tar"]}}]"#
        );
        let all = [&[("manifest.json", manifest.as_bytes(), None)][..], entries].concat();
        fs::write(&archive, tar(&all)).unwrap();
        extract(&archive, &target)
    }

    #[test]
    fn only_layers_of_the_runtime_image_are_extracted() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let one = tar(&[("bin/kubelet", b"k", None), ("bin/kubectl", b"", Some("bin/kubelet"))]);
        let two = tar(&[("bin/runc", b"r", None), ("charts/a.yaml", b"a", None), ("bin/other", b"o", None)]);
        let other = tar(&[("bin/containerd", b"not this one's", None)]);
        let entries = [
            ("other.tar", other.as_slice(), None),
            ("one.tar", one.as_slice(), None),
            ("two.tar", two.as_slice(), None),
        ];
        assert!(extracted(dir, RUNTIME_IMAGE, &entries).unwrap());
        let read = |name: &str| fs::read_to_string(dir.join("target").join(name)).ok();
        assert_eq!(read("bin/kubectl").as_deref(), Some("k"));
        assert_eq!(read("bin/runc").as_deref(), Some("r"));
        assert_eq!(read("charts/a.yaml").as_deref(), Some("a"));
        assert_eq!((read("bin/other"), read("bin/containerd")), (None, None));
    }

    #[test]
    fn missing_image_is_skipped_and_a_missing_layer_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let one = tar(&[("bin/runc", b"r", None)]);
        assert!(!extracted(dir, "x/z:1", &[("one.tar", one.as_slice(), None)]).unwrap());
        let half = extracted(dir, RUNTIME_IMAGE, &[("one.tar", one.as_slice(), None)]).unwrap_err();
        assert!(half.to_string().contains("two.tar"), "{half}");
    }

    #[test]
    fn only_programs_and_charts_are_extracted() {
        assert_eq!(place("bin/kubelet").unwrap(), "bin/kubelet");
        assert_eq!(place("charts/rke2-canal.yaml").unwrap(), "charts/rke2-canal.yaml");
        for name in
            ["bin/kube-apiserver", "bin/../etc/passwd", "charts/../x.yaml", "charts/a/b.yaml", "etc/passwd", "kubelet"]
        {
            assert_eq!(place(name), None, "{name}");
        }
    }
}
