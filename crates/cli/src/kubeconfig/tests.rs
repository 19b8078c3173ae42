use std::os::unix::fs::PermissionsExt;

use super::*;

const DELIVERED: &str = "apiVersion: v1\nkind: Config\nclusters:\n- name: \"train\"\n  cluster:\n    server: \"https://10.0.0.4:6443\"\n\
    users:\n- name: \"access-1\"\n  user:\n    token: \"t1\"\ncontexts:\n- name: \"train\"\n  context:\n    cluster: \"train\"\n    \
    user: \"access-1\"\ncurrent-context: \"train\"\n";
const MINE: &str = "apiVersion: v1\nkind: Config\npreferences: {}\nclusters:\n- name: home\n  cluster: {server: 'https://h:6443'}\n\
    users:\n- name: me\n  user: {token: '0123', exec: {args: ['yes', 'null', '1.0']}}\ncontexts:\n- name: home\n  context: {cluster: home, user: me}\n\
    current-context: home\nx-note: kept\n";

fn content(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn merge(path: &Path, keep_current: bool) {
    LockedFile::open(path).unwrap().merge(DELIVERED, "gpuaas/ml/train", keep_current).unwrap();
}

#[test]
fn other_entries_are_kept_and_a_second_merge_replaces_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    fs::write(&path, MINE).unwrap();
    let before = content(&path);
    merge(&path, true);
    assert_eq!(content(&path)["current-context"], "home");
    merge(&path, false);
    let after = content(&path);
    assert_eq!(after["current-context"], "gpuaas/ml/train");
    for (section, _) in SECTIONS {
        assert_eq!(
            (&after[section][0], after[section].as_array().unwrap().len()),
            (&before[section][0], 2),
            "{section}"
        );
    }
    assert_eq!(after["x-note"], "kept");
    assert_eq!(after["contexts"][1]["context"], json!({ "cluster": "gpuaas/ml/train", "user": "gpuaas/ml/train" }));
    assert_eq!(after["users"][1]["user"]["token"], "t1");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "neither a lock nor a backup remains");
}

#[test]
fn missing_file_is_created_and_a_link_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".kube/config");
    merge(&path, true);
    assert_eq!((&content(&path)["kind"], &content(&path)["current-context"]), (&json!("Config"), &Value::Null));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    merge(&link, false);
    assert!(link.is_symlink() && content(&path)["current-context"] == "gpuaas/ml/train");
}

#[test]
fn cluster_of_another_address_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    fs::write(&path, MINE).unwrap();
    let refused = LockedFile::open(&path).unwrap().merge(DELIVERED, "home", true).unwrap_err().to_string();
    assert!(refused.contains("https://h:6443") && refused.contains("kubectl config delete-cluster home"), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), MINE);
}

#[test]
fn damaged_or_locked_file_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    for damaged in ["clusters: [secret", "- a\n- b\n", "kind: Deployment\n", "clusters: {}\n", "just a text"] {
        fs::write(&path, damaged).unwrap();
        let refused = LockedFile::open(&path).err().expect(damaged).to_string();
        assert!(refused.contains("not a kubeconfig") && !refused.contains("secret"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
    }
    fs::write(&path, MINE).unwrap();
    let _held = LockedFile::open(&path).unwrap();
    let refused = LockedFile::open(&path).err().expect("it is locked").to_string();
    assert!(refused.contains("config.lock"), "{refused}");
}
