//! The first minutes of a platform: nodes enroll, a signed task runs, allocations become active, and every process ends with its parent.

use std::{path::Path, process::Command};

use gpuaas_api_types::ImportRelease;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, ClientConfig, RootCertStore},
};

use crate::world::{GPUAAS, PROJECT, Platform, eventually, import_request, release, until};

#[test]
fn a_sandbox_node_enrolls_runs_a_signed_task_and_its_event_is_shown() {
    let dev = Platform::start(1);
    let node = dev.json(&["node", "show", "demo-1"]);
    assert_eq!((node["state"].as_str(), node["connectivity"].as_str()), (Some("active"), Some("connected")));
    let ping = &dev.json(&["node", "ping", "demo-1"])[0];
    assert_eq!(ping["task"]["state"], "succeeded");
    let task = ping["task"]["id"].as_str().expect("an id");
    let events = dev.json(&["event", "list"]);
    let reported: Vec<_> =
        events.as_array().expect("a list").iter().filter(|event| event["subject_id"] == task).collect();
    let states: Vec<_> = reported.iter().filter_map(|event| event["data"]["state"].as_str()).collect();
    assert_eq!(states, ["dispatched", "succeeded"]);
    let audit = dev.json(&["audit", "list", "--target", "node/demo-1"]);
    let actions: Vec<_> =
        audit.as_array().expect("a list").iter().filter_map(|record| record["action"].as_str()).collect();
    for action in ["node.register", "node.enroll", "node.ping", "task.dispatch", "task.complete"] {
        assert!(actions.contains(&action), "{action} is missing in {actions:?}");
    }
}

