//! Files that the installation script downloads, installs and leaves behind.

use std::{fs, process::Command};

use super::machine::{
    AGENT, Machine, architecture, assert_refused, describe_output, found, shells, string_for, write_package,
};
use crate::{small_disk::SmallDisk, world::Platform};

/// A control plane with an agent package for this machine's architecture.
struct Site {
    platform: Platform,
    packages: tempfile::TempDir,
}

impl Site {
    fn start() -> Self {
        let packages = tempfile::tempdir().expect("a folder");
        write_package(packages.path(), architecture(), AGENT);
        let folder = packages.path().to_str().expect("a text").to_owned();
        Self { platform: Platform::start_with(0, &[("GPUAAS_PACKAGES_DIR", &folder)]), packages }
    }

    fn machine(&self) -> Machine {
        Machine::new().set("GPUAAS_ENROLL", &string_for(&self.platform.ready()))
    }
}

fn assert_succeeds(machine: &Machine, output: &std::process::Output) -> String {
    assert!(output.status.success() && machine.is_tidy(), "{}", describe_output(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn installation_is_complete_idempotent_and_removable() {
    let site = Site::start();
    for shell in shells() {
        let machine = site.machine();
        let first = assert_succeeds(&machine, &machine.run(shell, &[]));
        assert!(first.contains("installed gpuaas-agent-0.1.0-1-linux-"), "{first}");
        let program = machine.file("usr/local/bin/gpuaas-agent");
        assert_eq!(fs::read_to_string(&program).expect("it is there"), AGENT);
        let mode = |path: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::metadata(machine.file(path)).expect("it is there").permissions().mode() & 0o777
        };
        let modes = ["usr/local/bin/gpuaas-agent", "etc/systemd/system/gpuaas-agent.service", "var/lib/gpuaas-agent"];
        assert_eq!(modes.map(mode), [0o755, 0o644, 0o700]);
        assert!(machine.file("etc/systemd/system/multi-user.target.wants/gpuaas-agent.service").exists());
        assert!(!machine.file("var/lib/gpuaas-agent/enroll").exists(), "an enrollment string remains");
        let (before, written) = (machine.tree(), fs::metadata(&program).and_then(|of| of.modified()).expect("a time"));
        let again = assert_succeeds(&machine, &machine.run(shell, &[]));
        assert!(!again.contains("installed "), "{again}");
        assert_eq!(
            (machine.tree(), fs::metadata(&program).and_then(|of| of.modified()).expect("a time")),
            (before, written)
        );

        for fix in ["etc/sysctl.d/60-gpuaas-inotify.conf", "etc/sysctl.d/of-the-operator.conf"] {
            fs::create_dir_all(machine.file("etc/sysctl.d")).expect("made");
            fs::write(machine.file(fix), "").expect("written");
        }
        let removed = assert_succeeds(&machine, &machine.run(shell, &["--uninstall"]));
        assert!(removed.contains("removed the agent"), "{removed}");
        let left = machine.tree();
        let files: Vec<&String> = left.iter().filter(|path| machine.file(path).is_file()).collect();
        assert_eq!(files, ["etc/sysctl.d/of-the-operator.conf"]);
        assert!(!left.iter().any(|path| path.contains("gpuaas")), "{left:?}");
        let nothing = assert_succeeds(&machine, &machine.run(shell, &["--uninstall"]));
        assert!(nothing.contains("nothing to do: there is no agent here"), "{nothing}");
    }
}

#[test]
fn upgrade_replaces_the_agent_and_restores_missing_files() {
    let site = Site::start();
    let machine = site.machine();
    assert_succeeds(&machine, &machine.run(&["sh"], &[]));
    write_package(site.packages.path(), architecture(), "#!/bin/sh\necho a newer one\n");
    let upgraded = assert_succeeds(&machine, &machine.run(&["sh"], &[]));
    assert!(upgraded.contains("installed "), "{upgraded}");
    let program = machine.file("usr/local/bin/gpuaas-agent");
    assert!(fs::read_to_string(&program).expect("it is there").contains("a newer one"));
    for taken in ["usr/local/bin/gpuaas-agent", "etc/systemd/system/gpuaas-agent.service"] {
        fs::remove_file(machine.file(taken)).expect("removed");
        assert!(assert_succeeds(&machine, &machine.run(&["sh"], &[])).contains("installed "), "{taken}");
        assert!(machine.file(taken).exists());
    }
}

#[test]
fn package_with_a_wrong_digest_is_not_installed() {
    let site = Site::start();
    let name = write_package(site.packages.path(), architecture(), AGENT);
    let package = site.packages.path().join(name);
    let mut bytes = fs::read(&package).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    for bytes in [bytes.as_slice(), &bytes[..middle], b""] {
        fs::write(&package, bytes).expect("written");
        let machine = site.machine();
        assert_refused(&machine, &machine.run(&["sh"], &[]), "install_package_damaged", 4);
        assert!(!machine.tree().iter().any(|path| path.contains("gpuaas-agent")));
    }
}

#[test]
fn unsupported_architecture_is_refused_with_the_supported_ones() {
    let site = Site::start();
    for shell in shells() {
        let machine = site.machine().with_tools(&[], &[("uname", "#!/bin/sh\necho riscv64\n")]);
        let output = machine.run(shell, &[]);
        // busybox may run its built-in tools instead of those on the path.
        if shell[0] == "busybox" && output.status.success() {
            println!("    NOT RUN by busybox: its uname cannot be replaced");
            continue;
        }
        assert_refused(&machine, &output, "install_architecture_unsupported", 4);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("riscv64") && error.contains(&format!("has one for: {}", architecture())), "{error}");
    }
}

#[test]
fn script_passes_no_secret_in_arguments_or_environments() {
    let site = Site::start();
    let seen = tempfile::tempdir().expect("a folder");
    let log = seen.path().join("log");
    let tools = ["curl", "sha256sum", "tar", "base64", "tr", "cut", "mktemp", "mkdir", "cp"];
    let spies: Vec<(&str, String)> = tools
        .iter()
        .map(|tool| {
            let program = found(tool).expect("it is here");
            let text = format!(
                "#!/bin/sh\n{{ printf '%s\\n' {tool} \"$@\"; cat /proc/$$/environ; echo; }} >>'{}'\nexec '{}' \"$@\"\n",
                log.display(),
                program.display()
            );
            (*tool, text)
        })
        .collect();
    let spies: Vec<(&str, &str)> = spies.iter().map(|(tool, text)| (*tool, text.as_str())).collect();
    let string = string_for(&site.platform.ready());
    let machine = Machine::new().set("GPUAAS_ENROLL", &string).with_tools(&["wget"], &spies);
    assert_succeeds(&machine, &machine.run(&["sh"], &[]));
    let seen = fs::read_to_string(&log).expect("a log");
    assert!(seen.matches("curl\n").count() >= 3 && seen.contains("/install/authority.pem"), "{seen}");
    assert!(!seen.contains(&string[8..60]), "{seen}");
}

/// Returns a machine with a tmpfs mounted on one folder; prints a note and returns `None` if this user may not mount.
fn mounted(site: &Site, folder: &str, options: &str) -> Option<(Machine, Unmount)> {
    let machine = site.machine();
    let at = machine.file(folder);
    fs::create_dir_all(&at).expect("made");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&at).output();
    if !mount.is_ok_and(|mounted| mounted.status.success()) {
        println!("    NOT RUN: this user cannot mount a file system");
        return None;
    }
    Some((machine, Unmount(at)))
}

