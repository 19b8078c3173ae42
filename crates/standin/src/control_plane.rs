//! The four genuine components of a server: their arguments, their manifests and the least memory with which they run well.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use camino::Utf8PathBuf;
use serde_json::json;

use crate::component::Component;
use crate::paths;
use crate::settings::{APISERVER_PORT, Settings};
use crate::version::RELEASE_TAG;

/// The components, in start order.
pub(crate) struct ControlPlane {
    pub(crate) etcd: Component,
    pub(crate) apiserver: Component,
    pub(crate) controller_manager: Component,
    pub(crate) scheduler: Component,
}

/// Controllers of a sandbox node: all except those for features that it lacks, mainly volumes, devices and metrics.
const CONTROLLERS: &str = "*,-device-taint-eviction-controller,-ephemeral-volume-controller,\
     -horizontal-pod-autoscaler-controller,-persistentvolume-attach-detach-controller,-persistentvolume-binder-controller,\
     -persistentvolume-expander-controller,-persistentvolume-protection-controller,\
     -persistentvolumeclaim-protection-controller,-resourceclaim-controller,-storageversion-garbage-collector-controller,\
     -volumeattributesclass-protection-controller";

/// Builds the four components from the settings and the folder of their programs.
pub(crate) fn layout(settings: &Settings, bin: &Utf8PathBuf) -> ControlPlane {
    let part = |name: &'static str, option: &str, arguments: Vec<(&str, String)>, memory_mib: u32| Component {
        name,
        bin: bin.clone(),
        data_root: settings.paths.data("data"),
        arguments: with_extra(arguments, settings.options.values(option)),
        // Frequent garbage collection takes a little more CPU time and saves a third of the memory.
        environment: vec![
            ("GOGC", "40".to_owned()),
            ("GOMEMLIMIT", format!("{memory_mib}MiB")),
            ("GOMAXPROCS", "2".to_owned()),
        ],
        log: settings
            .paths
            .at(&format!("/var/log/pods/kube-system_{name}-{}_stand-in/{name}/0.log", settings.node_name)),
    };
    ControlPlane {
        etcd: part("etcd", "etcd-arg", etcd(settings), 64),
        apiserver: part("kube-apiserver", "kube-apiserver-arg", apiserver(settings), 220),
        controller_manager: part(
            "kube-controller-manager",
            "kube-controller-manager-arg",
            controller_manager(settings),
            80,
        ),
        scheduler: part("kube-scheduler", "kube-scheduler-arg", scheduler(settings), 48),
    }
}

/// Formats arguments as `--name=value`; the user's `extra` arguments replace those of the same name.
fn with_extra(ours: Vec<(&str, String)>, extra: &[String]) -> Vec<String> {
    let replaced: HashSet<&str> = extra.iter().filter_map(|argument| argument.split('=').next()).collect();
    let kept =
        ours.into_iter().filter(|(name, _)| !replaced.contains(name)).map(|(name, value)| format!("--{name}={value}"));
    kept.chain(extra.iter().map(|argument| format!("--{argument}"))).collect()
}

/// etcd's member name: the node name and eight hex characters derived from node name and address.
pub(crate) fn member_name(settings: &Settings) -> String {
    let address = settings.address.to_string();
    let hash =
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, format!("{}/{address}", settings.node_name).as_bytes());
    format!("{}-{}", settings.node_name, &hex::encode(hash)[..8])
}

fn etcd(settings: &Settings) -> Vec<(&'static str, String)> {
    let (address, local, name) = (settings.address, settings.local(), member_name(settings));
    let tls = |file: &str| settings.paths.tls(file).into_string();
    let url = |address: IpAddr, port: u16| format!("https://{}", SocketAddr::new(address, port));
    let listens = |port: u16| match address == local {
        true => url(address, port),
        false => format!("{},{}", url(local, port), url(address, port)),
    };
    vec![
        ("name", name.clone()),
        ("data-dir", settings.paths.data("server/db/etcd").into_string()),
        ("listen-client-urls", listens(2379)),
        ("advertise-client-urls", url(address, 2379)),
        ("listen-peer-urls", listens(2380)),
        ("initial-advertise-peer-urls", url(address, 2380)),
        ("initial-cluster", format!("{name}={}", url(address, 2380))),
        ("initial-cluster-state", "new".to_owned()),
        ("listen-metrics-urls", format!("http://{}", SocketAddr::new(local, 2381))),
        ("client-cert-auth", "true".to_owned()),
        ("trusted-ca-file", tls("etcd/server-ca.crt")),
        ("cert-file", tls("etcd/server-client.crt")),
        ("key-file", tls("etcd/server-client.key")),
        ("peer-client-cert-auth", "true".to_owned()),
        ("peer-trusted-ca-file", tls("etcd/peer-ca.crt")),
        ("peer-cert-file", tls("etcd/peer-server-client.crt")),
        ("peer-key-file", tls("etcd/peer-server-client.key")),
        ("log-outputs", "stderr".to_owned()),
        ("log-level", "warn".to_owned()),
        // A single member needs neither a long raft log in memory nor large write-ahead log files kept for followers.
        ("snapshot-count", "2000".to_owned()),
    ]
}