#[test]
fn nodes_come_back_when_dev_is_started_again_in_the_same_folder() {
    let mut dev = Platform::start(2);
    let before = dev.json(&["node", "show", "demo-2"])["id"].clone();
    dev.restart(2);
    assert_eq!(dev.json(&["node", "show", "demo-2"])["id"], before);
    assert_eq!(dev.json(&["node", "ping", "demo-2"])[0]["task"]["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn running_cluster_comes_up_again_with_its_sandboxes() {
    let mut dev = Platform::with_release(2, &[]).await;
    let started = dev.client().deploy_workload(&dev.deployment("train", &[2]).await).await.expect("accepted");
    assert_eq!(dev.await_end(&started).await.operation.state, "succeeded");
    tokio::task::block_in_place(|| {
        dev.terminate();
        dev.restart(2);
    });
    let client = dev.client();
    let services = ["bin/rke2 server", "bin/rke2 agent"];
    eventually("the distribution does not start again", async || {
        let processes = dev.processes();
        services.iter().all(|service| processes.iter().any(|(_, text)| text.contains(service)))
    })
    .await;
    eventually("the workload does not become healthy again", async || {
        let detail = client.get_workload(Some(PROJECT.into()), "train").await.expect("a workload");
        detail.workload.health == "healthy" && detail.members.iter().all(|member| member.health == "healthy")
    })
    .await;
    eventually("the cluster does not respond", async || {
        dev.gpuaas(&["workload", "kubeconfig", "train", "--project", PROJECT, "-o", "json"]).status.success()
    })
    .await;
}

#[test]
fn reset_or_retired_node_does_not_hold_up_a_start_and_a_reset_one_enrolls_again() {
    let mut dev = Platform::start(3);
    let before = std::fs::read_to_string(dev.node_file(2, "etc/machine-id")).expect("a machine id");
    dev.json(&["node", "reset", "demo-2", "--force", "--reason", "a test", "--yes"]);
    dev.json(&["node", "retire", "demo-3", "--yes"]);
    let began = std::time::Instant::now();
    dev.restart(3);
    assert!(began.elapsed().as_secs() < 30, "the start took {:?}", began.elapsed());
    assert_eq!(dev.json(&["node", "ping", "demo-2"])[0]["task"]["state"], "succeeded");
    let after = std::fs::read_to_string(dev.node_file(2, "etc/machine-id")).expect("a machine id");
    assert_ne!(before, after, "its sandbox was not emptied");
    let printed = std::fs::read_to_string(dev.file("output.txt")).expect("output");
    assert!(printed.contains("demo-3 is retired: gpuaas node delete demo-3"), "{printed}");
    assert_eq!(dev.ready()["nodes"].as_array().map(Vec::len), Some(2), "a node that cannot connect is not ready");
}

#[test]
fn start_with_the_addresses_of_another_process_names_it() {
    let dev = Platform::start(0);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(dev.file("data/addresses"), folder.path().join("addresses")).expect("copied");
    let output = folder.path().join("output.txt");
    let mut other = Command::new(GPUAAS)
        .args(["dev", "--listen", "127.0.0.1:0", "--nodes", "0", "--data-dir"])
        .arg(folder.path())
        .stderr(std::fs::File::create(&output).expect("a file"))
        .spawn()
        .expect("gpuaas runs");
    let began = std::time::Instant::now();
    while other.try_wait().expect("a child").is_none() && began.elapsed().as_secs() < 30 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // It has ended, unless it took other addresses.
    let _ = other.kill();
    let refused = other.wait().expect("a child");
    let printed = std::fs::read_to_string(&output).expect("output");
    let holder = format!("are taken by process {} (", dev.child.id());
    assert!(refused.code().is_some_and(|code| code != 0) && printed.contains(&holder), "{printed}");
}

#[test]
fn an_allocated_node_becomes_active_and_a_second_project_cannot_have_it() {
    let dev = Platform::start(1);
    for name in ["one", "two"] {
        dev.json(&["project", "create", name]);
    }
    dev.json(&["allocation", "create", "--node", "demo-1", "--project", "one"]);
    until("the allocation does not become active", || {
        dev.json(&["allocation", "list", "--project", "one"])[0]["state"] == "active"
    });
    let refused = dev.gpuaas(&["allocation", "create", "--node", "demo-1", "--project", "two"]);
    assert_eq!(refused.status.code(), Some(5), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("node_unavailable"));
}

#[test]
fn a_killed_parent_leaves_no_process_behind() {
    let mut dev = Platform::start(2);
    assert!(dev.processes().len() >= 6, "control plane, two inits, two agents and the parent");
    dev.child.kill().expect("a child");
    dev.child.wait().expect("a child");
    until("processes remain", || dev.processes().is_empty());
}

#[test]
fn bad_input_is_refused_with_its_code_and_exit_status() {
    let dev = Platform::start(0);
    let cases: [(&[&str], i32, &str); 5] = [
        (&["node", "register", "GPU_07"], 2, "field_invalid"),
        (&["node", "show", "nobody"], 3, "not_found"),
        (&["node", "list", "--state", "asleep"], 2, "query_invalid"),
        (&["token", "create", "x", "--role", "emperor"], 2, "field_invalid"),
        (&["token", "revoke", "garbage", "--yes"], 3, "not_found"),
    ];
    for (arguments, exit, code) in cases {
        let output = dev.gpuaas(arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {printed}");
        assert!(printed.contains(code) && printed.contains("correlation"), "{arguments:?}: {printed}");
    }
    let anonymous = Command::new(GPUAAS)
        .args(["whoami"])
        .env("GPUAAS_READY_FILE", &dev.ready_file)
        .env("GPUAAS_TOKEN", "gpuaas_wrong")
        .output()
        .expect("gpuaas runs");
    assert_eq!(anonymous.status.code(), Some(6));
}

#[test]
fn occupied_port_and_data_directory_in_use_are_refused() {
    let dev = Platform::start(0);
    let ready: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&dev.ready_file).expect("ready")).expect("JSON");
    let listen = ready["url"].as_str().and_then(|url| url.strip_prefix("https://")).expect("a URL").to_owned();
    let server = |data_dir: &Path, listen: &str| {
        let mut command = Command::new(GPUAAS);
        command.args(["server", "--channel-listen", "127.0.0.1:0", "--listen", listen, "--data-dir"]).arg(data_dir);
        command.output().expect("gpuaas runs")
    };
    let elsewhere = tempfile::tempdir().expect("a folder");
    let taken = server(elsewhere.path(), &listen);
    assert_eq!(taken.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&taken.stderr).contains("address_in_use"));
    let in_use = server(&dev.folder.join("data/server"), "127.0.0.1:0");
    assert_eq!(in_use.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&in_use.stderr).contains("data_dir_in_use"));
}

