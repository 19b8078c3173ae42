//! Downloads from a minimal web server that can break off, refuse to continue and redirect.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpListener,
};

use super::*;
use crate::{
    Writers,
    digest::Hasher,
    egress::EgressPolicy,
    fetch::HttpFetch,
    verification::{
        Proof,
        tests::{key_pair, sign},
    },
};

#[derive(Default)]
struct Site {
    files: HashMap<String, Vec<u8>>,
    /// Bytes of a body after which the connection is closed; each entry is used once.
    breaks: Vec<usize>,
    continues: bool,
    /// Whether continued bodies come without their length.
    unsized_parts: bool,
    redirect_to: Option<String>,
    requests: Vec<(String, u64)>,
}

struct Server {
    url: String,
    site: Arc<Mutex<Site>>,
}

const VERSION_PATH: &str = "/download/v1.36.3%2Brke2r1";

/// Serves the site over TLS; also returns the server's self-signed certificate.
async fn serve(site: Site) -> (Server, rcgen::Certificate) {
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![own.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}{VERSION_PATH}", listener.local_addr().unwrap().port());
    let site = Arc::new(Mutex::new(site));
    let shared = site.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, site) = (acceptor.clone(), shared.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer(stream, site).await;
                }
            });
        }
    });
    (Server { url, site }, own)
}

/// Allows this machine, on which the tests' servers run.
fn reach() -> EgressPolicy {
    EgressPolicy::with_private(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()])
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, site: Arc<Mutex<Site>>) {
    let mut stream = BufReader::new(stream);
    let (mut path, mut offset, mut line) = (String::new(), 0_usize, String::new());
    while stream.read_line(&mut line).await.unwrap() > 2 {
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next().unwrap().to_owned();
        }
        if let Some(rest) = line.to_lowercase().strip_prefix("range: bytes=") {
            offset = rest.trim().trim_end_matches('-').parse().unwrap();
        }
        line.clear();
    }
    let reply = reply(&mut site.lock().unwrap(), &path, offset);
    // The client may have closed the connection.
    let _ = stream.write_all(&reply).await;
    let _ = stream.shutdown().await;
}

fn reply(site: &mut Site, path: &str, offset: usize) -> Vec<u8> {
    if let Some(to) = &site.redirect_to {
        return format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes();
    }
    let name = path.rsplit('/').next().unwrap();
    site.requests.push((name.to_owned(), offset as u64));
    let Some(all) = site.files.get(name) else {
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    };
    let offset = if site.continues { offset } else { 0 };
    let total = all.len();
    if offset >= total {
        return format!("HTTP/1.1 416 X\r\nContent-Range: bytes */{total}\r\nContent-Length: 0\r\n\r\n").into_bytes();
    }
    let body = &all[offset..];
    let head = match offset {
        0 => format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n"),
        _ => {
            let length = if site.unsized_parts { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
            let last = total - 1;
            format!("HTTP/1.1 206 Partial\r\nContent-Range: bytes {offset}-{last}/{total}\r\n{length}\r\n")
        }
    };
    let sent = if name == "rke2.bin" { site.breaks.pop().unwrap_or(usize::MAX) } else { usize::MAX };
    [head.as_bytes(), &body[..body.len().min(sent)]].concat()
}

/// A release with one plain file of half a megabyte.
fn site() -> Site {
    let file: Vec<u8> = (0..500_000_u32).map(|n| (n % 251) as u8).collect();
    let mut hasher = Hasher::new();
    hasher.update(&file);
    let sums = format!("{}  rke2.bin\n", hasher.finish());
    let files = HashMap::from([("rke2.bin".to_owned(), file), ("sums.txt".to_owned(), sums.into_bytes())]);
    Site { files, continues: true, ..Site::default() }
}

struct Download {
    server: Server,
    folder: tempfile::TempDir,
    fetch: HttpFetch,
    proof: Proof<'static>,
    verification: Verification,
}

impl Download {
    async fn with(site: Site) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let (server, certificate) = serve(site).await;
        std::fs::write(&ca, certificate.pem()).unwrap();
        let fetch = HttpFetch::trusting(&ca, reach()).unwrap();
        let verification = Verification { allow_unverified: true, ..Verification::default() };
        Self { server, fetch, folder, proof: Proof::default(), verification }
    }

    fn scratch(&self) -> std::path::PathBuf {
        self.folder.path().join("scratch")
    }

    async fn import(&self) -> Result<ImportedRelease, ArtifactError> {
        let store = ArtifactStore::open(&self.folder.path().join("store"), Writers::One).unwrap();
        let files = ["rke2.bin".to_owned()];
        let wanted = ReleaseRequest { files: &files, sums: "sums.txt", proof: self.proof, version: None };
        import_release_url(&store, &self.fetch, &self.server.url, &wanted, &self.verification, &self.scratch()).await
    }

    fn requested_offsets(&self) -> Vec<u64> {
        let site = self.server.site.lock().unwrap();
        site.requests.iter().filter(|(name, _)| name == "rke2.bin").map(|(_, offset)| *offset).collect()
    }
}

