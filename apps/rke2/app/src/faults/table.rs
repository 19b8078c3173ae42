//! The table of RKE2's failures.
//!
//! The order decides between two failures in one journal:
//! - What names one cause comes before what wraps many causes or follows from them.
//! - A wrong clock comes before the tokens and certificates that it makes look wrong.
//! - A fault of the host comes before the kubelet and the snapshotter that end because of it.
//! - Images come before the network, because a failed pull contains the network's error.
//! - What the agent says about its server comes before etcd; the slow disk and the old apiserver before the readiness that they delay.

use super::{
    remedy::Remedy::{self, AskOperator, ReadLog, Redeploy, Repair, ThenResume},
    row::{Counts, FaultRow, LogSpan, Proof},
};

/// A reset of the etcd cluster, until RKE2 starts again. A reset corrects the peer URL of a node whose address changed.
const RESET: LogSpan = LogSpan { from: "cluster-reset=true", until: "Starting rke2 " };
/// A reset that a person began, until systemd starts the unit again.
const RESET_COMMAND: LogSpan = LogSpan { from: "--cluster-reset", until: "Rancher Kubernetes Engine v2" };
/// A line with the SHA-256 of nothing: the CA could not be read, which says nothing about the token.
const CA_UNREAD: LogSpan = LogSpan { from: "e3b0c44298fc1c149afbf4c8996fb924", until: "" };

