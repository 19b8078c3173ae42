//! A delivered kubeconfig in genuine kubectl: it permits what its role permits until it is revoked.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use gpuaas_api_types::RequestAccess;

use crate::world::{PROJECT, Platform, components};

/// A kubeconfig in a file, as a tenant keeps it, and the id of its grant.
pub(crate) struct Kubectl {
    kubeconfig: PathBuf,
    grant: String,
}

impl Kubectl {
    /// Delivers a new credential and writes its kubeconfig to a file.
    pub(crate) async fn deliver(platform: &Platform, kind: &str, role: &str) -> Self {
        let reason = (kind == "break-glass").then(|| "the apiserver's roles were deleted".to_owned());
        let ask = RequestAccess { kind: Some(kind.into()), role: Some(role.into()), ttl_seconds: None, reason };
        let granted = platform.client().deliver_kubeconfig(Some(PROJECT.into()), "train", &ask).await;
        let granted = granted.expect("delivered");
        let kubeconfig = platform.file(&format!("{kind}-{role}"));
        std::fs::write(&kubeconfig, granted.kubeconfig).expect("written");
        Self { kubeconfig, grant: granted.grant }
    }

    /// Returns the standard output of kubectl, or its error output if it fails.
    pub(crate) fn run(&self, arguments: &str) -> Result<String, String> {
        let folder: &Path = self.kubeconfig.parent().expect("a folder");
        let output = Command::new(components().join("kubectl"))
            .args(arguments.split(' '))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .env("HOME", folder)
            .output()
            .expect("kubectl runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn assert_refused(&self, arguments: &str, why: &str) {
        let refused = self.run(arguments).expect_err(arguments);
        assert!(refused.contains(why), "{arguments}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfig_grants_its_role_until_it_is_revoked() {
    let platform = Platform::with_release(1, &[]).await;
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    let ended = platform.await_end(&started).await;
    assert_eq!(ended.operation.state, "succeeded", "{:?}", ended.operation.fault);

    let admin = Kubectl::deliver(&platform, "direct", "cluster-admin").await;
    admin.run("create namespace team").expect("an admin makes namespaces");
    admin.run("create configmap settings --from-literal=answer=42 --namespace team").expect("and objects in them");
    assert_eq!(admin.run("get nodes --output jsonpath={.items[*].metadata.name}").expect("listed"), "demo-1");

    let viewer = Kubectl::deliver(&platform, "direct", "cluster-view").await;
    let read = viewer.run("get configmap settings --namespace team --output jsonpath={.data.answer}");
    assert_eq!(read.expect("a viewer reads"), "42");
    for refused in
        ["create namespace mine", "delete configmap settings --namespace team", "get secrets --all-namespaces"]
    {
        viewer.assert_refused(refused, "Forbidden");
    }
    let whoami = "auth whoami --output jsonpath={.status.userInfo.username}";
    let (one, other) = (admin.run(whoami).expect("a name"), viewer.run(whoami).expect("a name"));
    assert!(one != other && one.starts_with("system:serviceaccount:"), "{one} and {other}");

    client.revoke_access(&admin.grant).await.expect("revoked");
    // The apiserver may cache the token for a few seconds; its permissions end at once.
    let refused = admin.run("create namespace late").expect_err("it was revoked");
    assert!(["Forbidden", "Unauthorized", "logged in"].iter().any(|why| refused.contains(why)), "{refused}");
    assert!(viewer.run("get namespaces").is_ok(), "another kubeconfig was revoked too");

    let last_resort = Kubectl::deliver(&platform, "break-glass", "cluster-admin").await;
    last_resort.run("delete namespace team --wait=false").expect("break-glass works without service accounts");
}
