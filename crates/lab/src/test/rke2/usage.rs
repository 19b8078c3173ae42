//! A cluster in use: pods on every node that answer requests, and typical actions of a tenant.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use camino::Utf8Path;
use serde_json::Value;

use super::{
    WORKLOAD,
    prober::{self, Prober},
};
use crate::{
    node::Node,
    test::{check::check, cluster::Cluster, control_plane::ControlPlane},
};

/// Images in releases with a shell and basic utilities, preferred ones first. Registries are unreachable.
const IMAGES: [&str; 2] = ["docker.io/stand-in/busybox:", "docker.io/rancher/klipper-helm:"];
/// The release's list of its images.
const IMAGES_LIST: &str = "rke2-images-all.linux-amd64.txt";
/// Port of the service on every node's address.
const NODE_PORT: u16 = 30_080;
/// Longest wait for pods, including the network and DNS of a new cluster.
const PODS_MAX: Duration = Duration::from_secs(120);
/// Longest time until every node's rules contain a Ready pod.
const PROXIES_MAX: Duration = Duration::from_secs(20);
/// Requests to the service from each pod: with three pods behind it, the probability of missing one is below 10⁻⁶.
const REQUESTS: u32 = 40;
/// Timeout of a request in seconds. Enforced by `timeout`, because Debian's static busybox crashes on `wget -T`.
const ANSWER_MAX: u32 = 5;

/// The tenant's Deployment.
pub(super) struct Answers {
    image: String,
}

impl Answers {
    /// Uses an image that the release contains.
    pub(super) fn of_release(release: &Utf8Path) -> anyhow::Result<Self> {
        let list =
            fs::read_to_string(release.join(IMAGES_LIST)).with_context(|| release.join(IMAGES_LIST).to_string())?;
        let image = IMAGES.iter().find_map(|name| list.lines().map(str::trim).find(|line| line.starts_with(name)));
        let image = image.with_context(|| format!("the release has none of the images {}", IMAGES.join(", ")))?;
        Ok(Self { image: image.to_owned() })
    }

    /// Manifest whose pods answer with their node's name and log it.
    fn manifest(&self, replicas: usize) -> String {
        let image = &self.image;
        format!(
            r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{ name: answers }}
spec:
  replicas: {replicas}
  strategy: {{ rollingUpdate: {{ maxUnavailable: 0, maxSurge: 100% }} }}
  selector: {{ matchLabels: {{ app: answers }} }}
  template:
    metadata: {{ labels: {{ app: answers }} }}
    spec:
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        # A cordoned node counts for nothing, so that its pods may go to the others.
        nodeTaintsPolicy: Honor
        # The pods that a rollout replaces do not count either.
        matchLabelKeys: [pod-template-hash]
        labelSelector: {{ matchLabels: {{ app: answers }} }}
      # The first process of a container ignores SIGTERM without a handler, so a pod answers until its grace period ends: the proxies of all
      # nodes forget it earlier.
      terminationGracePeriodSeconds: 5
      containers:
      - name: answers
        image: {image}
        imagePullPolicy: Never
        command:
        - sh
        - -c
        - |
          echo "answering on $NODE"
          mkdir -p /www && echo "$NODE" >/www/index.html
          if command -v httpd >/dev/null; then exec httpd -f -p 8080 -h /www; fi
          printf '%s\n' 'while read -r l && [ "$l" != "$(printf "\r")" ]; do :; done' \
            'printf "HTTP/1.0 200 OK\r\n\r\n"; cat /www/index.html' >/www/answer
          exec nc -ll -p 8080 -e sh /www/answer
        env:
        - {{ name: NODE, valueFrom: {{ fieldRef: {{ fieldPath: spec.nodeName }} }} }}
        ports:
        - containerPort: 8080
        readinessProbe: {{ httpGet: {{ path: /, port: 8080 }}, periodSeconds: 1 }}
---
apiVersion: v1
kind: Service
metadata: {{ name: answers }}
spec:
  type: NodePort
  selector: {{ app: answers }}
  ports:
  - {{ port: 80, targetPort: 8080, nodePort: {NODE_PORT} }}
"#
        )
    }
}

/// A pod of the Deployment.
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) address: String,
    pub(super) restarts: u64,
}