/// The kinds of failure that lines of the journal show. Kinds without such lines are in [`OTHER_FAULTS`].
pub const FAULTS: &[FaultRow] = &[
    FaultRow::new("rke2_node_password_rejected", &[1], &["Node password rejected"])
        .decisive_after(3)
        .says("another node used this name, or this node was reinstalled")
        .cured(
            Repair("the cluster forgets the node's earlier password, and the member joins again"),
            "the server keeps the password that a node of this name had first; a repair deletes that secret before the start",
        )
        .while_deploying(ThenResume("delete the KubeNode of that name, which deletes its password")),
    FaultRow::new("rke2_duplicate_member", &[2], &["duplicate node name found"])
        .decisive_after(2)
        .says("the etcd cluster still lists a member of this name")
        .cured(
            ThenResume("delete the stale KubeNode"),
            "etcd removes a member when its KubeNode is deleted; only the tenant knows which one is stale",
        ),
    // A wrong clock shows itself in texts about tokens and certificates, so it comes before them. Rows 12 and 13 differ only at the end.
    CLOCK_SKEW,
    FaultRow::new("rke2_certificate_expired", &[12], &["is after", "tls: expired certificate"])
        .with(&["has expired", "expired certificate"])
        .blames_clock()
        .says("a certificate has expired")
        .cured(
            Repair("RKE2 renews its certificates when it starts"),
            "RKE2 renews certificates with less than 120 days left at each start",
        ),
    FaultRow::new(
        "rke2_token_malformed",
        &[],
        &[
            "failed to normalize token",
            "failed to normalize server token",
            "invalid token format",
            "invalid token CA hash length",
            "token must not be empty",
        ],
    )
    .decisive_after(2)
    .says("the file with its token is empty or damaged")
    .cured(
        Repair("its token is written again"),
        "the platform composes the token, so a damaged one was changed on the node",
    ),
    FaultRow::new("rke2_token_ca_mismatch", &[4], &["CA hash does not match", "server CA hash"])
        .counts(Counts::Except(&[CA_UNREAD]))
        .decisive_after(2)
        .blames_clock()
        .says("the join token is for another cluster")
        .cured(
            Repair("its token is written again from the CA of the cluster"),
            "the platform composes the token from the CA that the server reported; if it fails again, another cluster answers at the \
             address of the server",
        ),
    FaultRow::new(
        "rke2_bootstrap_token_mismatch",
        &[5],
        &["bootstrap data already found and encrypted with different token"],
    )
    .decisive_after(1)
    .says("the node holds data of a cluster with another token")
    .cured(
        Repair("its token is written again"),
        "the data of a deployed server belong to its own token, so the token was changed on the node",
    )
    .while_deploying(AskOperator("remove the earlier cluster")),
    FaultRow::new("rke2_config_mismatch", &[6], &["critical configuration value mismatch"])
        .decisive_after(1)
        .says("this server's settings differ from the cluster's")
        .cured(
            AskOperator("remove the settings of RKE2 that GPUaaS did not write"),
            "all configurations come from the same settings, so the difference is in a file that GPUaaS did not write",
        ),
    FaultRow::new(
        "rke2_not_a_member",
        &[9],
        &["is a not a member of the etcd cluster", "is not a member of the etcd cluster"],
    )
    .counts(Counts::Except(&[RESET]))
    .decisive_after(1)
    .says("the node's address changed since it joined")
    .cured(
        AskOperator("restore the former address"),
        "etcd knows its members by address, and only the operator can give the former one back",
    ),
    FaultRow::new("rke2_cluster_id_mismatch", &[11], &["cluster ID mismatch", "newer than datastore"])
        .decisive_after(2)
        .says("the node holds data of another cluster")
        .cured(
            AskOperator("remove the earlier cluster"),
            "the data may be the only copy of that cluster, so no command of the platform deletes them",
        ),
    FaultRow::new(
        "rke2_cluster_reset_failed",
        &[10],
        &["cannot perform cluster-reset while server URL is set", "was previously reset"],
    )
    .decisive_after(2)
    .says("a reset of the etcd cluster was refused")
    .cured(RESET_CURE, RESET_WHY),
    FaultRow::new(
        "rke2_cluster_reset_failed",
        &[10],
        &[
            "bind: address already in use",
            "Waiting for etcd server to become available",
            "Failed to test data store connection",
            "Failed to test etcd connection",
            "Failed to get apiserver address from etcd",
            "failed to get CA certs",
        ],
    )
    .counts(Counts::During(&[RESET, RESET_COMMAND]))
    .says("a reset of the etcd cluster does not end")
    .cured(RESET_CURE, RESET_WHY),
    FaultRow::new(
        "rke2_etcd_corrupt",
        &[19],
        &["alarm:CORRUPT", "crc mismatch", "failed to recover v3 backend from snapshot", "file checksum mismatch"],
    )
    .decisive_after(2)
    .says("the data of etcd are damaged")
    .cured(
        Redeploy("etcd cannot read its data any more"),
        "a single server has no other member to copy from, and restoring a snapshot is not available yet",
    ),
    FaultRow::new(
        "rke2_etcd_out_of_space",
        &[19],
        &["database space exceeded", "alarm:NOSPACE", "code = ResourceExhausted desc = etcdserver"],
    )
    .decisive_after(1)
    .says("etcd has reached the quota of its database")
    .cured(
        AskOperator("compact and defragment etcd, and disarm its alarm (etcdctl alarm disarm)"),
        "it takes etcd's client on the server, and somebody who knows which objects can go",
    ),
    FaultRow::new("rke2_disk_full", &[19], &["no space left on device"])
        .decisive_after(3)
        .says("a disk of the node is full")
        .cured(AskOperator("free disk space"), "the platform does not know what may be deleted"),
    FaultRow::new(
        "rke2_memory_cgroup_missing",
        &[],
        &["ailed to find memory cgroup", "cgroup_enable=memory", "missing cgroups: memory"],
    )
    .decisive_after(1)
    .says("the kernel has no memory cgroup")
    .cured(
        AskOperator("add cgroup_enable=memory to the kernel's command line"),
        "it takes effect when the machine boots",
    ),
    FaultRow::new("rke2_overlayfs_refused", &[], &["snapshotter cannot be enabled", "failed to mount overlay:"])
        .decisive_after(3)
        .says("the file system under /var/lib/rancher does not support overlayfs")
        .cured(
            AskOperator("put /var/lib/rancher on ext4 or XFS"),
            "containerd needs overlayfs, which a network file system and another overlay refuse",
        ),
    FaultRow::new(
        "rke2_runtime_image_unavailable",
        &[],
        &[
            "failed to get runtime image",
            "failed to pull runtime image",
            "failed to extract runtime image",
            "chmod /var/lib/rancher/rke2/data/",
        ],
    )
    .decisive_after(2)
    .says("RKE2's own programs could not be unpacked from its image")
    .cured(IMAGES_CURE, IMAGES_WHY),
    FaultRow::new("rke2_runtime_image_unavailable", &[], &["unexpected EOF", "connection reset by peer"])
        .with(&["rke2-runtime", "runtime image", "/var/lib/rancher/rke2/data/"])
        .says("RKE2's own programs could not be unpacked from its image")
        .cured(IMAGES_CURE, IMAGES_WHY),
    FaultRow::new("rke2_exec_forbidden", &[22], &["operation not permitted", "avc:  denied", "avc: denied"])
        .decisive_after(2)
        .says("the host denies an operation that containers need")
        .cured(EXEC_CURE, EXEC_WHY),
    FaultRow::new("rke2_exec_forbidden", &[22], &["permission denied"])
        .with(&["fork/exec", "exec /", "exec: "])
        .says("the host does not let RKE2's programs run")
        .cured(EXEC_CURE, EXEC_WHY),
    FaultRow::new(
        "rke2_wrong_interface",
        &[9],
        &[
            "bind: cannot assign requested address",
            "not found in the host's network interfaces",
            "x509: certificate is valid for",
            "Could not find valid interface",
            "ailed to find interface",
            "unable to select an IP",
            "no default routes found",
        ],
    )
    .proven(Proof::Lasting)
    .says("RKE2 uses an address that this node does not have")
    .cured(INTERFACE_CURE, INTERFACE_WHY),
    FaultRow::new(
        "rke2_address_in_use",
        &[17],
        &["bind: address already in use"],
    )
    .counts(Counts::Except(&[RESET, RESET_COMMAND]))
    .decisive_after(2)
    .says("a port that RKE2 needs is taken")
    .cured(
        Repair("RKE2's left processes are ended, and it starts again"),
        "on a node that runs a member, the process is one that RKE2 left behind",
    )
    .while_deploying(AskOperator("stop the process that uses the port")),
    FaultRow::new("rke2_network_manager", &[15], &["Control process exited, code=exited"])
        .preceded_by("nm-cloud-setup")
        .says("nm-cloud-setup runs, which removes the routes of the pod network")
        .cured(
            AskOperator("disable nm-cloud-setup.service and nm-cloud-setup.timer"),
            "RKE2's unit refuses to start beside it; the routes come back only after a restart",
        ),
    // The kubelet's own log, which the failure contains if the kubelet exited, names the cause; the journal never does.
    FaultRow::new("rke2_kubelet_exited", &[23], &["\"command failed\" err=", "failed to run Kubelet"])
        .says("the kubelet exits right after its start")
        .cured(KUBELET_CURE, KUBELET_WHY),
    FaultRow::new("rke2_kubelet_exited", &[23], &["Kubelet exited", "kubelet process exited unexpectedly"])
        .decisive_after(2)
        .says("the kubelet exits right after its start")
        .cured(KUBELET_CURE, KUBELET_WHY),
    FaultRow::new(
        "rke2_images_evicted",
        &[21],
        &[
            "Disk usage on image filesystem is over the high threshold",
            "attempting to delete unused images",
            "Removing image to free bytes",
            "[imageGCManager]: Removing image",
            "ailed to garbage collect required amount of images",
            "EvictionThresholdMet",
            "NodeHasDiskPressure",
            "FreeDiskSpaceFailed",
            "ImageGCFailed",
            "must evict pod(s) to reclaim",
        ],
    )
    .says("the kubelet deletes images because the disk is nearly full")
    .cured(
        AskOperator("free disk space for the images"),
        "RKE2 imports its images again at the next start, and they stay only if there is space",
    ),
    FaultRow::new(
        "rke2_image_missing",
        &[20],
        &[
            "ImagePullBackOff",
            "ErrImagePull",
            "ailed to pull image \"",
            "failed to pull and unpack image",
            "failed to get sandbox image",
        ],
    )
    .says("an image is not on the node, and cannot be pulled")
    .cured(IMAGES_CURE, IMAGES_WHY),
    FaultRow::new("rke2_proxy_in_the_way", &[25], &["connect handshake, response", "X-Squid-Error", "proxyconnect tcp"])
        .says("a proxy answers instead of the other nodes")
        .cured(PROXY_CURE, PROXY_WHY),
    FaultRow::new("rke2_proxy_in_the_way", &[25], &["Forbidden"])
        .with(&[":2379", ":2380", ":9345/cacerts"])
        .says("a proxy answers instead of the other nodes")
        .cured(PROXY_CURE, PROXY_WHY),
    FaultRow::new(
        "rke2_ca_of_earlier_cluster",
        &[],
        &["certificate signed by unknown authority", "candidate authority certificate"],
    )
    .proven(Proof::Repeated)
    .blames_clock()
    .says("the node trusts the CA of an earlier cluster")
    .cured(
        Repair("it joins again with a token that pins the CA of the cluster"),
        "an agent that joins takes the CA from its server; if it fails again, remove the member, which deletes its certificates, and add it",
    )
    .while_deploying(AskOperator("remove the earlier cluster")),
    // These lines wrap many other causes, so they come late.
    FaultRow::new(
        "rke2_wrong_interface",
        &[9],
        // The address that virtual machines have on the network of their host, the same on each: no other node answers there.
        &["dial tcp 10.0.2.15:", "https://10.0.2.15:"],
    )
    .proven(Proof::Lasting)
    .says("RKE2 uses an address that other nodes do not reach")
    .cured(INTERFACE_CURE, INTERFACE_WHY),
    FaultRow::new("rke2_server_unreachable", &[3, 13], &[CA_UNREAD.from])
        .decisive_after(15)
        .proven(Proof::Waiting)
        .blames_clock()
        .says("the node cannot read the CA of its server")
        .cured(SERVER_CURE, SERVER_WHY),
    FaultRow::new(
        "rke2_server_unreachable",
        &[3, 8],
        &[
            "Failed to validate connection to cluster",
            "failed to get CA certs",
            "CA cert validation failed",
        ],
    )
    .decisive_after(15)
    .proven(Proof::Waiting)
    .says("the node cannot reach its server")
    .cured(SERVER_CURE, SERVER_WHY),
    FaultRow::new(
        "rke2_server_unreachable",
        &[3],
        &[":9345: connect: connection refused"],
    )
    .proven(Proof::Lasting)
    .says("the node cannot reach its server")
    .cured(SERVER_CURE, SERVER_WHY),
    FaultRow::new("rke2_token_rejected", &[], &["401 Unauthorized", "not authorized"])
        .with(&["Waiting to retrieve agent configuration", "/v1-rke2/"])
        .proven(Proof::Repeated)
        .blames_clock()
        .says("the server rejects the node's token")
        .cured(Repair("its token is written again"), "the platform has the token that the server accepts"),
    FaultRow::new(
        "rke2_waiting_for_server",
        &[],
        &["Waiting to retrieve agent configuration; server is not ready"],
    )
    .decisive_after(20)
    .proven(Proof::Waiting)
    .says("the server does not accept the node")
    .cured(ThenResume("see the logs of the server"), "the agent does not know why its server is not ready"),
    FaultRow::new("rke2_network_blocked", &[14, 16], &["no route to host", "i/o timeout", "connection timed out"])
        .with(&["dial tcp 10.42.", "dial tcp 10.43.", ":9345", ":10250", "error dialing backend", "connect: no route to host"])
        .proven(Proof::Lasting)
        .says("the nodes do not reach each other")
        .cured(
            AskOperator("open the ports between the nodes, also UDP 8472,"),
            "a firewall or a network card drops the traffic between nodes, also of pods",
        ),
    FaultRow::new(
        "rke2_network_not_ready",
        &[24],
        &["cni plugin not initialized", "cni config uninitialized", "cloudprovider.kubernetes.io/uninitialized"],
    )
    .proven(Proof::Lasting)
    .in_conditions()
    .says("the node's network did not come up")
    .cured(
        Repair("RKE2 lays down the network of the node again"),
        "the pods of the network start again with RKE2 and write its configuration",
    ),
    FaultRow::new("rke2_etcd_slow", &[18], &["leaderelection lost", "leader election lost"])
        .says("etcd answers too slowly")
        .cured(SLOW_CURE, SLOW_WHY),
    FaultRow::new(
        "rke2_etcd_slow",
        &[18],
        &["took too long", "slow fdatasync", "failed to send out heartbeat on time", "time spent"],
    )
    .proven(Proof::Slow)
    .says("etcd answers too slowly")
    .cured(SLOW_CURE, SLOW_WHY),
    FaultRow::new(
        "rke2_apiserver_outdated",
        &[25],
        &["kube-apiserver pod not found", "Pod for kube-apiserver not synced"],
    )
    .proven(Proof::Lasting)
    .says("the kubelet does not start the new apiserver")
    .cured(
        Repair("RKE2's processes are ended, the earlier apiserver included, and it starts again"),
        "the kubelet cannot replace the apiserver's pod while the apiserver does not answer",
    ),
    FaultRow::new(
        "rke2_etcd_not_ready",
        &[7],
        &[
            "Waiting for etcd",
            "Failed to test etcd connection",
            "Failed to test data store connection",
            "etcd status for learner management",
            "Pod for etcd not synced",
            "readyz: 500",
            "127.0.0.1:2379: connect: connection refused",
        ],
    )
    .proven(Proof::Lasting)
    .says("etcd does not become ready")
    .cured(Repair("RKE2's processes are ended, and etcd starts again"), "its data stay, and a start repeats what is missing"),
    SKIPPED,
];

