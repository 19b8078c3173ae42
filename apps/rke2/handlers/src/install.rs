//! `rke2.install`: installs the files of a verified release as its own install script would. No script of the release is run.
//!
//! Guarantees: the installed bytes have the digests that the task names, checked where no other process can change them. The archive, about
//! 50 MB, is read from one descriptor into memory, checked there and unpacked from there. Of each image archive, about a gigabyte, an
//! unnamed copy is checked and then put in place ([`gpuaas_host::Files::copy_verified`]).

use std::io::{ErrorKind, Read};

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use gpuaas_app_rke2_tasks::{Rke2Install, Rke2Installed};
use gpuaas_handler::{
    Context, host_failed,
    staging::{content_id, refetch, staged},
};
use gpuaas_host::{Changed, Command, FileSpec, HostError};
use gpuaas_model::Code;
use gpuaas_wire::task::{ArtifactRef, TaskFailure};

/// Folder into which the archive is unpacked: the tar method's default prefix.
pub(crate) const PREFIX: &str = "/usr/local";
/// Folder of the image archives.
pub(crate) const IMAGES: &str = "/var/lib/rancher/rke2/agent/images";
/// Largest archive that is unpacked, in bytes, compressed and uncompressed: RKE2's own is about 50 MB.
const ARCHIVE_BYTES_MAX: u64 = 512 * 1_024 * 1_024;
/// Most entries of an archive: RKE2's own has nine.
const ENTRIES_MAX: usize = 100;

/// Installs the release.
pub(crate) async fn run(task: Rke2Install, context: Context) -> Result<Rke2Installed, TaskFailure> {
    context.report_progress(format!("installing {}", task.version));
    let files = unpack(&archive(&task.archive, &context).await?)?;
    let mut files_written = 0;
    for file in &files {
        files_written += u32::from(context.host.files().write(file).await.map_err(host_failed)? == Changed::Yes);
    }
    context.host.files().make_folder(Utf8Path::new(IMAGES), 0o755).await.map_err(host_failed)?;
    for artifact in &task.images {
        files_written += u32::from(image(artifact, &context).await? == Changed::Yes);
    }
    context.host.units().daemon_reload().await.map_err(host_failed)?;
    let version_line = version_line(&context).await?;
    if !version_line.contains(&task.version) {
        let message = format!("the archive of {} contains {version_line}", task.version);
        return Err(TaskFailure::new(Code::ArtifactDigestMismatch, message));
    }
    Ok(Rke2Installed { version_line, files_written })
}

/// Reads and verifies the archive; fetches it again if the staged one is missing or different.
async fn archive(artifact: &ArtifactRef, context: &Context) -> Result<Vec<u8>, TaskFailure> {
    let (path, id) = (staged(artifact)?, content_id(artifact)?);
    if id.size_bytes > ARCHIVE_BYTES_MAX {
        let message =
            format!("{} has {} bytes, more than the maximum of {ARCHIVE_BYTES_MAX}", artifact.name, id.size_bytes);
        return Err(TaskFailure::new(Code::TaskParamsInvalid, message));
    }
    let read = match context.host.files().read_verified(&path, id).await {
        Err(error) if is_staged_file_error(&error, &path) => {
            refetch_changed(artifact, &error, context).await?;
            context.host.files().read_verified(&path, id).await
        }
        read => read,
    };
    read.map_err(|error| install_error(artifact, error))
}

/// Puts an image archive in place, unless exactly that one is there.
async fn image(artifact: &ArtifactRef, context: &Context) -> Result<Changed, TaskFailure> {
    let (path, id) = (staged(artifact)?, content_id(artifact)?);
    let target = Utf8Path::new(IMAGES).join(plain_name(&artifact.name)?);
    let copied = match context.host.files().copy_verified(&path, &target, 0o644, id).await {
        Err(error) if is_staged_file_error(&error, &path) => {
            refetch_changed(artifact, &error, context).await?;
            context.host.files().copy_verified(&path, &target, 0o644, id).await
        }
        copied => copied,
    };
    copied.map_err(|error| install_error(artifact, error))
}