fn apiserver(settings: &Settings) -> Vec<(&'static str, String)> {
    let address = settings.address.to_string();
    let advertise = settings.options.value("advertise-address").unwrap_or(&address).to_owned();
    let tls = |file: &str| settings.paths.tls(file).into_string();
    let own = |text: &str| text.to_owned();
    let issuer = format!("https://kubernetes.default.svc.{}", settings.cluster_domain);
    let mut arguments = vec![
        ("admission-control-config-file", settings.paths.at("/etc/rancher/rke2/rke2-pss.yaml").into_string()),
        ("advertise-address", advertise),
        ("allow-privileged", own("true")),
        ("anonymous-auth", own("false")),
        ("api-audiences", format!("{issuer},rke2")),
        ("audit-log-maxage", own("30")),
        ("audit-log-maxbackup", own("2")),
        ("audit-log-maxsize", own("20")),
        ("audit-log-path", settings.paths.data("server/logs/audit.log").into_string()),
        ("audit-policy-file", settings.paths.at("/etc/rancher/rke2/audit-policy.yaml").into_string()),
        ("authorization-mode", own("Node,RBAC")),
        ("bind-address", settings.apiserver_listens_on().to_string()),
        ("cert-dir", tls("temporary-certs")),
        ("client-ca-file", tls("client-ca.crt")),
        ("enable-admission-plugins", own("NodeRestriction")),
        ("enable-bootstrap-token-auth", own("true")),
        ("encryption-provider-config", settings.paths.cred("encryption-config.json").into_string()),
        ("etcd-cafile", tls("etcd/server-ca.crt")),
        ("etcd-certfile", tls("etcd/client.crt")),
        ("etcd-keyfile", tls("etcd/client.key")),
        ("etcd-servers", format!("https://{}", SocketAddr::new(settings.local(), 2379))),
        ("kubelet-certificate-authority", tls("server-ca.crt")),
        ("kubelet-client-certificate", tls("client-kube-apiserver.crt")),
        ("kubelet-client-key", tls("client-kube-apiserver.key")),
        ("kubelet-preferred-address-types", own("InternalIP,ExternalIP,Hostname")),
        ("profiling", own("false")),
        ("proxy-client-cert-file", tls("client-auth-proxy.crt")),
        ("proxy-client-key-file", tls("client-auth-proxy.key")),
        ("requestheader-allowed-names", own("system:auth-proxy")),
        ("requestheader-client-ca-file", tls("request-header-ca.crt")),
        ("requestheader-extra-headers-prefix", own("X-Remote-Extra-")),
        ("requestheader-group-headers", own("X-Remote-Group")),
        ("requestheader-username-headers", own("X-Remote-User")),
        ("secure-port", APISERVER_PORT.to_string()),
        ("service-account-issuer", issuer),
        ("service-account-key-file", tls("service.key")),
        ("service-account-signing-key-file", tls("service.current.key")),
        ("service-cluster-ip-range", settings.service_cidr.clone()),
        ("storage-backend", own("etcd3")),
        ("tls-cert-file", tls("serving-kube-apiserver.crt")),
        ("tls-private-key-file", tls("serving-kube-apiserver.key")),
    ];
    if settings.paths.in_sandbox() {
        // A loopback address cannot be a service endpoint, and a single apiserver needs no reconciler.
        arguments.push(("endpoint-reconciler-type", own("none")));
    }
    if let Some(range) = settings.options.value("service-node-port-range") {
        arguments.push(("service-node-port-range", range.to_owned()));
    }
    arguments
}