/// A clock is wrong: the certificates of one machine seem not valid yet on another.
pub(super) const CLOCK_SKEW: FaultRow = FaultRow::new("rke2_clock_skew", &[13], &["is before"])
    .with(&["not yet valid", "x509"])
    .blames_clock()
    .says("a certificate is not yet valid: a clock is wrong")
    .cured(AskOperator("set the clock by NTP"), "a tenant cannot set the clock of a machine");
/// A condition of the unit prevented the start.
const SKIPPED: FaultRow = FaultRow::new("rke2_start_skipped", &[], &["Skipped due to 'exec-condition'"])
    .says("the other RKE2 service runs on this node")
    .cured(
        AskOperator("stop the other RKE2 service"),
        "the platform installs one service on each node, so a person started the other",
    );
/// The unit ends repeatedly without one of the lines above.
pub(super) const CRASH_LOOP: FaultRow =
    FaultRow::new("rke2_crash_loop", &[], &[]).says("the service exits repeatedly").cured(
        Repair("RKE2 is installed, configured and started again"),
        "no line of the journal has a known cause; what is missing or changed in RKE2's files and settings is written again",
    );
/// The deadline passed without one of the lines above.
pub(super) const NOT_READY: FaultRow =
    FaultRow::new("rke2_not_ready", &[], &[]).says("the service did not become ready in time").cured(
        Repair("RKE2 is installed, configured and started again"),
        "no line of the journal has a known cause; a slow machine needs only another start",
    );