#[tokio::test]
async fn release_is_imported_from_its_url_with_the_version_in_it() {
    let download = Download::with(site()).await;
    let imported = download.import().await.unwrap();
    assert_eq!(imported.files[0].size_bytes, 500_000);
    assert_eq!((imported.version.as_deref(), imported.stand_in), (Some("v1.36.3+rke2r1"), false));
    assert!(!download.scratch().exists());
}

#[tokio::test]
async fn interrupted_download_is_continued() {
    for unsized_parts in [false, true] {
        let download = Download::with(Site { breaks: vec![50_000, 100_000], unsized_parts, ..site() }).await;
        download.import().await.unwrap();
        let offsets = download.requested_offsets();
        assert_eq!(offsets.len(), 3, "{offsets:?}");
        assert!(offsets[0] == 0 && offsets[1] > 0 && offsets[2] > offsets[1], "{offsets:?}");
    }
}

#[tokio::test]
async fn download_restarts_if_the_server_cannot_continue() {
    let download = Download::with(Site { breaks: vec![100_000], continues: false, ..site() }).await;
    download.import().await.unwrap();
}

#[tokio::test]
async fn partial_file_is_continued_and_complete_file_is_kept() {
    let download = Download::with(site()).await;
    let file = download.server.site.lock().unwrap().files["rke2.bin"].clone();
    for have in [200_000, file.len()] {
        std::fs::create_dir_all(download.scratch()).unwrap();
        std::fs::write(download.scratch().join("rke2.bin"), &file[..have]).unwrap();
        download.import().await.unwrap();
        assert_eq!(download.requested_offsets().last().copied(), Some(have as u64));
    }
    // More bytes than the file has: they are of another file.
    std::fs::create_dir_all(download.scratch()).unwrap();
    std::fs::write(download.scratch().join("rke2.bin"), vec![0; file.len() + 1]).unwrap();
    download.import().await.unwrap();
}

#[tokio::test]
async fn wrong_bytes_are_refused_and_removed() {
    let download = Download::with(site()).await;
    let good = download.server.site.lock().unwrap().files["rke2.bin"].clone();
    download.server.site.lock().unwrap().files.get_mut("rke2.bin").unwrap()[7] ^= 1;
    let wrong = download.import().await;
    assert!(matches!(wrong, Err(ArtifactError::DigestMismatch { .. })), "{wrong:?}");
    download.server.site.lock().unwrap().files.insert("rke2.bin".into(), good);
    download.import().await.unwrap();
}

#[tokio::test]
async fn file_absent_on_the_server_is_reported_as_missing() {
    for absent in ["rke2.bin", "sums.txt"] {
        let mut site = site();
        site.files.remove(absent);
        let found = Download::with(site).await.import().await;
        assert!(matches!(found, Err(ArtifactError::Missing { ref name }) if name == absent), "{found:?}");
    }
}

#[tokio::test]
async fn redirects_are_limited_and_errors_contain_no_url() {
    let download = Download::with(Site { redirect_to: Some("/again?signature=secret".into()), ..site() }).await;
    let found = download.import().await.unwrap_err();
    assert!(matches!(found, ArtifactError::Fetch { .. }), "{found}");
    assert!(!found.to_string().contains("secret"), "{found}");
    for bad in ["ftp://host/x", "http://host/x", "https://user:secret@host/x", "not a url"] {
        let failure = download.fetch.get(bad, 0).await.err().unwrap();
        assert!(matches!(failure, FetchError::Refused(_)) && !failure.to_string().contains("secret"), "{failure}");
    }
}

