//! A test machine for the script: a folder that serves as its root, the real shells of this host, and tools that a test can remove.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use flate2::{Compression, write::GzEncoder};
use gpuaas_model::Timestamp;
use gpuaas_trust::{EnrollmentString, SecretText, sha256_hex};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;

pub(super) const SCRIPT: &str = include_str!("../../../../api/src/routes/install/install.sh");
/// The agent program of these tests, a script that prints one line.
pub(super) const AGENT: &str = "#!/bin/sh\necho an agent of a test\n";
/// The system programs that the script calls.
const TOOLS: [&str; 25] = [
    "base64",
    "cat",
    "chmod",
    "cp",
    "curl",
    "cut",
    "date",
    "flock",
    "grep",
    "gzip",
    "head",
    "id",
    "ln",
    "mkdir",
    "mktemp",
    "mv",
    "rm",
    "sed",
    "sha256sum",
    "sort",
    "tail",
    "tar",
    "tr",
    "uname",
    "wget",
];

/// The command line of a shell that runs the script.
pub(super) type Shell = &'static [&'static str];

/// Returns the shells present on this host, among those that machines install as `sh`; prints which are missing.
pub(super) fn shells() -> Vec<Shell> {
    let of_machines: [Shell; 4] = [&["sh"], &["dash"], &["bash", "--posix"], &["busybox", "sh"]];
    let (here, missing): (Vec<Shell>, Vec<Shell>) = of_machines
        .into_iter()
        .partition(|shell| Command::new(shell[0]).args(&shell[1..]).args(["-c", ":"]).output().is_ok());
    if !missing.is_empty() {
        println!("    NOT RUN by {missing:?}: not on this machine");
    }
    here
}

/// A machine: its root folder, its folder for temporary files, and its environment variables.
pub(super) struct Machine {
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl Machine {
    pub(super) fn new() -> Self {
        // The space in the path tests the script's quoting.
        let folder = tempfile::Builder::new().prefix("a machine ").tempdir().expect("a folder");
        fs::create_dir(folder.path().join("root")).expect("made");
        fs::create_dir(folder.path().join("tmp")).expect("made");
        Self { folder, environment: Vec::new() }
    }

    /// Returns the folder that serves as the machine's root.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Returns the path of a file below the root.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub(super) fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Limits the machine's programs to [`TOOLS`] except `without`, and replaces those that `instead` names.
    pub(super) fn with_tools(self, without: &[&str], instead: &[(&str, &str)]) -> Self {
        let tools = self.folder.path().join("tools");
        fs::create_dir(&tools).expect("made");
        for tool in TOOLS.iter().filter(|tool| !without.contains(tool)) {
            if let Some(program) = found(tool) {
                symlink(program, tools.join(tool)).expect("linked");
            }
        }
        for (tool, text) in instead {
            let _ = fs::remove_file(tools.join(tool));
            executable(&tools.join(tool), text);
        }
        let path = tools.to_str().expect("a text").to_owned();
        self.set("PATH", &path)
    }

    /// Runs the script as `curl … | sh -s -- ARGUMENTS` does.
    pub(super) fn run(&self, shell: Shell, arguments: &[&str]) -> Output {
        self.run_text(shell, SCRIPT, arguments)
    }

    /// Runs `text` instead of the script.
    pub(super) fn run_text(&self, shell: Shell, text: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(found(shell[0]).expect("it is here"));
        command.args(&shell[1..]).args(["-s", "--"]).args(arguments);
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"] {
            command.env_remove(name);
        }
        command.env("DESTDIR", self.root()).env("TMPDIR", self.folder.path().join("tmp"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
        let mut input = child.stdin.take().expect("a pipe");
        // A script that refuses early closes its input before it has read everything, so the write may fail.
        let _ = input.write_all(text.as_bytes());
        drop(input);
        child.wait_with_output().expect("it ends")
    }

    /// Returns the sorted paths of all files, links and folders below the root.
    pub(super) fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.root(), &self.root(), &mut found);
        found.sort();
        found
    }

    /// Returns true if the runs left nothing in the folder for temporary files.
    pub(super) fn is_tidy(&self) -> bool {
        fs::read_dir(self.folder.path().join("tmp")).expect("a folder").next().is_none()
    }
}