/// An uninstall left residue.
pub(crate) const RESIDUE: FaultRow =
    FaultRow::new("rke2_residue", &[], &[]).says("the uninstall left residue, or some checks could not run").cured(
        AskOperator("reset and reimage the machine"),
        "the uninstall removes every path of RKE2, so the rest belongs to other software or cannot be removed",
    );
/// A preflight has blocking findings.
pub(crate) const PREFLIGHT: FaultRow = FaultRow::new("rke2_preflight_blocked", &[], &[])
    .says("the preflight has blocking findings")
    .cured(AskOperator("resolve the findings"), "only the operator can change the machine");
/// The service of a ready member is down. While an operation deploys or removes the workload, that operation deals with the service.
pub(crate) const SERVICE_DOWN: FaultRow = FaultRow::new("rke2_service_down", &[], &[])
    .says("the service is down")
    .cured(
        Repair("its service starts again"),
        "systemd starts it again by itself unless it was stopped or cannot start",
    )
    .while_deploying(ReadLog);
/// Pods stay when the time of a drain passes, most often because a PodDisruptionBudget holds them.
pub(super) const DRAIN_BLOCKED: FaultRow = FaultRow::new("drain_blocked", &[], &[])
    .says("pods had not left the node when the time of the drain passed")
    .cured(
        ThenResume(
            "let them go: scale up or change the PodDisruptionBudget (uncordon-member undoes the drain instead)",
        ),
        "a budget is the tenant's own statement about its pods, so the platform never overrides it",
    );