/// Deploys onto every node and runs a tenant's typical actions.
pub(super) fn run_checks(cluster: &Cluster, answers: &Answers, nodes: &[&Node]) -> anyhow::Result<()> {
    check("a Deployment's pods run on both", || deploy(cluster, answers, nodes))?;
    check("the cluster's DNS serves", || await_dns(cluster))?;
    check("pods on both answer each other by address and by the service's name", || answer_each_other(cluster, nodes))?;
    for pod in pods(cluster)? {
        check(&format!("exec, logs and port-forward work for the pod on {}", pod.node), || {
            check_access(cluster, &pod)
        })?;
    }
    Ok(())
}

/// Applies the Deployment with a pod for each node, and checks that they run there.
pub(super) fn deploy(cluster: &Cluster, answers: &Answers, nodes: &[&Node]) -> anyhow::Result<()> {
    cluster.apply(&answers.manifest(nodes.len()))?;
    check_pods_on(cluster, nodes)
}

/// Waits until the pods of the cluster's DNS are Ready.
pub(super) fn await_dns(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.wait(&["--namespace=kube-system", "pod", "--selector=k8s-app=kube-dns"], "condition=Ready", PODS_MAX)
}

/// Waits for the rollout and checks that pods run on exactly these nodes.
pub(super) fn check_pods_on(cluster: &Cluster, nodes: &[&Node]) -> anyhow::Result<()> {
    let longest = format!("--timeout={}s", PODS_MAX.as_secs());
    cluster.capture(&["rollout", "status", "deployment/answers", &longest])?;
    let (on, wanted): (BTreeSet<String>, BTreeSet<String>) =
        (pods(cluster)?.into_iter().map(|pod| pod.node).collect(), names(nodes));
    ensure!(on == wanted, "the pods run on {on:?}, not on {wanted:?}");
    Ok(())
}

/// Replaces all pods, which spreads them over these nodes.
pub(super) fn spread_over(cluster: &Cluster, nodes: &[&Node]) -> anyhow::Result<()> {
    cluster.capture(&["rollout", "restart", "deployment/answers"])?;
    check_pods_on(cluster, nodes)
}

/// Waits until the containers of these pods were started again, each once, and the pods are Ready.
pub(super) fn await_restarts(cluster: &Cluster, before: &[Pod]) -> anyhow::Result<()> {
    for Pod { name, restarts, .. } in before {
        let pod = format!("pod/{name}");
        let restarted = format!("jsonpath={{.status.containerStatuses[0].restartCount}}={}", restarts + 1);
        // Until the new kubelet reports the restart, the cluster may still show the old Ready.
        cluster.wait(&[&pod], &restarted, PODS_MAX)?;
        cluster.wait(&[&pod], "condition=Ready", PODS_MAX)?;
    }
    Ok(())
}

/// Addresses of the service on these nodes.
pub(super) fn addresses(nodes: &[&Node]) -> Vec<SocketAddr> {
    nodes.iter().map(|node| (node.address(), NODE_PORT).into()).collect()
}

fn names(nodes: &[&Node]) -> BTreeSet<String> {
    nodes.iter().map(|node| node.name().to_string()).collect()
}