fn walk(root: &Path, folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        into.push(path.strip_prefix(root).expect("below it").to_str().expect("a text").to_owned());
        if entry.file_type().expect("a kind").is_dir() {
            walk(root, &path, into);
        }
    }
}

pub(super) fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// Returns the path of a program found on `PATH`.
pub(super) fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").expect("a path");
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Formats an output for the message of a failed assertion.
pub(super) fn describe_output(output: &Output) -> String {
    format!(
        "{:?}\nout: {}\nerr: {}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Part of the next action that the script names, for the codes that operators meet most.
const NEXT: [(&str, &str); 9] = [
    ("clock_skewed", "set this machine's clock"),
    ("install_architecture_unsupported", "the control plane has one for: "),
    ("install_authority_mismatch", "print a new line there (gpuaas node enroll NODE)"),
    ("install_connection_refused", "check that the control plane runs there"),
    ("install_folder_noexec", "mount it without noexec"),
    ("install_name_unresolved", "check this machine's name resolution"),
    ("install_not_root", "run it as root"),
    ("install_proxy_only", "let this machine reach the ports 7443 and 7444"),
    ("install_string_damaged", "copy the complete line"),
];

/// Asserts that the script refused with this code and exit status, named a next action and the error page, and left no temporary files.
pub(super) fn assert_refused(machine: &Machine, output: &Output, code: &str, status: i32) {
    let error = String::from_utf8_lossy(&output.stderr);
    let next = NEXT.iter().find(|(of, _)| *of == code).map_or("", |(_, next)| next);
    let has_next = error.lines().nth(1).is_some_and(|line| !line.trim().is_empty() && line.contains(next));
    let page = format!("/docs/errors/{code} · exit status {status}");
    let holds = output.status.code() == Some(status) && error.contains(&format!("({code})")) && error.contains(&page);
    assert!(
        holds && has_next && error.lines().count() == 3,
        "expected {code}, exit status {status}, and on the second line the next action {next:?}:\n{}",
        describe_output(output)
    );
    assert!(machine.is_tidy(), "temporary files remain");
}

/// Returns an enrollment string with this URL that pins this authority.
pub(super) fn string_of(url: &str, ca_sha256: &str) -> EnrollmentString {
    EnrollmentString {
        url: url.to_owned(),
        control_plane: "cp-1".to_owned(),
        node: "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().expect("an id"),
        name: "gpu-07".parse().expect("a name"),
        token: SecretText::new("gpuaas-enroll_c2VjcmV0LW9mLWEtdGVzdC10aGF0LWlzLW5vdC1vbmU".to_owned()),
        ca_sha256: ca_sha256.to_owned(),
        expires_at: Timestamp::from_millis(4_000_000_000_000),
    }
}

/// Returns an enrollment string for the control plane that the ready file describes.
pub(super) fn string_for(ready: &Value) -> String {
    let authority = fs::read(ready["ca_file"].as_str().expect("a path")).expect("the authority");
    let authority = CertificateDer::from_pem_slice(&authority).expect("a certificate");
    let string = string_of(ready["url"].as_str().expect("a URL"), &sha256_hex(&authority));
    string.encode().expose().to_owned()
}

/// Returns this machine's architecture in the spelling of package names.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Writes an agent package for `architecture` and a `SHA256SUMS` that lists it alone. Returns the package's file name.
pub(super) fn write_package(folder: &Path, architecture: &str, agent: &str) -> String {
    fs::create_dir_all(folder).expect("made");
    let top = format!("gpuaas-agent-0.1.0-1-linux-{architecture}");
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, mode, content) in [
        ("bin/gpuaas-agent", 0o755, agent),
        ("lib/systemd/system/gpuaas-agent.service", 0o644, "[Service]\n"),
        ("share/gpuaas-agent/install.sh", 0o755, SCRIPT),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        tar.append_data(&mut header, format!("{top}/{path}"), content.as_bytes()).expect("packed");
    }
    let bytes = tar.into_inner().and_then(GzEncoder::finish).expect("packed");
    let name = format!("{top}.tar.gz");
    fs::write(folder.join(&name), &bytes).expect("written");
    fs::write(folder.join("SHA256SUMS"), format!("{}  {name}\n", sha256_hex(&bytes))).expect("written");
    name
}
