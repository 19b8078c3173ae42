use super::*;

fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, Options) {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let file = camino::Utf8PathBuf::from_path_buf(dir.path().join("config.yaml")).unwrap();
    let options = read_files(&file).unwrap();
    (dir, options)
}

fn arguments(list: &[&str]) -> anyhow::Result<Options> {
    parse_arguments(&list.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
}

#[test]
fn later_files_replace_a_key_and_a_plus_appends() {
    let (_dir, options) = folder(&[
        ("config.yaml", "node-name: a\ntls-san: [one]\nnode-label:\n- x=1\n"),
        ("config.yaml.d/20.yaml", "tls-san+:\n- three\nnode-label: [y=2]\n"),
        ("config.yaml.d/10.yaml", "node-name: b\ntls-san+: two\n"),
        ("config.yaml.d/notes.txt", "node-name: ignored\n"),
    ]);
    assert_eq!(options.value("node-name"), Some("b"));
    assert_eq!(options.list("tls-san"), ["one", "two", "three"]);
    assert_eq!(options.list("node-label"), ["y=2"]);
}

#[test]
fn unknown_key_is_skipped() {
    let (_dir, options) = folder(&[("config.yaml", "node-nam: a\ndebug: true\nlb-server-port: 6444\n")]);
    assert!(options.switch("debug"));
    assert_eq!(options.value("lb-server-port"), Some("6444"));
    assert_eq!(options.value("node-nam"), None);
}

#[test]
fn the_command_line_beats_the_files() {
    let (_dir, files) = folder(&[("config.yaml", "node-name: a\ntoken: from-file\n")]);
    let merged = files.overlay(arguments(&["--node-name=b", "--debug", "--tls-san", "x", "--tls-san", "y"]).unwrap());
    assert_eq!(merged.value("node-name"), Some("b"));
    assert_eq!(merged.value("token"), Some("from-file"));
    assert_eq!(merged.list("tls-san"), ["x", "y"]);
}

#[test]
fn command_line_and_files_beat_the_environment() {
    let set = ["RKE2_TOKEN", "RKE2_NODE_NAME", "RKE2_URL"];
    let environment = crate::environment::options(|name| set.contains(&name).then(|| format!("of {name}")));
    let (_dir, files) = folder(&[("config.yaml", "node-name: of the file\ntoken: of the file\n")]);
    let merged = files.overlay(arguments(&["--token=of the line"]).unwrap()).with_environment(environment.unwrap());
    assert_eq!(merged.value("token"), Some("of the line"));
    assert_eq!(merged.value("node-name"), Some("of the file"));
    assert_eq!(merged.value("server"), Some("of RKE2_URL"));
    assert!(!merged.as_arguments().iter().any(|argument| argument.contains("RKE2_")), "variables are not shown");
}

#[test]
fn an_unknown_option_on_the_command_line_is_refused() {
    let refused = arguments(&["--cluster-init"]).unwrap_err().to_string();
    assert_eq!(refused, "flag provided but not defined: -cluster-init");
    assert_eq!(arguments(&["--token"]).unwrap_err().to_string(), "flag needs an argument: -token");
}

#[test]
fn invalid_file_is_refused_without_quoting_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let file = camino::Utf8PathBuf::from_path_buf(dir.path().join("config.yaml")).unwrap();
    std::fs::write(&file, "token: [hunter2\n").unwrap();
    let message = format!("{:#}", read_files(&file).unwrap_err());
    assert!(message.contains("config.yaml") && !message.contains("hunter2"), "{message}");
}

#[test]
fn arguments_shown_on_the_kube_node_hide_the_token() {
    let shown = arguments(&["--token", "hunter2", "--node-name", "a"]).unwrap().as_arguments().join(" ");
    assert_eq!(shown, "--node-name a --token ********");
}