/// Lists the pods of the Deployment, without those that are ending.
pub(super) fn pods(cluster: &Cluster) -> anyhow::Result<Vec<Pod>> {
    let list: Value = cluster.json(&["get", "pods", "--selector=app=answers"])?;
    let text = |of: &Value| of.as_str().map(str::to_owned).context("a pod does not run yet");
    let pod = |of: &Value| {
        let status = &of["status"];
        Ok(Pod {
            name: text(&of["metadata"]["name"])?,
            node: text(&of["spec"]["nodeName"])?,
            address: text(&status["podIP"])?,
            restarts: status["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default(),
        })
    };
    let stays = |of: &&Value| of["metadata"]["deletionTimestamp"].is_null();
    list["items"].as_array().into_iter().flatten().filter(stays).map(pod).collect()
}

/// Checks that every pod reaches every pod by its address, and each of them through the service's name.
pub(super) fn answer_each_other(cluster: &Cluster, nodes: &[&Node]) -> anyhow::Result<()> {
    let pods = pods(cluster)?;
    for from in &pods {
        for to in &pods {
            let answer =
                exec(cluster, from, &format!("timeout {ANSWER_MAX} wget -q -O - http://{}:8080/", to.address))?;
            ensure!(answer == to.node, "{} received {answer:?} from the address of the pod on {}", from.node, to.node);
        }
        let began = Instant::now();
        loop {
            let received = nodes_behind_service(cluster, from);
            if received.as_ref().is_ok_and(|received| *received == names(nodes)) {
                break;
            }
            // Every node's proxy receives a service and its endpoints independently, a moment after the pods are Ready, and the cluster has
            // no event for all of them. A node without endpoints refuses connections.
            ensure!(
                began.elapsed() < PROXIES_MAX,
                "{} received answers of {received:?} through the service's name",
                from.node
            );
        }
    }
    Ok(())
}

/// Names of the nodes whose pods answer behind the service's name, over many requests.
fn nodes_behind_service(cluster: &Cluster, from: &Pod) -> anyhow::Result<BTreeSet<String>> {
    let once = format!("timeout {ANSWER_MAX} wget -q -O - http://answers/");
    let received = exec(cluster, from, &format!("for i in $(seq {REQUESTS}); do {once} || exit 1; done"))?;
    Ok(received.lines().map(str::to_owned).collect())
}

fn exec(cluster: &Cluster, pod: &Pod, script: &str) -> anyhow::Result<String> {
    cluster.capture(&["exec", &pod.name, "--", "sh", "-c", script])
}

fn check_access(cluster: &Cluster, pod: &Pod) -> anyhow::Result<()> {
    let host_name = exec(cluster, pod, "cat /etc/hostname")?;
    ensure!(host_name == pod.name, "exec reaches {host_name}");
    let log = cluster.capture(&["logs", &pod.name])?;
    ensure!(log == format!("answering on {}", pod.node), "the pod's log is {log:?}");
    check_port_forward(cluster, pod)
}

fn check_port_forward(cluster: &Cluster, pod: &Pod) -> anyhow::Result<()> {
    let mut forward = cluster.command(&["port-forward", "--address=127.0.0.1", &format!("pod/{}", pod.name), ":8080"]);
    let mut child = forward.stdout(Stdio::piped()).spawn().context("kubectl port-forward")?;
    // Held until the end: kubectl logs each connection to stdout and dies if the pipe is closed.
    let mut output = child.stdout.take().map(BufReader::new);
    let answer = (|| {
        let mut line = String::new();
        output.as_mut().context("stdout is not piped")?.read_line(&mut line)?;
        // For example `Forwarding from 127.0.0.1:PORT -> 8080`.
        let address = line.split(' ').nth(2).and_then(|word| word.parse::<SocketAddr>().ok());
        prober::fetch(address.with_context(|| format!("kubectl port-forward printed no address: {line:?}"))?)
    })();
    child.kill().and_then(|()| child.wait())?;
    let answer = answer?;
    ensure!(answer == pod.node, "the forwarded port answered {answer:?}");
    Ok(())
}

/// Adds the last node to the workload and a pod onto it; all requests meanwhile must succeed.
pub(super) fn add_agent_under_load(
    control_plane: &ControlPlane,
    cluster: &Cluster,
    answers: &Answers,
    nodes: &[&Node],
) -> anyhow::Result<()> {
    let (added, known) = nodes.split_last().context("a node to add")?;
    let prober = Prober::begin(addresses(known));
    let grown = control_plane
        .run_operation(&["workload", "add-member", WORKLOAD, "--agent", added.name().as_str()])
        .and_then(|_| deploy(cluster, answers, nodes));
    let results = prober.end()?;
    grown?;
    println!("    {results}");
    results.check_uninterrupted()?;
    let received: BTreeSet<&String> = results.answers.keys().collect();
    ensure!(known.iter().all(|node| received.contains(&node.name().to_string())), "only {received:?} answered");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(list: &str) -> Option<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = Utf8Path::from_path(folder.path()).expect("the path is UTF-8");
        fs::write(path.join(IMAGES_LIST), list).expect("written");
        Answers::of_release(path).ok().map(|answers| answers.image)
    }

    #[test]
    fn image_is_chosen_from_the_list_of_the_release() {
        let [stand_in, real] = IMAGES.map(|name| format!("{name}v1"));
        assert_eq!(image(&format!("docker.io/x/y:1\n{stand_in}\n")), Some(stand_in));
        assert_eq!(image(&format!("docker.io/x/y:1\n{real}\n")), Some(real));
        assert_eq!(image("docker.io/x/y:1\n"), None);
    }

    #[test]
    fn manifest_has_two_documents() {
        let manifest = Answers { image: "x:1".to_owned() }.manifest(3);
        let documents: Vec<Value> =
            manifest.split("---\n").map(|text| serde_saphyr::from_str(text).expect("valid YAML")).collect();
        assert_eq!(documents[0]["spec"]["replicas"], 3);
        assert_eq!(documents[0]["spec"]["template"]["spec"]["containers"][0]["image"], "x:1");
        assert_eq!(documents[1]["spec"]["ports"][0]["nodePort"], NODE_PORT);
    }
}
