use std::collections::BTreeSet;

use gpuaas_model::{Code, Coded, VerifiedBy};

use super::*;
use crate::{
    Writers,
    digest::of_text,
    verification::{
        Proof,
        tests::{key_pair, sign},
    },
};

/// A control plane's folder that also contains the releases.
struct ImportFolder {
    folder: tempfile::TempDir,
    importer: Importer,
}

const WANTED: &str = "rke2.bin";
const SUMS: &str = "sums.txt";

impl ImportFolder {
    fn with(verification: Verification) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca_bundle = folder.path().join("ca.pem");
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["ca".into()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(&ca_bundle, certificate.pem()).unwrap();
        let sources = Sources {
            ca_bundle,
            egress: EgressPolicy::default(),
            import_dir: Some(folder.path().join("releases")),
            verification,
        };
        let store = ArtifactStore::open(&folder.path().join("store"), Writers::One).unwrap();
        let importer = Importer { store, scratch: folder.path().join("scratch"), sources };
        Self { folder, importer }
    }

    /// Creates a release with one file; returns the digest of its checksum file.
    fn release(&self, name: &str) -> String {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(WANTED), "program").unwrap();
        let sums = format!("{}  {WANTED}\n", of_text("program"));
        std::fs::write(folder.join(SUMS), &sums).unwrap();
        of_text(&sums)
    }

    async fn import(&self, source: &str, proof: Proof<'_>) -> Result<ImportedRelease, ArtifactError> {
        self.importer
            .import(source, &ReleaseRequest { files: &[WANTED.to_owned()], sums: SUMS, proof, version: None })
            .await
    }

    async fn import_folder(&self, name: &str, proof: Proof<'_>) -> Result<ImportedRelease, ArtifactError> {
        self.import(self.folder.path().join(name).to_str().unwrap(), proof).await
    }
}

#[tokio::test]
async fn source_that_is_neither_a_folder_nor_an_https_url_is_refused() {
    let folder = ImportFolder::with(Verification::default());
    for source in [
        "http://host/v1",
        "v1.36.3",
        "",
        "ftp://host",
        "file:///etc",
        "https://user:secret@host/v1",
        "https://",
        "https://ho st/v1",
        "https://host:port/v1",
    ] {
        let refused = folder.import(source, Proof::default()).await.unwrap_err();
        assert!(matches!(refused, ArtifactError::Source(_)), "{source}: {refused:?}");
        assert!(refused.code() == Code::FieldInvalid && !refused.to_string().contains("secret"), "{refused}");
    }
}

#[tokio::test]
async fn unverified_release_is_refused_with_both_ways_to_verify_it() {
    let folder = ImportFolder::with(Verification::default());
    folder.release("releases/v1");
    let refused = folder.import_folder("releases/v1", Proof::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ReleaseUnverified);
    assert!(refused.next().is_some_and(|next| next.contains("--sums-sha256") && next.contains("release-trusted-keys")));
    assert_eq!(std::fs::read_dir(folder.folder.path().join("store")).unwrap().count(), 0, "nothing is visible");
}

#[tokio::test]
async fn release_is_verified_by_the_digest_of_its_sum_file() {
    let folder = ImportFolder::with(Verification::default());
    let sha256 = folder.release("releases/v1");
    let imported =
        folder.import_folder("releases/v1", Proof { sums_sha256: Some(&sha256), signature: None }).await.unwrap();
    assert_eq!((imported.version.as_deref(), imported.verified_by), (Some("v1"), VerifiedBy::SumsSha256(sha256)));
    let other = of_text("other");
    let refused = folder.import_folder("releases/v1", Proof { sums_sha256: Some(&other), signature: None }).await;
    assert_eq!(refused.unwrap_err().code(), Code::ArtifactDigestMismatch);
}

