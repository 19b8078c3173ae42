use super::*;

fn settings(arguments: &[&str]) -> anyhow::Result<Settings> {
    let list: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
    Settings::from_options(Role::Server, HostPaths::new(None, paths::DEFAULT_DATA_DIR), config::parse_arguments(&list)?)
}

#[test]
fn the_apiserver_takes_the_first_service_address() {
    let settings = settings(&["--node-ip", "127.3.2.1", "--service-cidr", "10.99.0.0/16"]).unwrap();
    assert_eq!(settings.apiserver_service_address().unwrap().to_string(), "10.99.0.1");
    assert_eq!(settings.cluster_dns, "10.99.0.10");
    assert_eq!(settings.address.to_string(), "127.3.2.1");
}

#[test]
fn booted_node_listens_everywhere_and_sandbox_node_on_its_address() {
    let given = ["--node-ip", "127.3.2.1", "--bind-address", "127.3.2.1"].map(str::to_owned);
    let of = |root: Option<&str>| {
        let paths = HostPaths::new(root.map(Into::into), paths::DEFAULT_DATA_DIR);
        Settings::from_options(Role::Server, paths, config::parse_arguments(&given).unwrap()).unwrap()
    };
    let (booted, sandbox) = (of(None), of(Some("/s/n1")));
    assert_eq!(booted.apiserver_listens_on().to_string(), "0.0.0.0");
    assert_eq!(booted.local().to_string(), "127.0.0.1");
    for address in [sandbox.local(), sandbox.apiserver_listens_on()] {
        assert_eq!(address.to_string(), "127.3.2.1");
    }
}

#[test]
fn supervisor_listens_on_bind_address_and_loopback_except_in_a_sandbox() {
    let of = |root: Option<&str>, bind: &[&str]| {
        let given = [&["--node-ip=127.3.2.1"][..], bind].concat().iter().map(|&a| a.to_owned()).collect::<Vec<_>>();
        let paths = HostPaths::new(root.map(Into::into), paths::DEFAULT_DATA_DIR);
        let settings = Settings::from_options(Role::Server, paths, config::parse_arguments(&given).unwrap()).unwrap();
        let addresses = settings.supervisor_listens_on().unwrap();
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of(None, &["--bind-address=10.4.0.7"]), "10.4.0.7 127.0.0.1 ::1");
    assert_eq!(of(None, &["--bind-address=127.0.0.1"]), "127.0.0.1 ::1");
    assert_eq!(of(None, &["--bind-address=::"]), "::");
    assert_eq!(of(None, &[]), "0.0.0.0");
    assert_eq!(of(Some("/s/n1"), &["--bind-address=10.4.0.7"]), "127.3.2.1", "loopback belongs to the machine");
}

#[test]
fn cluster_reset_is_refused_and_named() {
    for asked in ["--cluster-reset", "--cluster-reset=TRUE"] {
        let refused = settings(&["--node-ip", "127.3.2.1", asked]).err().unwrap().to_string();
        assert!(refused.contains("no cluster reset"), "{asked}: {refused}");
    }
    let refused = settings(&["--node-ip", "127.3.2.1", "--cluster-reset-restore-path=/s"]).err().unwrap().to_string();
    assert_eq!(refused, "invalid flag use; --cluster-reset required with --cluster-reset-restore-path");
    assert!(settings(&["--node-ip", "127.3.2.1", "--cluster-reset=false"]).is_ok());
}

#[test]
fn token_file_beats_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "of the file\n").unwrap();
    let file = format!("--token-file={}", file.display());
    let settings = settings(&["--node-ip", "127.3.2.1", "--token", "of the line", &file]).unwrap();
    assert_eq!(settings.token.as_deref(), Some("of the file"));
}

#[test]
fn an_unknown_cni_is_refused_with_the_real_text() {
    let refused = settings(&["--node-ip", "127.3.2.1", "--cni", "weave"]).err().unwrap().to_string();
    assert_eq!(refused, "Invalid value weave for --cni flag: must be one of calico,canal,cilium,flannel");
}

#[test]
fn a_node_name_is_lower_case_as_kubernetes_wants_it() {
    assert_eq!(settings(&["--node-ip", "127.3.2.1", "--node-name", "GPU-7"]).unwrap().node_name, "gpu-7");
}
