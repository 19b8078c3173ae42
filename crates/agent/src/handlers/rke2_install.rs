//! `rke2.install`: lays a verified release out as its own install script would. No script of the release is run.

use std::io::Read;

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use gpuaas_host::{Changed, Command, FileSpec};
use gpuaas_model::Code;
use gpuaas_wire::task::{Rke2Install, Rke2Installed, TaskFailure};
use tokio::io::AsyncReadExt;

use super::artifact_fetch::staged;
use crate::context::{Context, host_failed};

/// Where the archive's folders go: the tar method's default prefix.
const PREFIX: &str = "/usr/local";
/// Where image archives go.
pub(crate) const IMAGES: &str = "/var/lib/rancher/rke2/agent/images";
/// Longest archive that is unpacked, packed and unpacked: RKE2's own is about 50 MB.
const ARCHIVE_BYTES_MAX: u64 = 512 * 1_024 * 1_024;
/// Most entries of an archive: RKE2's own has nine.
const ENTRIES_MAX: usize = 100;

/// Lays it out.
pub(crate) async fn run(task: Rke2Install, context: Context) -> Result<Rke2Installed, TaskFailure> {
    context.say(format!("laying out {}", task.version));
    let mut archive = Vec::new();
    let file = context.host.open(&staged(&task.archive)?).await.map_err(host_failed)?;
    let read = file.take(ARCHIVE_BYTES_MAX).read_to_end(&mut archive).await;
    read.map_err(|error| TaskFailure::new(Code::HostFailed, format!("reading {}: {error}", task.archive.name)))?;
    let files = unpack(&archive)?;
    drop(archive);
    let mut files_written = 0;
    for file in &files {
        files_written += u32::from(context.host.write(file).await.map_err(host_failed)? == Changed::Yes);
    }
    context.host.make_folder(Utf8Path::new(IMAGES), 0o755).await.map_err(host_failed)?;
    for image in &task.images {
        let target = Utf8Path::new(IMAGES).join(plain_name(&image.name)?);
        if context.host.size(&target).await.map_err(host_failed)? != Some(image.size_bytes) {
            context.host.copy(&staged(image)?, &target, 0o644).await.map_err(host_failed)?;
            files_written += 1;
        }
    }
    context.host.daemon_reload().await.map_err(host_failed)?;
    let version_line = version_line(&context).await?;
    if !version_line.contains(&task.version) {
        let message = format!("the archive of {} holds {version_line}", task.version);
        return Err(TaskFailure::new(Code::ArtifactDigestMismatch, message));
    }
    Ok(Rke2Installed { version_line, files_written })
}

/// First line of `rke2 --version`.
pub(crate) async fn version_line(context: &Context) -> Result<String, TaskFailure> {
    let command = Command {
        program: Utf8Path::new(PREFIX).join("bin/rke2"),
        arguments: vec!["--version".to_owned()],
        timeout: std::time::Duration::from_secs(20),
    };
    let end = context.host.run(&command).await.map_err(host_failed)?;
    Ok(end.output.lines().next().unwrap_or_default().to_owned())
}

/// The archive's files with their places and modes. Refuses what leads anywhere else, and anything that is neither file nor folder.
fn unpack(archive: &[u8]) -> Result<Vec<FileSpec>, TaskFailure> {
    let broken =
        |error: std::io::Error| TaskFailure::new(Code::ArtifactTruncated, format!("the archive is broken: {error}"));
    let unsafe_path = |path: &str| TaskFailure::new(Code::ArtifactUnsafePath, format!("the archive names {path}"));
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
            _ => return Err(unsafe_path(&format!("{name}, which is neither file nor folder"))),
        }
        let path = inside(&name).ok_or_else(|| unsafe_path(&name))?;
        let mode = if entry.header().mode().map_err(broken)? & 0o100 == 0 { 0o644 } else { 0o755 };
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(broken)?;
        files.push(FileSpec { path, mode, content });
    }
    Ok(files)
}

/// Where an archive's entry goes; `None` when that is not inside of the prefix' own three folders.
fn inside(name: &str) -> Option<Utf8PathBuf> {
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
    plain.then_some(name).ok_or_else(|| TaskFailure::new(Code::ArtifactUnsafePath, format!("{name} is no file name")))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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
    fn bad_input_that_leads_elsewhere_is_refused() {
        for name in [&b"../bin/rke2"[..], b"/etc/passwd", b"bin/../../x", b"etc/x", b"bin"] {
            let refused = unpack(&archive(name, tar::EntryType::Regular)).unwrap_err();
            assert_eq!(refused.code, Code::ArtifactUnsafePath, "{}", String::from_utf8_lossy(name));
        }
        let link = unpack(&archive(b"bin/rke2", tar::EntryType::Symlink)).unwrap_err();
        assert_eq!(link.code, Code::ArtifactUnsafePath);
    }

    #[test]
    fn bad_input_that_breaks_off_is_refused() {
        let whole = archive(b"bin/rke2", tar::EntryType::Regular);
        assert_eq!(unpack(&whole[..whole.len() / 2]).unwrap_err().code, Code::ArtifactTruncated);
    }
}