/// Pods of the node are evicted only with a flag.
pub(super) const DRAIN_REFUSED: FaultRow =
    FaultRow::new("drain_refused", &[], &[]).says("pods would be lost with the drain").cured(
        ThenResume("delete these pods, or request the operation again with the flag that permits their loss"),
        "no controller starts such pods again, or their data end with them; only the tenant can accept that",
    );
/// The KubeNode of a member does not exist.
pub(crate) const KUBE_NODE_MISSING: FaultRow = FaultRow::new("kube_node_missing", &[], &[])
    .says("its KubeNode does not exist")
    .cured(
        Repair("its kubelet registers the KubeNode when it starts again"),
        "a KubeNode that is deleted while its kubelet runs stays away until the kubelet starts again",
    )
    .while_deploying(Repair("its kubelet registers the KubeNode when it starts again"));

/// The KubeNode of a member in service is not Ready.
pub(crate) const KUBE_NODE_NOT_READY: FaultRow =
    FaultRow::new("kube_node_not_ready", &[], &[]).says("its KubeNode is not Ready").cured(
        Repair("RKE2 is installed, configured and started again"),
        "the kubelet reports the reason; it becomes Ready by itself when the reason is gone, and a repair starts it again",
    );
/// The API of a running cluster does not answer.
pub(crate) const CLUSTER_UNREACHABLE: FaultRow =
    FaultRow::new("cluster_unreachable", &[], &[]).says("the cluster's API does not answer").cured(
        Repair("RKE2's processes are ended, and its control plane starts again"),
        "its service runs, so a process that it manages has failed: a repair starts the control plane again",
    );