fn controller_manager(settings: &Settings) -> Vec<(&'static str, String)> {
    let tls = |file: &str| settings.paths.tls(file).into_string();
    let kubeconfig = settings.paths.cred("controller.kubeconfig").into_string();
    let mut arguments = vec![
        ("allocate-node-cidrs", "true".to_owned()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig.clone()),
        ("bind-address", settings.local().to_string()),
        ("cluster-cidr", settings.cluster_cidr.clone()),
        ("cluster-signing-cert-file", tls("client-ca.crt")),
        ("cluster-signing-key-file", tls("client-ca.key")),
        ("kubeconfig", kubeconfig),
        // With a single server there is no competing leader; skipping the election saves two seconds at start.
        ("leader-elect", "false".to_owned()),
        // On real RKE2, 44 s were measured from an agent's end to NotReady. The component's default of 50 s
        // gives 51 s here, because the last heartbeat may have been sent just before the end.
        ("node-monitor-grace-period", "40s".to_owned()),
        ("profiling", "false".to_owned()),
        ("root-ca-file", tls("server-ca.crt")),
        ("secure-port", "10257".to_owned()),
        ("service-account-private-key-file", tls("service.current.key")),
        ("service-cluster-ip-range", settings.service_cidr.clone()),
        ("tls-cert-file", tls("kube-controller-manager/kube-controller-manager.crt")),
        ("tls-private-key-file", tls("kube-controller-manager/kube-controller-manager.key")),
        ("use-service-account-credentials", "true".to_owned()),
    ];
    if settings.paths.in_sandbox() {
        arguments.push(("controllers", CONTROLLERS.to_owned()));
    }
    arguments
}

fn scheduler(settings: &Settings) -> Vec<(&'static str, String)> {
    let tls = |file: &str| settings.paths.tls(file).into_string();
    let kubeconfig = settings.paths.cred("scheduler.kubeconfig").into_string();
    vec![
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig.clone()),
        ("bind-address", settings.local().to_string()),
        ("kubeconfig", kubeconfig),
        ("leader-elect", "false".to_owned()),
        ("profiling", "false".to_owned()),
        ("secure-port", "10259".to_owned()),
        ("tls-cert-file", tls("kube-scheduler/kube-scheduler.crt")),
        ("tls-private-key-file", tls("kube-scheduler/kube-scheduler.key")),
    ]
}

/// Writes the component's static pod manifest on a sandbox node. It is informational: no kubelet reads it there.
pub(crate) fn write_manifest(settings: &Settings, component: &Component) -> anyhow::Result<()> {
    let name = component.name;
    let command: Vec<&str> = std::iter::once(name).chain(component.arguments.iter().map(String::as_str)).collect();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": { "component": name, "tier": "control-plane" },
        },
        "spec": {
            "containers": [{
                "name": name,
                "image": format!("stand-in/{name}:{RELEASE_TAG}"),
                "command": command,
            }],
            "hostNetwork": true,
            "priorityClassName": "system-cluster-critical",
        },
    });
    let dir = settings.paths.data("agent/pod-manifests");
    paths::make_dir(&dir, 0o750)?;
    Ok(paths::write(&dir.join(format!("{name}.yaml")), 0o644, serde_saphyr::to_string(&pod)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_address_has_brackets_in_etcds_urls() {
        let arguments = etcd(&Settings::of_options(&["--node-ip", "fd00::7"]));
        let urls = arguments.iter().filter(|(name, _)| name.contains("url") || *name == "initial-cluster");
        let of_node: Vec<&str> =
            urls.filter(|(_, text)| text.contains("fd00")).map(|(_, text)| text.as_str()).collect();
        assert_eq!(of_node.len(), 5, "{of_node:?}");
        assert!(of_node.iter().all(|text| text.contains("https://[fd00::7]:23")), "{of_node:?}");
    }

    #[test]
    fn an_argument_of_the_user_replaces_ours_of_the_same_name() {
        let ours = vec![("profiling", "false".to_owned()), ("v", "0".to_owned())];
        let merged = with_extra(ours, &["v=2".to_owned(), "goaway-chance=0.1".to_owned()]);
        assert_eq!(merged, ["--profiling=false", "--v=2", "--goaway-chance=0.1"]);
    }
}
