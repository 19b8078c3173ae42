//! Examples at the end of every command's help.

mod platform;
mod workload;

/// A command without `gpuaas`, and its examples: what each does, and the command line.
pub(crate) type CommandExamples = (&'static str, &'static [(&'static str, &'static str)]);

/// Returns the examples of every command, in the order of the help.
pub(crate) fn examples() -> impl Iterator<Item = &'static CommandExamples> {
    EXAMPLES.iter().chain(workload::EXAMPLES).chain(platform::EXAMPLES)
}

/// Examples of the commands about nodes, projects, credentials and releases.
const EXAMPLES: &[CommandExamples] = &[
    (
        "",
        &[
            (
                "Save a control plane as a context",
                "gpuaas context set cp --url https://cp.example:7443 --ca-file ca.pem --token-file token",
            ),
            ("List nodes", "gpuaas node list"),
            (
                "Deploy a Kubernetes cluster on two nodes",
                "gpuaas workload deploy rke2 --name train --server gpu-1 --agent gpu-2",
            ),
        ],
    ),
    (
        "node",
        &[
            ("Register a machine and enroll it", "gpuaas node register gpu-1"),
            ("Show a node with its facts and findings", "gpuaas node show gpu-1"),
        ],
    ),
    (
        "node register",
        &[
            ("Register a machine", "gpuaas node register gpu-1"),
            (
                "Register a machine with a region and labels",
                "gpuaas node register gpu-2 --region eu-1 --label rack=r12 --label gpu=h100",
            ),
        ],
    ),
    (
        "node list",
        &[
            ("List all nodes", "gpuaas node list"),
            ("List nodes that wait for a reimage", "gpuaas node list --state needs_reimage"),
            ("Print the names of nodes that can be deleted", "gpuaas node list --state retired -o name"),
            ("Print the names of unreachable nodes", "gpuaas node list --connectivity unreachable -o name"),
            ("Print the first node's name", "gpuaas node list -o jsonpath='{.items[0].name}'"),
            ("Print every node again when it changes", "gpuaas node list --watch"),
        ],
    ),
    (
        "node show",
        &[
            ("Show a node with its facts and findings", "gpuaas node show gpu-1"),
            ("Print all fields as JSON", "gpuaas node show gpu-1 -o json"),
            ("Print the ETag for a conditional change", "gpuaas node show gpu-1 --etag"),
        ],
    ),
    (
        "node enroll",
        &[
            ("Print a new enrollment command", "gpuaas node enroll gpu-1"),
            ("Accept a node in use as it is and record why", "gpuaas node enroll gpu-1 --force --reason INC-4711"),
        ],
    ),
    (
        "node ping",
        &[
            ("Measure the round trip time of one task", "gpuaas node ping gpu-1"),
            ("Send ten tasks, one after another", "gpuaas node ping gpu-1 --count 10"),
        ],
    ),
    (
        "node inspect",
        &[
            ("Inspect a machine now", "gpuaas node inspect gpu-1"),
            ("Print the facts and findings as JSON", "gpuaas node inspect gpu-1 -o json"),
        ],
    ),
    (
        "node fix",
        &[
            ("Raise the inotify limits", "gpuaas node fix gpu-1 inotify"),
            ("Load the missing kernel modules", "gpuaas node fix gpu-1 modules"),
            ("Fix a finding by its code", "gpuaas node fix gpu-1 forwarding_off"),
        ],
    ),
    (
        "node reset",
        &[
            ("Revoke the identity and enroll the reimaged machine", "gpuaas node reset gpu-1"),
            ("Accept a machine without a reimage and record why", "gpuaas node reset gpu-1 --force --reason INC-4711"),
            ("Show what a reset would end", "gpuaas node reset gpu-1 --dry-run"),
        ],
    ),
    (
        "node reimage",
        &[
            ("Reimage a machine that a tenant left", "gpuaas node reimage gpu-1"),
            ("Reimage without a question", "gpuaas node reimage gpu-1 --yes"),
        ],
    ),
    ("node retire", &[("Remove a node from use permanently", "gpuaas node retire gpu-1")]),
    ("node delete", &[("Delete a retired node", "gpuaas node delete gpu-1")]),
    ("replica", &[("List the replicas", "gpuaas replica list")]),
    (
        "replica list",
        &[
            ("List the replicas with their nodes and operations", "gpuaas replica list"),
            ("List the replicas as JSON", "gpuaas replica list -o json"),
        ],
    ),
    ("project", &[("Create a project", "gpuaas project create ml"), ("List projects", "gpuaas project list")]),
    ("project create", &[("Create a project", "gpuaas project create ml")]),
    (
        "project list",
        &[("List projects", "gpuaas project list"), ("Print only the names", "gpuaas project list -o name")],
    ),
    ("project delete", &[("Delete an empty project", "gpuaas project delete ml")]),
    (
        "allocation",
        &[
            ("Allocate a node to a project", "gpuaas allocation create --node gpu-1 --project ml"),
            ("List the allocations of a project", "gpuaas allocation list --project ml"),
        ],
    ),
    (
        "allocation create",
        &[
            ("Allocate a node to a project", "gpuaas allocation create --node gpu-1 --project ml"),
            (
                "Wait until the allocation is active or has failed",
                "gpuaas allocation create --node gpu-2 --project ml --wait --timeout 10m",
            ),
        ],
    ),
    (
        "allocation list",
        &[
            ("List the allocations of a project", "gpuaas allocation list --project ml"),
            ("List the active allocations", "gpuaas allocation list --state active"),
            ("Print only the ids", "gpuaas allocation list --project ml -o name"),
        ],
    ),
    (
        "allocation show",
        &[
            ("Show an allocation", "gpuaas allocation show 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
            (
                "Print the ETag for a conditional change",
                "gpuaas allocation show 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10 --etag",
            ),
        ],
    ),
    (
        "allocation release",
        &[
            ("Release an allocated node", "gpuaas allocation release 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
            ("Release it without a question", "gpuaas allocation release 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10 --yes"),
        ],
    ),
    (
        "bootstrap",
        &[
            (
                "Exchange the one-time token for your own",
                "gpuaas bootstrap --url https://cp.example:7443 --ca-file ca.pem --token-file admin.token --name bob",
            ),
            (
                "Store your token in the context that has the URL",
                "gpuaas bootstrap --context cp --token-file admin.token --name bob --save cp",
            ),
            (
                "Read the one-time token from standard input",
                "gpuaas bootstrap --context cp --token-file - --name bob --ttl 720h",
            ),
        ],
    ),
    (
        "login",
        &[
            ("Sign in to the workload shell in a browser", "gpuaas login --browser"),
            ("Print the link alone, to open it on another machine", "gpuaas login --browser -o name"),
        ],
    ),
    ("session", &[("List the browsers that are signed in", "gpuaas session list")]),
    (
        "session list",
        &[
            ("List the browsers that are signed in", "gpuaas session list"),
            ("List them with all times as JSON", "gpuaas session list -o json"),
        ],
    ),
    ("session revoke", &[("Sign a browser out", "gpuaas session revoke 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10")]),
    (
        "token",
        &[
            (
                "Create a token for a member of a project",
                "gpuaas token create alice --role project-member --project ml",
            ),
            ("List tokens", "gpuaas token list"),
        ],
    ),
    (
        "token create",
        &[
            (
                "Create a token for a member of a project",
                "gpuaas token create alice --role project-member --project ml",
            ),
            (
                "Create a token for an operator, valid for a day",
                "gpuaas token create carol --role platform-operator --ttl 24h",
            ),
            ("Create a token that reads the audit of a project", "gpuaas token create eve --role auditor --project ml"),
            (
                "Create a token that can only read metrics",
                "gpuaas token create scraper --role platform-metrics --ttl 8760h",
            ),
        ],
    ),
    (
        "token list",
        &[
            ("List tokens with their roles and expiry", "gpuaas token list"),
            ("List tokens as JSON", "gpuaas token list -o json"),
        ],
    ),
    (
        "token revoke",
        &[
            ("Revoke a token", "gpuaas token revoke 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
            ("Revoke it without a question", "gpuaas token revoke 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10 --yes"),
        ],
    ),
    (
        "service-account",
        &[
            ("Create a service account", "gpuaas service-account create ci --role project-member --project ml"),
            ("Create a token for it", "gpuaas service-account token ci --project ml --ttl 12h"),
        ],
    ),
    (
        "service-account create",
        &[
            (
                "Create an account that may deploy workloads",
                "gpuaas service-account create ci --role project-member --project ml",
            ),
            (
                "Create an account that may only read",
                "gpuaas service-account create dashboard --role viewer --project ml",
            ),
            (
                "Create an account for the controller of one workload",
                "gpuaas service-account create watcher --role app-controller --workload train --project ml",
            ),
        ],
    ),
    ("service-account list", &[("List the service accounts of a project", "gpuaas service-account list --project ml")]),
    (
        "service-account token",
        &[
            ("Create a token that is valid for one hour", "gpuaas service-account token ci --project ml"),
            ("Create a token that is valid for 12 hours", "gpuaas service-account token ci --project ml --ttl 12h"),
        ],
    ),
    (
        "service-account delete",
        &[
            ("Delete an account and revoke its tokens", "gpuaas service-account delete ci --project ml"),
            ("Delete it without a question", "gpuaas service-account delete ci --project ml --yes"),
        ],
    ),
    (
        "keys",
        &[
            ("List the task-signing keys", "gpuaas keys list"),
            ("Replace the task-signing key", "gpuaas keys rotate task-signing --wait"),
        ],
    ),
    (
        "keys list",
        &[
            ("List the task-signing keys", "gpuaas keys list"),
            ("List the certificate authorities", "gpuaas keys list authority"),
            ("Print the authorities with their certificates", "gpuaas keys list authority -o json"),
        ],
    ),
    ("keys show", &[("Show the sealing key and its rotation", "gpuaas keys show sealing")]),
    (
        "keys rotate",
        &[
            ("Replace the task-signing key and wait for the end", "gpuaas keys rotate task-signing --wait"),
            ("Replace the sealing key and wait for the end", "gpuaas keys rotate sealing --wait"),
            (
                "Retire the old authority without waiting for nodes",
                "gpuaas keys rotate authority --force grace --reason INC-4711",
            ),
        ],
    ),
    (
        "keys revoke",
        &[
            ("Revoke a key that may have leaked", "gpuaas keys revoke ed25519-d85456dc5a2c08d2"),
            ("Show what a revocation would do", "gpuaas keys revoke ed25519-d85456dc5a2c08d2 --dry-run"),
        ],
    ),
    (
        "app",
        &[
            ("List apps", "gpuaas app list"),
            ("Check which nodes an app can use", "gpuaas app placement-options rke2 --project ml"),
        ],
    ),
    ("app list", &[("List apps with their versions", "gpuaas app list")]),
    (
        "app show",
        &[
            ("Show what an app promises", "gpuaas app show rke2"),
            ("Print the JSON schema of its settings", "gpuaas app show rke2 -o json"),
        ],
    ),
    (
        "app placement-options",
        &[
            ("List a project's nodes and the reasons against each", "gpuaas app placement-options rke2 --project ml"),
            ("Print the reasons as JSON", "gpuaas app placement-options rke2 --project ml -o json"),
        ],
    ),
    (
        "artifact",
        &[
            ("Import a release from a directory", "gpuaas artifact import rke2 /srv/gpuaas/releases/v1.36.3+rke2r1"),
            ("List imported files", "gpuaas artifact list"),
        ],
    ),
    (
        "artifact import",
        &[
            (
                "Import a signed release from a directory",
                "gpuaas artifact import rke2 /srv/gpuaas/releases/v1.36.3+rke2r1",
            ),
            (
                "Import from a URL with a separate signature",
                "gpuaas artifact import rke2 https://releases.example/v1.36.3%2Brke2r1 --signature sums.minisig",
            ),
            (
                "Name the version of the release",
                "gpuaas artifact import rke2 /srv/gpuaas/releases/rke2 --version v1.36.3+rke2r1",
            ),
        ],
    ),
    (
        "artifact list",
        &[
            ("List the files of imported releases", "gpuaas artifact list"),
            ("Print complete digests as JSON", "gpuaas artifact list -o json"),
        ],
    ),
];