#[tokio::test]
async fn server_without_a_certificate_of_the_bundle_is_unreachable() {
    let (server, own) = serve(site()).await;
    let url = format!("{}/rke2.bin", server.url);
    let folder = tempfile::tempdir().unwrap();
    let trusting = |pem: &str| {
        std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
        HttpFetch::trusting(&folder.path().join("ca.pem"), reach()).unwrap()
    };
    let fetched = trusting(&own.pem()).get(&url, 499_990).await.unwrap();
    assert_eq!((fetched.offset, fetched.total_bytes), (499_990, Some(500_000)));
    assert_eq!(fetched.body.try_collect::<Vec<_>>().await.unwrap().concat().len(), 10);

    let other_key = rcgen::KeyPair::generate().unwrap();
    let other = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&other_key).unwrap();
    let refused = trusting(&other.pem()).get(&url, 0).await;
    assert!(matches!(refused, Err(FetchError::Unreachable)));
    assert!(HttpFetch::trusting(&folder.path().join("absent.pem"), reach()).is_err());
}

#[tokio::test]
async fn redirect_target_is_checked_like_the_first_server() {
    let inside = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = inside.local_addr().unwrap().port();
    let accepted = tokio::spawn(async move { inside.accept().await.map(drop) });
    for (to, is_unreached) in [
        (format!("https://127.0.0.2:{port}/rke2.bin"), true),
        ("https://169.254.169.254/latest".to_owned(), true),
        (format!("http://127.0.0.2:{port}/rke2.bin"), false),
    ] {
        let mut download = Download::with(Site { redirect_to: Some(to.clone()), ..site() }).await;
        let ca = download.folder.path().join("ca.pem");
        let only_first = EgressPolicy::with_private(vec!["127.0.0.1/32".parse().unwrap(), "::1/128".parse().unwrap()]);
        download.fetch = HttpFetch::trusting(&ca, only_first).unwrap();
        let refused = download.fetch.get(&download.server.url, 0).await.err().unwrap();
        assert_eq!(matches!(refused, FetchError::Unreachable), is_unreached, "{to}: {refused}");
        assert!(matches!(refused, FetchError::Unreachable | FetchError::Refused(_)), "{to}: {refused}");
    }
    assert!(!accepted.is_finished(), "it was connected to");
}

#[tokio::test]
async fn unverified_release_is_refused_before_large_files_are_fetched() {
    let mut download = Download::with(site()).await;
    download.verification.allow_unverified = false;
    let refused = download.import().await.unwrap_err();
    assert_eq!(gpuaas_model::Coded::code(&refused), gpuaas_model::Code::ReleaseUnverified, "{refused}");
    assert_eq!(download.requested_offsets(), [0_u64; 0]);
    // A signature file next to the checksum file is fetched and accepted.
    let (pair, public) = key_pair();
    download.verification.trusted_keys = vec![public.parse().unwrap()];
    let sums = download.server.site.lock().unwrap().files["sums.txt"].clone();
    let signature = sign(&pair, &sums).into_bytes();
    download.server.site.lock().unwrap().files.insert("sums.txt.minisig".into(), signature);
    assert!(matches!(download.import().await.unwrap().verified_by, gpuaas_model::VerifiedBy::Key(_)));
}

#[test]
fn version_is_derived_only_from_a_version_segment() {
    assert_eq!(version_in("https://h/download/v1.36.3%2Brke2r1/").as_deref(), Some("v1.36.3+rke2r1"));
    assert_eq!(version_in("https://h/download/latest"), None);
    assert_eq!(version_in("https://h/download/vx"), None);
}

#[tokio::test]
async fn download_that_fills_the_disk_is_refused_and_removed() {
    let download = Download::with(site()).await;
    std::fs::create_dir_all(download.scratch()).unwrap();
    // Every write to this link fails because the disk is full.
    std::os::unix::fs::symlink("/dev/full", download.scratch().join("rke2.bin")).unwrap();
    let full = download.import().await.unwrap_err();
    assert_eq!(gpuaas_model::Coded::code(&full), gpuaas_model::Code::DiskFull, "{full}");
    assert!(std::fs::symlink_metadata(download.scratch().join("rke2.bin")).is_err(), "the file was not removed");
    download.import().await.unwrap();
}

#[tokio::test]
async fn file_that_is_too_large_is_refused_and_removed() {
    let mut site = site();
    let too_large = vec![b'x'; usize::try_from(SUMS_BYTES_MAX).unwrap() + 1];
    site.files.insert("sums.txt".to_owned(), too_large);
    let download = Download::with(site).await;
    let refused = download.import().await.unwrap_err();
    assert!(matches!(refused, ArtifactError::TooLarge { .. }), "{refused}");
    assert!(!download.scratch().join("sums.txt").exists(), "the file was not removed");
}
