use std::{fs, os::unix::fs::PermissionsExt};

use gpuaas_trust::SecretText;

use super::*;

fn hook(script: &str) -> (tempfile::TempDir, HookProgram) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hook");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (folder, HookProgram(program))
}

fn order() -> ReimageOrder {
    ReimageOrder {
        node: "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap(),
        name: "gpu-07".parse().unwrap(),
        enrollment: SecretText::new("gpuaas1.string".to_owned()),
        value: SecretText::new("gpuaas-reimage_value".to_owned()),
    }
}

#[tokio::test]
async fn hook_gets_secrets_only_on_standard_input() {
    let (folder, hook) = hook(
        "cat >\"$(dirname \"$0\")/order\"; env >\"$(dirname \"$0\")/env\"; echo \"$@\" >>\"$(dirname \"$0\")/env\"",
    );
    hook.reimage(order()).await.unwrap();
    let read: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("order")).unwrap()).unwrap();
    assert_eq!((read["name"].as_str(), read["enrollment"].as_str()), (Some("gpu-07"), Some("gpuaas1.string")));
    assert_eq!(read["reimage"].as_str(), Some("gpuaas-reimage_value"));
    let environment = fs::read_to_string(folder.path().join("env")).unwrap();
    assert!(!environment.contains("gpuaas"), "{environment}");
}

#[tokio::test]
async fn hook_error_contains_no_secret() {
    let (_folder, failing) = hook("exit 3");
    let refused = failing.reimage(order()).await.unwrap_err();
    assert!(refused.contains("exit status: 3") && !refused.contains("value"), "{refused}");
    let missing = HookProgram("/nowhere/hook".into());
    assert!(missing.reimage(order()).await.unwrap_err().contains("/nowhere/hook"));
}