/// The kinds of failure that no line of the journal shows: states of units, findings, and answers of the cluster.
pub const OTHER_FAULTS: &[FaultRow] = &[
    CRASH_LOOP,
    NOT_READY,
    PREFLIGHT,
    RESIDUE,
    SERVICE_DOWN,
    DRAIN_BLOCKED,
    DRAIN_REFUSED,
    KUBE_NODE_MISSING,
    KUBE_NODE_NOT_READY,
    CLUSTER_UNREACHABLE,
];

const RESET_CURE: Remedy =
    AskOperator("end RKE2's processes (rke2-killall.sh), remove server: from its settings, and repeat the reset");
const RESET_WHY: &str = "the platform never resets a cluster, so a person began it and must end it";
const IMAGES_CURE: Remedy = Repair("the files and images of the release are installed again");
const IMAGES_WHY: &str =
    "the release contains every image that RKE2 needs, so one that is missing was damaged or deleted";
const EXEC_CURE: Remedy = AskOperator("allow it in fapolicyd or SELinux");
const EXEC_WHY: &str = "the policy of a machine is its operator's";
const KUBELET_CURE: Remedy = AskOperator("correct what kubelet.log names");
const KUBELET_WHY: &str =
    "the platform gives the kubelet only arguments that the release knows, so the cause is in the host";
const PROXY_CURE: Remedy = AskOperator("add the addresses of all nodes, pods and services to NO_PROXY");
const PROXY_WHY: &str = "the proxy is set in the environment of the unit, which GPUaaS does not write";
const INTERFACE_CURE: Remedy = Repair("its configuration is written with the address that the node reports now");
const INTERFACE_WHY: &str =
    "the platform sets the address of every node; an address that moved to another interface is reported by the agent";
const SERVER_CURE: Remedy = AskOperator("allow connections to port 9345 of the server");
const SERVER_WHY: &str = "the answer of the server did not arrive, or was not that of the server";
const SLOW_CURE: Remedy = AskOperator("give etcd a faster disk, and at least 2 CPUs and 4 GiB");
const SLOW_WHY: &str = "no restart makes a disk faster";