/// Returns true if the error means that the staged artifact is missing or different.
fn is_staged_file_error(error: &HostError, staged: &Utf8Path) -> bool {
    match error {
        HostError::ContentMismatch { path, .. } | HostError::UnsafePath { path, .. } => path == staged,
        HostError::File { path, source, .. } => path == staged && source.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

/// Removes the staged artifact and fetches it again. The task names the artifact, and so may fetch it.
async fn refetch_changed(artifact: &ArtifactRef, why: &HostError, context: &Context) -> Result<(), TaskFailure> {
    tracing::warn!(name = artifact.name, %why, "a staged artifact was changed; fetching it again");
    refetch(artifact, context).await.map(drop)
}

/// Returns the failure of an artifact that was changed again right after it was fetched again.
fn install_error(artifact: &ArtifactRef, error: HostError) -> TaskFailure {
    match error {
        error @ (HostError::ContentMismatch { .. } | HostError::UnsafePath { .. }) => {
            let message = format!("{} was changed on the node after it was fetched: {error}", artifact.name);
            TaskFailure::new(Code::ArtifactDigestMismatch, message)
        }
        error => host_failed(error),
    }
}

/// Returns the first line of `rke2 --version`.
pub(crate) async fn version_line(context: &Context) -> Result<String, TaskFailure> {
    let command = Command {
        program: Utf8Path::new(PREFIX).join("bin/rke2"),
        arguments: vec!["--version".to_owned()],
        environment: Vec::new(),
        timeout: std::time::Duration::from_secs(20),
    };
    let end = context.host.run(&command).await.map_err(host_failed)?;
    Ok(end.output.lines().next().unwrap_or_default().to_owned())
}

/// Returns the archive's files with their paths and modes. Refuses paths outside the allowed folders, and entries that are neither file nor
/// folder.
fn unpack(archive: &[u8]) -> Result<Vec<FileSpec>, TaskFailure> {
    let broken =
        |error: std::io::Error| TaskFailure::new(Code::ArtifactTruncated, format!("the archive is broken: {error}"));
    let unsafe_path =
        |path: &str| TaskFailure::new(Code::ArtifactUnsafePath, format!("the archive contains the unsafe path {path}"));
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive).take(ARCHIVE_BYTES_MAX));
    let mut files = Vec::new();
    for (entry, number) in tar.entries().map_err(broken)?.zip(0..) {
        let mut entry = entry.map_err(broken)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if number >= ENTRIES_MAX {
            return Err(TaskFailure::new(
                Code::ArtifactUnsafePath,
                format!("the archive has more than {ENTRIES_MAX} entries"),
            ));
        }
        match entry.header().entry_type() {
            tar::EntryType::Directory => continue,
            tar::EntryType::Regular => {}
            _ => return Err(unsafe_path(&format!("{name} (neither a file nor a folder)"))),
        }
        let path = install_path(&name).ok_or_else(|| unsafe_path(&name))?;
        let mode = if entry.header().mode().map_err(broken)? & 0o100 == 0 { 0o644 } else { 0o755 };
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(broken)?;
        files.push(FileSpec { path, mode, content });
    }
    Ok(files)
}

/// Returns the target path of an archive's entry; `None` if it is outside the folders `bin`, `lib` and `share` of the prefix.
fn install_path(name: &str) -> Option<Utf8PathBuf> {
    let mut path = Utf8PathBuf::from(PREFIX);
    let mut depth = 0;
    for component in Utf8Path::new(name).components() {
        match component {
            Utf8Component::CurDir => {}
            Utf8Component::Normal(part) => {
                if depth == 0 && !["bin", "lib", "share"].contains(&part) {
                    return None;
                }
                depth += 1;
                path.push(part);
            }
            Utf8Component::ParentDir | Utf8Component::RootDir | Utf8Component::Prefix(_) => return None,
        }
    }
    (depth > 1).then_some(path)
}

