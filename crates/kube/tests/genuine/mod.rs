//! A genuine etcd and a genuine kube-apiserver in a temporary folder, on their own loopback address; they end with the test.
//!
//! `cargo xtask test` builds the binaries first; without them a test fails and names the command.
#![allow(clippy::unwrap_used)] // A harness fails by panicking, like its tests.
#![allow(dead_code)] // Each test program uses a part of it.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use futures::FutureExt as _;
use gpuaas_kube::{ByteStream, Cluster, Connector, Endpoint, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use tokio::sync::{Semaphore, SemaphorePermit};

/// RKE2's port; no other cluster uses the address.
pub(crate) const APISERVER_PORT: u16 = 6443;

pub(crate) struct RealApiserver {
    pub(crate) address: IpAddr,
    /// The admin file as RKE2 writes it, including the server address.
    pub(crate) admin_kubeconfig: String,
    ca: Authority,
    binaries: PathBuf,
    folder: tempfile::TempDir,
    etcd: Option<Running>,
    apiserver: Option<Running>,
    // The last field: released after the processes have ended.
    _slot: SemaphorePermit<'static>,
}

/// A cluster takes about 300 MB; the tests of one program run in parallel.
static SLOTS: Semaphore = Semaphore::const_new(2);

/// A certificate authority of the test.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // A frozen process handles only SIGCONT and SIGKILL.
        self.signal("CONT");
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status();
    }
}

impl RealApiserver {
    /// Starts etcd and the apiserver without waiting for them.
    pub(crate) async fn start() -> Self {
        let mut made = Self::prepare().await;
        made.start_etcd();
        made.start_apiserver();
        made
    }

    /// Creates certificates and an address, and starts no process.
    pub(crate) async fn prepare() -> Self {
        let binaries = binaries().expect("etcd and kube-apiserver: `cargo xtask components` builds them");
        let _slot = SLOTS.acquire().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (address, ca) = (own_address(), Authority::new());
        let (certificate, key) = ca.server(address);
        for (name, text) in [("ca.crt", &ca.pem), ("tls.crt", &certificate), ("tls.key", &key)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let tokens = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("sa.key"), tokens.serialize_pem()).unwrap();
        std::fs::write(folder.path().join("sa.pub"), tokens.public_key_pem()).unwrap();
        let admin_kubeconfig = ca.admin_kubeconfig(&ca.pem);
        Self { address, admin_kubeconfig, ca, binaries, folder, etcd: None, apiserver: None, _slot }
    }

    pub(crate) fn start_etcd(&mut self) {
        let (client, peer) = (format!("http://{}:2379", self.address), format!("http://{}:2380", self.address));
        let data = self.path("etcd");
        self.etcd = Some(self.spawn(
            "etcd",
            &[
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
                // Nothing here outlives the test.
                "--unsafe-no-fsync=true".into(),
                "--log-level=warn".into(),
            ],
        ));
    }

    pub(crate) fn start_apiserver(&mut self) {
        let file = |name: &str| self.path(name).display().to_string();
        self.apiserver = Some(self.spawn(
            "kube-apiserver",
            &[
                format!("--etcd-servers=http://{}:2379", self.address),
                format!("--bind-address={}", self.address),
                format!("--advertise-address={}", self.address),
                format!("--secure-port={APISERVER_PORT}"),
                format!("--tls-cert-file={}", file("tls.crt")),
                format!("--tls-private-key-file={}", file("tls.key")),
                format!("--client-ca-file={}", file("ca.crt")),
                format!("--cert-dir={}", file("certs")),
                format!("--service-account-key-file={}", file("sa.pub")),
                format!("--service-account-signing-key-file={}", file("sa.key")),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                "--service-cluster-ip-range=10.43.0.0/16".into(),
                "--endpoint-reconciler-type=none".into(),
                "--authorization-mode=Node,RBAC".into(),
                "--anonymous-auth=false".into(),
            ],
        ));
    }

    /// Ends the apiserver and waits until it has exited: it keeps its port until then.
    pub(crate) fn stop_apiserver(&mut self) {
        self.apiserver = None;
    }

    pub(crate) fn freeze_etcd(&self) {
        self.etcd.as_ref().unwrap().signal("STOP");
    }

    pub(crate) fn thaw_etcd(&self) {
        self.etcd.as_ref().unwrap().signal("CONT");
    }

    /// Returns a client with the admin's certificate, over plain TCP.
    pub(crate) fn cluster(&self) -> Cluster {
        self.cluster_with(&self.admin_kubeconfig)
    }

    pub(crate) fn cluster_with(&self, kubeconfig: &str) -> Cluster {
        let kubeconfig = Kubeconfig::parse(kubeconfig.as_bytes()).unwrap();
        Cluster::new(&kubeconfig, self.endpoint(), self.connector()).unwrap()
    }

    /// Returns the kubeconfig of another cluster's admin: with this cluster's CA and the other's certificate.
    pub(crate) fn kubeconfig_of_another_ca(&self) -> String {
        Authority::new().admin_kubeconfig(&self.ca.pem)
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { host: self.address.to_string(), port: APISERVER_PORT }
    }

    pub(crate) fn connector(&self) -> Arc<dyn Connector> {
        let address = self.address;
        Arc::new(move || {
            async move {
                let stream = tokio::net::TcpStream::connect((address, APISERVER_PORT)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as Box<dyn ByteStream>)
            }
            .boxed()
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spawn(&self, program: &str, arguments: &[String]) -> Running {
        let log = std::fs::File::create(self.path(&format!("{program}.log"))).unwrap();
        // The cluster ends even if the test is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(self.binaries.join(program))
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Running(child)
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test-ca");
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn server(&self, address: IpAddr) -> (String, String) {
        let mut params = CertificateParams::new(vec!["kubernetes.default.svc".into()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress(address));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Returns a kubeconfig for `CN=system:admin,O=system:masters`, like RKE2's, that trusts `ca_pem`.
    pub(crate) fn admin_kubeconfig(&self, ca_pem: &str) -> String {
        use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "system:admin");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.sign(params);
        let [ca, certificate, key] = [ca_pem, &certificate, &key].map(|text| BASE64.encode(text));
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: default\npreferences: {{}}\n\
             clusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: https://127.0.0.1:6443\n  name: default\n\
             contexts:\n- context:\n    cluster: default\n    user: default\n  name: default\n\
             users:\n- name: default\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
        )
    }
}

/// Returns an address that no other test uses, in this process or another.
fn own_address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let pid = std::process::id();
    let [_, _, high, low] = pid.to_be_bytes();
    // 127.128.0.0/9; sandboxes use the lower half.
    IpAddr::V4(Ipv4Addr::new(127, 128 | (high & 0x7f), low, NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn binaries() -> Option<PathBuf> {
    let complete = |dir: &Path| ["etcd", "kube-apiserver"].iter().all(|name| dir.join(name).is_file());
    if let Some(dir) = std::env::var_os("GPUAAS_COMPONENTS") {
        return Some(PathBuf::from(dir)).filter(|dir| complete(dir));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    let mut built: Vec<_> =
        std::fs::read_dir(cache.join("gpuaas/components")).ok()?.flatten().map(|e| e.path()).collect();
    built.sort();
    built.into_iter().rev().find(|dir| complete(dir))
}
