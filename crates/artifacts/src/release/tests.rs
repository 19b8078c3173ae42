use gpuaas_model::{Code, Coded};
use tar::EntryType;

use super::*;
use crate::{Writers, archive::tests::tar_of, digest::of_bytes as sha256};

/// Accepts every checksum file; the tests of `importer` cover verification.
const UNVERIFIED: Verification = Verification { trusted_keys: Vec::new(), allow_unverified: true };

fn wanted(files: &[String]) -> ReleaseRequest<'_> {
    ReleaseRequest { files, sums: "sums.txt", proof: Proof::default(), version: None }
}

fn zst(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    zstd::encode_all(tar_of(entries).as_slice(), 1).unwrap()
}

/// A folder with two valid files, of which a test spoils one thing.
struct Release {
    folder: tempfile::TempDir,
    store: tempfile::TempDir,
}

const WANTED: [&str; 2] = ["rke2.tar.zst", "images.tar.zst"];

impl Release {
    fn valid() -> Self {
        let release = Self { folder: tempfile::tempdir().unwrap(), store: tempfile::tempdir().unwrap() };
        release
            .with(WANTED[0], &zst(&[(EntryType::Regular, "bin/rke2", "")]))
            .with(WANTED[1], &zst(&[(EntryType::Regular, "manifest.json", "")]))
            .with_matching_sums()
    }

    fn with(self, name: &str, bytes: &[u8]) -> Self {
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
        self
    }

    fn without(self, name: &str) -> Self {
        std::fs::remove_file(self.folder.path().join(name)).unwrap();
        self
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }

    fn with_matching_sums(self) -> Self {
        let line = |name: &&str| format!("{}  {name}\n", sha256(&self.bytes(name)));
        let text: String = WANTED.iter().map(line).collect();
        self.with("sums.txt", text.as_bytes())
    }

    async fn import(&self) -> Result<ImportedRelease, ArtifactError> {
        self.import_as(None).await
    }

    async fn import_as(&self, version: Option<&str>) -> Result<ImportedRelease, ArtifactError> {
        let store = ArtifactStore::open(self.store.path(), Writers::One).unwrap();
        let (folder, files) = (Folder::open(self.folder.path()).unwrap(), WANTED.map(String::from));
        let wanted = ReleaseRequest { version, ..wanted(&files) };
        let imported = import_release(&store, folder, &wanted, &UNVERIFIED).await;
        if imported.is_err() {
            let visible = std::fs::read_dir(self.store.path()).unwrap().count();
            assert_eq!(visible, 0, "a refused release leaves nothing visible");
        }
        imported
    }
}