#[tokio::test]
async fn release_is_verified_by_a_signature_file_or_a_signature_in_the_request() {
    let (pair, public) = key_pair();
    let folder =
        ImportFolder::with(Verification { trusted_keys: vec![public.parse().unwrap()], allow_unverified: false });
    folder.release("releases/v1");
    let sums = folder.folder.path().join("releases/v1").join(SUMS);
    let signature = sign(&pair, &std::fs::read(&sums).unwrap());
    let in_request = Proof { signature: Some(&signature), sums_sha256: None };
    assert!(matches!(folder.import_folder("releases/v1", in_request).await.unwrap().verified_by, VerifiedBy::Key(_)));
    std::fs::write(sums.with_extension("txt.minisig"), &signature).unwrap();
    let imported = folder.import_folder("releases/v1", Proof::default()).await.unwrap();
    assert!(matches!(imported.verified_by, VerifiedBy::Key(_)));
    std::fs::write(&sums, format!("{}  {WANTED}\n# changed\n", of_text("program"))).unwrap();
    let refused = folder.import_folder("releases/v1", Proof::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ReleaseUnverified);
}

#[tokio::test]
async fn forbidden_absent_and_linked_folders_give_the_same_error() {
    let folder = ImportFolder::with(Verification { allow_unverified: true, ..Verification::default() });
    folder.release("releases/v1");
    folder.release("elsewhere/v1");
    std::os::unix::fs::symlink("../elsewhere", folder.folder.path().join("releases/link")).unwrap();
    std::os::unix::fs::symlink("v1", folder.folder.path().join("releases/v2")).unwrap();
    folder.import_folder("releases/v1", Proof::default()).await.unwrap();
    let mut texts = BTreeSet::new();
    for name in
        ["elsewhere/v1", "releases/link/v1", "releases/v2", "releases/../elsewhere/v1", "releases/nowhere", "nowhere"]
    {
        let refused = folder.import_folder(name, Proof::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ReleaseUnreachable, "{name}");
        texts.insert(format!("{refused} {:?}", refused.next()));
    }
    let mut unset = folder.importer.clone();
    unset.sources.import_dir = None;
    let source = folder.folder.path().join("releases/v1");
    let wanted = ReleaseRequest { files: &[WANTED.to_owned()], sums: SUMS, proof: Proof::default(), version: None };
    let refused = unset.import(source.to_str().unwrap(), &wanted).await.unwrap_err();
    texts.insert(format!("{refused} {:?}", refused.next()));
    assert_eq!(texts.len(), 1, "{texts:#?}");
}

#[tokio::test]
async fn private_addresses_are_not_connected_to_and_every_failure_gives_the_same_error() {
    let folder = ImportFolder::with(Verification::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = listener.local_addr().unwrap().port();
    let accepted = tokio::spawn(async move { listener.accept().await.map(drop) });
    let sources = [
        format!("https://127.0.0.1:{open}/v1"),
        format!("https://localhost:{open}/v1"),
        format!("https://[::ffff:127.0.0.1]:{open}/v1"),
        "https://127.0.0.1:1/v1".to_owned(),
        "https://169.254.169.254/latest".to_owned(),
        "https://no.such.name.invalid/v1".to_owned(),
    ];
    let imports = sources.iter().map(|source| folder.import(source, Proof::default()));
    let mut texts = BTreeSet::new();
    for refused in futures::future::join_all(imports).await {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::ReleaseUnreachable);
        texts.insert(format!("{refused} {:?}", refused.next()));
    }
    assert!(!accepted.is_finished(), "a private address was connected to");
    assert_eq!(texts.len(), 1, "{texts:#?}");
    // If a setting names the network, the server is connected to; then TLS fails, with the same error.
    let mut named = folder.importer.clone();
    named.sources.egress = EgressPolicy::with_private(vec!["127.0.0.0/8".parse().unwrap()]);
    let wanted = ReleaseRequest { files: &[WANTED.to_owned()], sums: SUMS, proof: Proof::default(), version: None };
    let refused = named.import(&sources[0], &wanted).await.unwrap_err();
    texts.insert(format!("{refused} {:?}", refused.next()));
    assert!(accepted.is_finished() && texts.len() == 1, "{texts:#?}");
}