fn plain_name(name: &str) -> Result<&str, TaskFailure> {
    let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    plain
        .then_some(name)
        .ok_or_else(|| TaskFailure::new(Code::ArtifactUnsafePath, format!("{name} is not a file name")))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use gpuaas_handler::test_host::{context, sandbox};
    use gpuaas_trust::sha256_hex;
    use gpuaas_wire::task::ArtifactRef;

    use super::*;

    fn archive(name: &[u8], kind: tar::EntryType) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(2);
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, &b"hi"[..]).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&builder.into_inner().unwrap()).unwrap();
        gz.finish().unwrap()
    }

    #[test]
    fn files_go_under_the_prefix_with_their_modes() {
        let files = unpack(&archive(b"bin/rke2", tar::EntryType::Regular)).unwrap();
        assert_eq!(
            (files[0].path.as_str(), files[0].mode, &files[0].content[..]),
            ("/usr/local/bin/rke2", 0o755, &b"hi"[..])
        );
    }

    #[test]
    fn bad_input_paths_outside_the_prefix_are_refused() {
        for name in [&b"../bin/rke2"[..], b"/etc/passwd", b"bin/../../x", b"etc/x", b"bin"] {
            let refused = unpack(&archive(name, tar::EntryType::Regular)).unwrap_err();
            assert_eq!(refused.code, Code::ArtifactUnsafePath, "{}", String::from_utf8_lossy(name));
        }
        let link = unpack(&archive(b"bin/rke2", tar::EntryType::Symlink)).unwrap_err();
        assert_eq!(link.code, Code::ArtifactUnsafePath);
    }

    #[test]
    fn bad_input_truncated_archive_is_refused() {
        let whole = archive(b"bin/rke2", tar::EntryType::Regular);
        assert_eq!(unpack(&whole[..whole.len() / 2]).unwrap_err().code, Code::ArtifactTruncated);
    }

    fn reference(name: &str, bytes: &[u8]) -> ArtifactRef {
        ArtifactRef { name: name.to_owned(), sha256: sha256_hex(bytes), size_bytes: bytes.len() as u64 }
    }

    const IMAGE: &[u8] = b"image from the release";
    const OTHER_IMAGE: &[u8] = b"image from the tenant!";

    fn task(archive: &[u8]) -> Rke2Install {
        Rke2Install {
            version: "v1".to_owned(),
            archive: reference("rke2.tar.gz", archive),
            images: vec![reference("images.tar.zst", IMAGE)],
        }
    }

    /// Returns a host with these bytes staged as the archive and the image of a task.
    fn with_staged(
        task: &Rke2Install,
        archive: &[u8],
        image: &[u8],
    ) -> (tempfile::TempDir, std::sync::Arc<dyn gpuaas_host::Host>) {
        let (folder, host) = sandbox(&[]);
        for (artifact, bytes) in [(&task.archive, archive), (&task.images[0], image)] {
            let place = folder.path().join(staged(artifact).unwrap().as_str().trim_start_matches('/'));
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, bytes).unwrap();
        }
        (folder, host)
    }

    #[tokio::test]
    async fn poisoned_archive_is_removed_and_not_installed() {
        let (good, evil) =
            (archive(b"bin/rke2", tar::EntryType::Regular), archive(b"bin/evil", tar::EntryType::Regular));
        let task = task(&good);
        let (folder, host) = with_staged(&task, &evil, IMAGE);
        run(task.clone(), context(&host)).await.unwrap_err();
        assert!(!folder.path().join("usr/local/bin").exists(), "a poisoned archive was installed");
        assert!(
            !host.files().exists(&staged(&task.archive).unwrap()).await.unwrap(),
            "the poisoned archive is still staged"
        );
    }

    #[tokio::test]
    async fn installed_image_with_other_bytes_is_replaced() {
        let good = archive(b"bin/rke2", tar::EntryType::Regular);
        let task = task(&good);
        let (folder, host) = with_staged(&task, &good, IMAGE);
        let image = folder.path().join("var/lib/rancher/rke2/agent/images/images.tar.zst");
        std::fs::create_dir_all(image.parent().unwrap()).unwrap();
        std::fs::write(&image, OTHER_IMAGE).unwrap();
        // This host has no init, so the steps after the files fail.
        run(task, context(&host)).await.unwrap_err();
        assert_eq!(std::fs::read(&image).unwrap(), IMAGE);
    }

    #[tokio::test]
    async fn poisoned_image_is_removed_and_not_installed() {
        let good = archive(b"bin/rke2", tar::EntryType::Regular);
        let task = task(&good);
        let (folder, host) = with_staged(&task, &good, OTHER_IMAGE);
        run(task.clone(), context(&host)).await.unwrap_err();
        assert!(!folder.path().join("var/lib/rancher/rke2/agent/images/images.tar.zst").exists());
        assert!(
            !host.files().exists(&staged(&task.images[0]).unwrap()).await.unwrap(),
            "the poisoned image is still staged"
        );
    }
}