#[test]
fn ready_file_of_an_earlier_run_is_removed_and_that_of_a_running_one_is_kept() {
    let dev = Platform::start(0);
    let again = |data_dir: &Path, listen: &str, ready: &Path| {
        let mut command = Command::new(GPUAAS);
        command.args(["dev", "--nodes", "0", "--listen", listen, "--data-dir"]).arg(data_dir);
        let ended = command.arg("--ready-file").arg(ready).output().expect("gpuaas runs");
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let (status, printed) = again(&dev.file("data"), "127.0.0.1:0", &dev.ready_file);
    assert!(status == Some(5) && printed.contains("data_dir_in_use"), "{printed}");
    let used = dev.ready()["url"].as_str().expect("a URL").trim_start_matches("https://").to_owned();
    let earlier = dev.file("earlier.json");
    std::fs::write(&earlier, "{}").expect("written");
    let (status, printed) = again(&dev.file("other"), &used, &earlier);
    assert!(status == Some(5) && printed.contains("address_in_use"), "{printed}");
    assert!(!earlier.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_variables_leave_the_defaults_of_dev() {
    let settings = [("GPUAAS_RELEASE_IMPORT_DIR", ""), ("GPUAAS_ALLOW_UNVERIFIED_RELEASES", "")];
    let dev = Platform::start_with(0, &settings);
    let ask = ImportRelease { sums_sha256: None, ..import_request(release()) };
    dev.client().import_artifacts(&ask).await.expect("imported");
}

/// Returns the command of a control plane that ends once it is ready, because its lifeline is closed.
fn server(data_dir: &Path) -> Command {
    let mut command = Command::new(GPUAAS);
    command.args(["server", "--lifeline", "--channel-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(data_dir).stdin(std::process::Stdio::piped());
    command
}

#[test]
fn unwritable_data_directory_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("written");
    let refused = server(&folder.path().join("file/inside")).output().expect("gpuaas runs");
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && printed.contains("data_dir_not_writable"), "{printed}");
}

#[test]
fn shared_store_without_key_or_database_is_refused_without_its_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |key: Option<&Path>| {
        let mut command = server(&folder.path().join("data"));
        command.env("GPUAAS_STORE_URL", "postgres://gpuaas:hunter2@127.0.0.1:1/gpuaas");
        command.args(key.map(|key| format!("--sealing-key-file={}", key.display())));
        let output = command.output().expect("gpuaas runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, printed) = start(None);
    assert!(status == Some(1) && printed.contains("sealing_key_required"), "{printed}");
    let key = folder.path().join("key");
    std::fs::write(&key, [1; 31]).expect("written");
    let (status, printed) = start(Some(&key));
    assert!(status == Some(1) && printed.contains("32 bytes"), "{printed}");
    std::fs::write(&key, [1; 32]).expect("written");
    let (status, printed) = start(Some(&key));
    assert!(status == Some(7) && printed.contains("unavailable") && !printed.contains("hunter2"), "{printed}");
}

#[test]
fn remote_shared_store_requires_verified_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, [1; 32]).expect("written");
    let asked = |verb: &[&str], url: &str, environment: &[(&str, &str)]| {
        let mut command = Command::new(GPUAAS);
        command.arg("server").args(verb).arg("--data-dir").arg(folder.path().join("data"));
        command.env("GPUAAS_SEALING_KEY_FILE", &key).env("GPUAAS_STORE_URL", url);
        for name in ["PGSSLMODE", "PGHOST", "PGHOSTADDR"] {
            command.env_remove(name);
        }
        let output = command.envs(environment.iter().copied()).output().expect("gpuaas runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    const PLAIN: &str = "postgres://u:hunter2@192.0.2.7/gpuaas";
    for (url, environment, is_taken) in [
        (PLAIN, &[][..], false),
        (PLAIN, &[("PGSSLMODE", "verify-full")], true),
        (PLAIN, &[("PGSSLMODE", "require")], false),
        (PLAIN, &[("PGSSLMODE", "perhaps")], false),
        ("postgres://u:hunter2@192.0.2.7/gpuaas?sslmode=verify-full", &[("PGSSLMODE", "disable")], true),
        ("postgres:///gpuaas?user=u&password=hunter2", &[("PGHOST", "192.0.2.7")], false),
        ("postgres:///gpuaas?user=u&password=hunter2", &[("PGHOSTADDR", "192.0.2.7"), ("PGHOST", "localhost")], false),
        ("postgres:///gpuaas", &[("PGHOST", "/run/postgresql")], true),
    ] {
        let (status, printed) = asked(&["check-config"], url, environment);
        assert_eq!(status == Some(0), is_taken, "{url} {environment:?}: {printed}");
        assert_eq!(printed.contains("database_unverified"), !is_taken, "{url} {environment:?}: {printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
    let (status, printed) = asked(&["--listen", "127.0.0.1:0", "--channel-listen", "127.0.0.1:0"], PLAIN, &[]);
    assert_eq!(status, Some(4), "{printed}");
    assert!(printed.contains("--store-url-file") && printed.contains("sslmode=verify-full"), "{printed}");
}

#[test]
fn check_config_prints_settings_and_problems_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("server.toml");
    let check = |text: String| {
        std::fs::write(&file, text).expect("written");
        let mut command = Command::new(GPUAAS);
        command.args(["server", "check-config", "-o", "json", "--config"]).arg(&file);
        let output = command.env("GPUAAS_LISTEN", "127.0.0.1:1").output().expect("gpuaas runs");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), serde_json::from_slice::<serde_json::Value>(&output.stdout).ok(), printed)
    };
    let data_dir = folder.path().join("data");
    let (status, settings, printed) = check(format!("data-dir = {data_dir:?}\nlisten = \"127.0.0.1:2\"\n"));
    assert_eq!(status, Some(0), "{printed}");
    let settings = settings.expect("JSON");
    let of = |key: &str| settings.as_array().and_then(|all| all.iter().find(|one| one["key"] == key)).cloned();
    assert_eq!(of("listen").expect("a setting")["from"], "environment");
    assert_eq!(of("data-dir").expect("a setting")["from"], "file");
    assert!(!data_dir.exists(), "check-config created the data directory");

    let (status, _, printed) =
        check("data-dir = \"/proc/version/data\"\nsealing-key-file = \"/nonexistent\"\n".to_owned());
    assert_ne!(status, Some(0));
    assert!(
        printed.contains("data_dir_not_writable") && printed.contains("/nonexistent"),
        "a problem is missing: {printed}"
    );
    let (status, settings, printed) = check("lissten = \"x\"\nkeep-audit = \"5x\"\n".to_owned());
    let errors: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(status, Some(2), "{printed}");
    let at = |number: usize| errors["errors"][number]["at"].as_str().unwrap_or_default().to_owned();
    assert!(at(0).ends_with("server.toml:1") && at(1).ends_with("server.toml:2"), "{printed}");
    assert!(!printed.contains("Usage:"), "{printed}");
    assert!(settings.expect("JSON").to_string().contains("GPUAAS_LISTEN"), "the settings are printed, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_1_2_client_is_accepted_only_if_configured() {
    for (minimum, is_let_in) in [(None, false), (Some(("GPUAAS_TLS_MIN_VERSION", "1.2")), true)] {
        let settings: Vec<_> = minimum.into_iter().collect();
        // A node connects either way: the node channel accepts TLS 1.3 only.
        let platform = tokio::task::block_in_place(|| Platform::start_with(1, &settings));
        let ready = platform.ready();
        let authority = std::fs::read(ready["ca_file"].as_str().expect("a path")).expect("the authority");
        let authority = CertificateDer::from_pem_slice(&authority).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(authority).expect("a root");
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS12]);
        let tls = tls.expect("versions").with_root_certificates(roots).with_no_client_auth();
        let address = ready["url"].as_str().and_then(|url| url.strip_prefix("https://")).expect("a URL");
        let stream = tokio::net::TcpStream::connect(address).await.expect("connected");
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let ended = TlsConnector::from(std::sync::Arc::new(tls)).connect(name, stream).await;
        assert_eq!(ended.is_ok(), is_let_in, "{minimum:?}: {:?}", ended.err());
    }
}