#[tokio::test]
async fn valid_release_is_imported_with_its_stand_in_marker() {
    let release = Release::valid();
    let imported = release.import().await.unwrap();
    assert_eq!(imported.files.len(), 2);
    assert_eq!(imported.files[0].size_bytes, release.bytes(WANTED[0]).len() as u64);
    assert_eq!((imported.stand_in, imported.version), (false, None));
    assert_eq!(release.import().await.unwrap().files, imported.files);

    let marked = release.with(STAND_IN, br#"{"stand_in": true, "version": "v1.36.3+rke2r1"}"#);
    let imported = marked.import().await.unwrap();
    assert_eq!((imported.stand_in, imported.version.as_deref()), (true, Some("v1.36.3+rke2r1")));
    assert!(marked.import_as(Some("v1.36.3+rke2r1")).await.is_ok());
    assert!(marked.with(STAND_IN, b"").import().await.unwrap().stand_in);
}

#[tokio::test]
async fn release_that_states_another_version_is_refused() {
    let release = Release::valid().with(STAND_IN, br#"{"stand_in": true, "version": "v1.36.3+rke2r1"}"#);
    let refused = release.import_as(Some("v1.2.3")).await.unwrap_err();
    assert_eq!((refused.field().as_deref(), refused.code()), (Some("version"), Code::FieldInvalid));
    assert!(Release::valid().import_as(Some("v1.2.3")).await.is_ok(), "a release that states no version");
}

#[tokio::test]
async fn listed_marker_must_exist_with_its_digest() {
    let marked = || {
        let release = Release::valid().with(STAND_IN, b"{}");
        let sums = [release.bytes("sums.txt"), format!("{}  {STAND_IN}\n", sha256(b"{}")).into_bytes()].concat();
        release.with("sums.txt", &sums)
    };
    assert!(marked().import().await.unwrap().stand_in);
    let found = marked().with(STAND_IN, br#"{"version": "v9"}"#).import().await;
    assert!(matches!(found, Err(ArtifactError::DigestMismatch { ref name, .. }) if name == STAND_IN), "{found:?}");
    let found = marked().without(STAND_IN).import().await;
    assert!(matches!(found, Err(ArtifactError::Missing { ref name }) if name == STAND_IN), "{found:?}");
}

#[tokio::test]
async fn link_or_pipe_counts_as_missing_without_blocking() {
    let release = Release::valid();
    let (own, real) = (release.folder.path().join(WANTED[0]), release.folder.path().join("real"));
    std::fs::rename(&own, &real).unwrap();
    std::os::unix::fs::symlink("real", &own).unwrap();
    assert!(matches!(release.import().await, Err(ArtifactError::Missing { ref name }) if name == WANTED[0]));
    std::fs::remove_file(&own).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &own, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(release.import().await, Err(ArtifactError::Missing { ref name }) if name == WANTED[0]));
}

#[tokio::test]
async fn file_with_another_digest_is_refused() {
    let other = zst(&[(EntryType::Regular, "manifest.json2", "")]);
    let found = Release::valid().with(WANTED[1], &other).import().await;
    assert!(matches!(found, Err(ArtifactError::DigestMismatch { ref name, .. }) if name == WANTED[1]), "{found:?}");
}

#[tokio::test]
async fn truncated_file_is_refused_as_truncated() {
    let release = Release::valid();
    let whole = release.bytes(WANTED[1]);
    let cut = release.with(WANTED[1], &whole[..whole.len() - 5]);
    let found = cut.import().await;
    assert!(matches!(found, Err(ArtifactError::Truncated { ref name, .. }) if name == WANTED[1]), "{found:?}");
    let found = cut.with_matching_sums().import().await;
    assert!(matches!(found, Err(ArtifactError::Truncated { .. })), "{found:?}");
    let found = Release::valid().with(WANTED[0], b"").import().await;
    assert!(matches!(found, Err(ArtifactError::Truncated { .. })), "{found:?}");
}

#[tokio::test]
async fn archive_with_unsafe_path_is_refused_although_its_digest_matches() {
    let evil = zst(&[(EntryType::Regular, "bin/rke2", ""), (EntryType::Regular, "../../etc/cron.d/x", "")]);
    let found = Release::valid().with(WANTED[1], &evil).with_matching_sums().import().await;
    assert!(matches!(found, Err(ArtifactError::UnsafePath { ref entry, .. }) if entry.contains("cron")), "{found:?}");
}

#[tokio::test]
async fn error_names_the_unlisted_or_missing_file() {
    let first_only = |release: &Release| format!("{}  {}\n", sha256(&release.bytes(WANTED[0])), WANTED[0]);
    let release = Release::valid();
    let sums = first_only(&release);
    let found = release.with("sums.txt", sums.as_bytes()).import().await;
    assert!(matches!(found, Err(ArtifactError::Unlisted { ref name, .. }) if name == WANTED[1]), "{found:?}");
    for absent in [WANTED[0], WANTED[1], "sums.txt"] {
        let found = Release::valid().without(absent).import().await;
        assert!(matches!(found, Err(ArtifactError::Missing { ref name }) if name == absent), "{found:?}");
    }
    // A folder in place of a file.
    let release = Release::valid().without(WANTED[0]);
    std::fs::create_dir(release.folder.path().join(WANTED[0])).unwrap();
    assert!(matches!(release.import().await, Err(ArtifactError::Missing { .. })));
}

#[tokio::test]
async fn listed_name_outside_the_folder_counts_as_missing() {
    let release = Release::valid();
    let store = ArtifactStore::open(release.store.path(), Writers::One).unwrap();
    std::fs::create_dir(release.folder.path().join("sub")).unwrap();
    std::fs::write(release.folder.path().join("sub/sums.txt"), format!("{}  ../sums.txt\n", "a".repeat(64))).unwrap();
    let (files, folder) = (["../sums.txt".to_owned()], Folder::open(&release.folder.path().join("sub")).unwrap());
    let found = import_release(&store, folder, &wanted(&files), &UNVERIFIED).await;
    assert!(matches!(found, Err(ArtifactError::Missing { .. })), "{found:?}");
}
