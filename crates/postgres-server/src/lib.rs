//! For tests: a real PostgreSQL of the process's own: in a temporary folder, on a private socket, gone with the process.
//!
//! Panics with what is wrong: its callers are tests, and one without its database has failed.

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

/// Its superuser, who needs no password on the private socket.
const USER: &str = "gpuaas";
/// Longest start, after a crash too.
const START_MAX: Duration = Duration::from_secs(60);
/// Runs the server until standard input ends, which it does when this process does, however it ends. A word on it is the signal to stop
/// with instead; then the folder stays.
const KEEPER: &str = r#"folder=$1; shift
"$@" >>"$folder/log" 2>&1 </dev/null & server=$!
read -r signal
kill -"${signal:-INT}" "$server"; wait "$server"
[ -n "$signal" ] || rm -rf "$folder""#;

/// A running server.
pub struct Server {
    folder: PathBuf,
    binaries: PathBuf,
    account: Option<String>,
    settings: Vec<String>,
    keeper: Child,
}

impl Server {
    /// The one that all tests share. What it holds need not outlive a power cut.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&["fsync=off", "max_connections=300"], &[]))
    }

    /// One of a test's own, with these settings and with these files beside its folder of data.
    pub fn start(settings: &[&str], files: &[(&str, String)]) -> Self {
        Self::start_in(&std::env::temp_dir(), settings, files)
    }

    /// The same with its folder in this one, which other accounts may enter.
    pub fn start_in(parent: &Path, settings: &[&str], files: &[(&str, String)]) -> Self {
        let binaries = binaries();
        let folder = tempfile::Builder::new().prefix("pg").tempdir_in(parent).expect("a folder can be made").keep();
        // The server refuses to run as root.
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
                chown(place, ids.first().copied(), ids.get(1).copied()).expect("root gives files away");
            }
        }
        let mut initdb = as_account(account.as_deref(), &binaries.join("initdb"));
        initdb.arg("-D").arg(folder.join("data")).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]);
        let made = initdb.current_dir(&folder).output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let keeper = keep(&folder, &binaries, account.as_deref(), settings);
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let server = Self { folder, binaries, account, settings, keeper };
        server.await_answer();
        server
    }

    /// Stops it with the signal and starts it again: `QUIT` is a crash, `INT` cuts connections and shuts down.
    pub fn restart(&mut self, signal: &str) {
        let mut word = self.keeper.stdin.take().expect("the keeper listens");
        writeln!(word, "{signal}").expect("the keeper listens");
        self.keeper.wait().expect("the keeper ends");
        self.keeper = keep(&self.folder, &self.binaries, self.account.as_deref(), &self.settings);
        self.await_answer();
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user={USER}", self.folder.display())
    }

    /// Makes a database that nobody has used, and returns its address.
    pub async fn fresh_database(&self) -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("store_{}", MADE.fetch_add(1, Ordering::Relaxed));
        self.administer(&format!("create database {name}")).await;
        self.url(&name)
    }

    /// Removes a database, whoever is still connected.
    pub async fn remove_database(&self, url: &str) {
        let name = url.trim_start_matches("postgres:///").split('?').next().unwrap_or_default();
        self.administer(&format!("drop database {name} with (force)")).await;
    }

    async fn administer(&self, statement: &str) {
        let mut connection = PgConnection::connect(&self.url("postgres")).await.expect("the server answers");
        let statement = AssertSqlSafe(statement.to_owned());
        sqlx::raw_sql(statement).execute(&mut connection).await.expect("the superuser may");
        connection.close().await.expect("nothing is pending");
    }

    fn await_answer(&self) {
        let began = Instant::now();
        let ready = || {
            let mut asked = Command::new(self.binaries.join("pg_isready"));
            asked.arg("-q").arg("-h").arg(&self.folder).status().is_ok_and(|status| status.success())
        };
        while !ready() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < START_MAX, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn keep(folder: &Path, binaries: &Path, account: Option<&str>, settings: &[impl AsRef<OsStr>]) -> Child {
    let server = as_account(account, &binaries.join("postgres"));
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER, "sh"]).arg(folder).arg(server.get_program()).args(server.get_args());
    keeper.arg("-D").arg(folder.join("data")).arg("-k").arg(folder).args(["-c", "listen_addresses="]);
    for setting in settings {
        keeper.arg("-c").arg(setting);
    }
    // In a group of its own it outlives what ends the tests by a signal to theirs, and can still tidy up.
    keeper.current_dir(folder).stdin(Stdio::piped()).process_group(0).spawn().expect("a shell runs")
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

/// The folder of the server's binaries. Without one it is installed, or the tests fail: a backend is never left out in silence.
fn binaries() -> PathBuf {
    if let Some(found) = installed() {
        return found;
    }
    if is_root() {
        for arguments in [&["update"][..], &["install", "-y", "--no-install-recommends", "postgresql"]] {
            // At this run level Debian starts no server of its own after the installation.
            let mut apt = Command::new("apt-get");
            let _ = apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").status();
        }
    }
    installed().expect("PostgreSQL is installed; where apt-get cannot: install the package `postgresql`")
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.filter_map(Result::ok).map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    let whole = |folder: &PathBuf| ["postgres", "initdb", "pg_isready"].iter().all(|name| folder.join(name).is_file());
    std::env::split_paths(&path).chain(versions.into_iter().rev()).find(whole)
}
