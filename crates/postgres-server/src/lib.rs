//! A real PostgreSQL server for tests: in a temporary directory, on a private socket, removed when the test process ends.
//!
//! Panics on any failure, because its callers are tests that cannot run without a database.

use std::{
    ffi::OsStr,
    fs::Permissions,
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Superuser; needs no password on the private socket.
const USER: &str = "gpuaas";
/// Maximum duration of a start, also after a crash.
const START_MAX: Duration = Duration::from_secs(60);
/// Runs the server until standard input ends, which happens when this process ends in any way; then stops it and removes the directory. If
/// a signal name arrives on standard input, it stops the server with that signal instead and keeps the directory.
const SUPERVISOR_SCRIPT: &str = r#"folder=$1; shift
"$@" >>"$folder/log" 2>&1 </dev/null & server=$!
read -r signal
kill -"${signal:-INT}" "$server"; wait "$server"
[ -n "$signal" ] || rm -rf "$folder""#;

/// A running PostgreSQL server.
pub struct Server {
    folder: PathBuf,
    binaries: PathBuf,
    account: Option<String>,
    settings: Vec<String>,
    supervisor: Child,
}

impl Server {
    /// Returns the server that all tests share. It runs without `fsync`, because its data need not survive a power failure.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&["fsync=off", "max_connections=300"], &[]))
    }

    /// Starts a server for one test with these settings. Writes `files` to the server's directory, next to the data directory.
    pub fn start(settings: &[&str], files: &[(&str, String)]) -> Self {
        Self::start_in(&std::env::temp_dir(), settings, files)
    }

    /// Like [`Server::start`], with the server's directory in `parent`, which other accounts must be able to enter.
    pub fn start_in(parent: &Path, settings: &[&str], files: &[(&str, String)]) -> Self {
        let binaries = binaries();
        let folder = tempfile::Builder::new().prefix("pg").tempdir_in(parent).expect("a folder can be created").keep();
        // PostgreSQL refuses to run as root.
        let account = is_root().then(|| account().to_owned());
        for (name, text) in files {
            let file = folder.join(name);
            std::fs::write(&file, text).expect("the folder is writable");
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("the file is ours");
        }
        if let Some(account) = &account {
            let passwd = std::fs::read_to_string("/etc/passwd").expect("accounts can be read");
            let ids: Vec<u32> = passwd
                .lines()
                .find_map(|line| line.strip_prefix(account.as_str())?.strip_prefix(':'))
                .map(|line| line.split(':').skip(1).take(2).filter_map(|id| id.parse().ok()).collect())
                .unwrap_or_default();
            let places = files.iter().map(|(name, _)| folder.join(name)).chain([folder.clone()]);
            for place in places {
                chown(place, ids.first().copied(), ids.get(1).copied()).expect("root can change the owner of files");
            }
        }
        let mut initdb = as_account(account.as_deref(), &binaries.join("initdb"));
        initdb.arg("-D").arg(folder.join("data")).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]);
        let made = initdb.current_dir(&folder).output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let supervisor = spawn_supervisor(&folder, &binaries, account.as_deref(), settings);
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let server = Self { folder, binaries, account, settings, supervisor };
        server.wait_until_ready();
        server
    }

    /// Stops the server with `signal` and starts it again. `QUIT` simulates a crash, `INT` closes connections and shuts down.
    pub fn restart(&mut self, signal: &str) {
        let mut stdin = self.supervisor.stdin.take().expect("the supervisor reads its input");
        writeln!(stdin, "{signal}").expect("the supervisor reads its input");
        self.supervisor.wait().expect("the supervisor exits");
        self.supervisor = spawn_supervisor(&self.folder, &self.binaries, self.account.as_deref(), &self.settings);
        self.wait_until_ready();
    }

    /// Returns the URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user={USER}", self.folder.display())
    }

    /// Creates an unused database and returns its URL.
    pub async fn fresh_database(&self) -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("store_{}", MADE.fetch_add(1, Ordering::Relaxed));
        self.administer(&format!("create database {name}")).await;
        self.url(&name)
    }

    /// Drops a database, even if clients are connected.
    pub async fn remove_database(&self, url: &str) {
        let name = url.trim_start_matches("postgres:///").split('?').next().unwrap_or_default();
        self.administer(&format!("drop database {name} with (force)")).await;
    }

    async fn administer(&self, statement: &str) {
        let mut connection = PgConnection::connect(&self.url("postgres")).await.expect("the server answers");
        let statement = AssertSqlSafe(statement.to_owned());
        sqlx::raw_sql(statement).execute(&mut connection).await.expect("the superuser runs the statement");
        connection.close().await.expect("the connection closes");
    }

    fn wait_until_ready(&self) {
        let began = Instant::now();
        let ready = || {
            let mut command = Command::new(self.binaries.join("pg_isready"));
            command.arg("-q").arg("-h").arg(&self.folder).status().is_ok_and(|status| status.success())
        };
        while !ready() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < START_MAX, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn spawn_supervisor(folder: &Path, binaries: &Path, account: Option<&str>, settings: &[impl AsRef<OsStr>]) -> Child {
    let server = as_account(account, &binaries.join("postgres"));
    let mut supervisor = Command::new("sh");
    supervisor.args(["-c", SUPERVISOR_SCRIPT, "sh"]).arg(folder).arg(server.get_program()).args(server.get_args());
    supervisor.arg("-D").arg(folder.join("data")).arg("-k").arg(folder).args(["-c", "listen_addresses="]);
    for setting in settings {
        supervisor.arg("-c").arg(setting);
    }
    // In its own process group it survives signals to the tests' group and can still clean up.
    supervisor.current_dir(folder).stdin(Stdio::piped()).process_group(0).spawn().expect("a shell starts")
}

fn as_account(account: Option<&str>, program: &Path) -> Command {
    match account {
        None => Command::new(program),
        Some(account) => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", account, "--regid", account, "--clear-groups", "--"]).arg(program);
            command
        }
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn account() -> &'static str {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if passwd.lines().any(|line| line.starts_with("postgres:")) { "postgres" } else { "nobody" }
}

/// Returns the directory of PostgreSQL's programs. Installs PostgreSQL if it is missing and the process is root, and otherwise panics, so
/// that no test is skipped silently.
fn binaries() -> PathBuf {
    if let Some(found) = installed() {
        return found;
    }
    if is_root() {
        for arguments in [&["update"][..], &["install", "-y", "--no-install-recommends", "postgresql"]] {
            // At this run level Debian does not start a server after the installation.
            let mut apt = Command::new("apt-get");
            let _ = apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").status();
        }
    }
    installed().expect("PostgreSQL is missing and apt-get could not install it: install the package `postgresql`")
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.filter_map(Result::ok).map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    let is_complete =
        |folder: &PathBuf| ["postgres", "initdb", "pg_isready"].iter().all(|name| folder.join(name).is_file());
    std::env::split_paths(&path).chain(versions.into_iter().rev()).find(is_complete)
}