/// A mount point; dropping it unmounts.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn read_only_and_noexec_folders_are_refused_before_any_change() {
    let site = Site::start();
    for (folder, options, code) in [
        ("usr/local/bin", "ro", "install_folder_read_only"),
        ("etc/systemd/system", "ro", "install_folder_read_only"),
        ("var/lib", "ro", "install_folder_read_only"),
        ("usr/local/bin", "noexec", "install_folder_noexec"),
    ] {
        let Some((machine, _unmount)) = mounted(&site, folder, options) else { return };
        let output = machine.run(&["sh"], &[]);
        assert_refused(&machine, &output, code, 4);
        assert!(String::from_utf8_lossy(&output.stderr).contains(folder), "{}", describe_output(&output));
        assert!(!machine.tree().iter().any(|path| path.contains("gpuaas-agent")), "{:?}", machine.tree());
    }
}

#[test]
fn full_disk_is_reported_and_the_command_can_be_repeated() {
    let site = Site::start();
    for folder in ["usr/local", "var/lib", "tmp"] {
        let machine = site.machine();
        let at = machine.file(folder);
        let Some(disk) = SmallDisk::at(&at) else { return };
        let machine = if folder == "tmp" { machine.set("TMPDIR", at.to_str().expect("a text")) } else { machine };
        disk.fill();
        let output = machine.run(&["sh"], &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(7) && error.contains("(disk_full)"),
            "{folder}: {}",
            describe_output(&output)
        );
        disk.clear();
        assert!(machine.run(&["sh"], &[]).status.success(), "{folder}");
        // Unmount before the machine's folder, which contains the mount point, is deleted.
        drop(disk);
    }
}
