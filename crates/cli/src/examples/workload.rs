//! Examples of the commands about workloads, their operations and tasks.

use super::CommandExamples;

/// Examples by command, in the order of the help.
pub(super) const EXAMPLES: &[CommandExamples] = &[
    (
        "workload",
        &[
            ("Deploy a Kubernetes cluster", "gpuaas workload deploy rke2 --name train --server gpu-1 --agent gpu-2"),
            ("Show the state and the next action", "gpuaas workload show train"),
        ],
    ),
    (
        "workload deploy",
        &[
            (
                "Deploy a cluster on two nodes and wait for it",
                "gpuaas workload deploy rke2 --name train --server gpu-1 --agent gpu-2 --wait",
            ),
            (
                "Print the plan without carrying it out",
                "gpuaas workload deploy rke2 --name train --server gpu-1 --version v1.36.3+rke2r1 --plan",
            ),
            (
                "Deploy with settings",
                r#"gpuaas workload deploy rke2 --name train --server gpu-1 --config '{"tls_san":["train.example"]}'"#,
            ),
        ],
    ),
    (
        "workload list",
        &[
            ("List the workloads of a project", "gpuaas workload list --project ml"),
            ("List workloads that need attention", "gpuaas workload list --section needs_attention"),
            ("Print a JSON object per change", "gpuaas workload list --project ml --watch -o json"),
        ],
    ),
    (
        "workload show",
        &[
            ("Show the state, the reasons and the next action", "gpuaas workload show train"),
            ("Print all fields as YAML", "gpuaas workload show train -o yaml"),
            ("Print the ETag for a conditional change", "gpuaas workload show train --etag"),
        ],
    ),
    (
        "workload diff",
        &[
            ("Show how a workload deviates from its desired state", "gpuaas workload diff train"),
            ("Print the deviating fields", "gpuaas workload diff train -o jsonpath='{.differences[*].field}'"),
        ],
    ),
    ("workload members", &[("List the nodes of a cluster", "gpuaas workload members train")]),
    (
        "workload add-member",
        &[
            ("Add an agent and wait until it is ready", "gpuaas workload add-member train --agent gpu-2 --wait"),
            ("Print the plan without carrying it out", "gpuaas workload add-member train --agent gpu-2 --plan"),
        ],
    ),
    (
        "workload drain-member",
        &[
            ("Move the pods of an agent to others", "gpuaas workload drain-member train agent-2"),
            ("Print the plan without carrying it out", "gpuaas workload drain-member train agent-2 --plan"),
            (
                "Give the pods an hour to move, without a question",
                "gpuaas workload drain-member train agent-2 --drain-timeout 1h --yes",
            ),
        ],
    ),
    (
        "workload uncordon-member",
        &[("Let a drained agent accept pods again", "gpuaas workload uncordon-member train agent-2")],
    ),
    (
        "workload remove-member",
        &[
            ("Drain an agent and remove it", "gpuaas workload remove-member train agent-2"),
            (
                "Also evict pods that no controller replaces",
                "gpuaas workload remove-member train agent-2 --force --delete-emptydir-data",
            ),
            ("Print the plan without carrying it out", "gpuaas workload remove-member train agent-2 --plan"),
            (
                "Remove an agent whose node will not return",
                "gpuaas workload remove-member train agent-2 --give-up --reason INC-4711",
            ),
        ],
    ),
    (
        "workload replace-member",
        &[
            ("Move an agent to another node", "gpuaas workload replace-member train agent-2 --by gpu-5"),
            (
                "Run exactly the plan that was shown",
                "gpuaas workload replace-member train agent-2 --by gpu-5 --plan-digest DIGEST --yes",
            ),
        ],
    ),
    (
        "workload stop",
        &[
            ("Stop a workload and wait until it is stopped", "gpuaas workload stop train --wait"),
            ("Stop it without a question", "gpuaas workload stop train --yes"),
        ],
    ),
    ("workload start", &[("Start it again and wait until it is ready", "gpuaas workload start train --wait")]),
    (
        "workload reconcile",
        &[
            ("Correct changed files, units, labels and cordons", "gpuaas workload reconcile train"),
            ("Print what would be checked", "gpuaas workload reconcile train --plan"),
        ],
    ),
    (
        "workload repair",
        &[
            ("Repair one member", "gpuaas workload repair train --scope member --member agent-2"),
            ("Repair the control plane of the cluster", "gpuaas workload repair train --scope control-plane"),
            ("Print what it would restart", "gpuaas workload repair train --scope whole-runtime --plan"),
        ],
    ),
    ("workload restart", &[("Show what to use instead of a restart", "gpuaas workload restart train")]),
    (
        "workload decommission",
        &[
            ("Remove a workload from its nodes", "gpuaas workload decommission train"),
            ("Wait at most 30 minutes for the end", "gpuaas workload decommission train --wait --timeout 30m"),
            ("Print the plan without carrying it out", "gpuaas workload decommission train --plan"),
            ("Remove it without a question", "gpuaas workload decommission train --yes"),
            (
                "Give up a node that will not return",
                "gpuaas workload decommission train --give-up gpu-3 --reason INC-4711",
            ),
        ],
    ),
    (
        "workload resume",
        &[
            ("Retry the failed operation and wait for its end", "gpuaas workload resume train --wait"),
            ("Print what it would do, without carrying it out", "gpuaas workload resume train --plan"),
        ],
    ),
    (
        "workload kubeconfig",
        &[
            ("Print a kubeconfig that is valid for 8 hours", "gpuaas workload kubeconfig train --ttl 8h"),
            ("Merge it into ~/.kube/config and select it", "gpuaas workload kubeconfig train --merge"),
            ("Print a kubeconfig that can only read", "gpuaas workload kubeconfig train --role cluster-view"),
            (
                "Take a break-glass kubeconfig and record why",
                "gpuaas workload kubeconfig train --kind break-glass --ttl 30m --reason INC-4711",
            ),
        ],
    ),
    ("workload access", &[("List the delivered kubeconfigs", "gpuaas workload access train")]),
    (
        "workload revoke-access",
        &[
            ("Revoke a kubeconfig", "gpuaas workload revoke-access 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
            (
                "Revoke it without a question",
                "gpuaas workload revoke-access 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10 --yes",
            ),
        ],
    ),
    (
        "workload report",
        &[
            (
                "Report that an agent works",
                "gpuaas workload report train --generation 1 --phase ready --member agent-1=healthy",
            ),
            (
                "Report progress and a member with a defect",
                "gpuaas workload report train --generation 1 --progress 3/5 --member agent-1=degraded:gpu_lost",
            ),
        ],
    ),
    (
        "workload logs",
        &[
            ("Follow all members, tasks and events", "gpuaas workload logs train --follow"),
            ("Follow the journal of an agent", "gpuaas workload logs train --member agent-1 --source journal --follow"),
            ("Print the lines of the last ten minutes", "gpuaas workload logs train --since 10m"),
            (
                "Print the last 500 lines of a unit",
                "gpuaas workload logs train --member agent-1 --unit rke2-agent.service --tail 500",
            ),
        ],
    ),
    (
        "operation",
        &[
            ("List the operations of a workload", "gpuaas operation list --workload train"),
            ("Follow an operation until it ends", "gpuaas operation watch 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
        ],
    ),
    (
        "operation list",
        &[
            ("List the operations of a workload", "gpuaas operation list --workload train"),
            ("List operations that need attention", "gpuaas operation list --state needs_attention"),
            ("Show all columns", "gpuaas operation list --project ml -o wide"),
        ],
    ),
    (
        "operation start",
        &[
            (
                "Start an operation with a parameter, once `gpuaas app show` lists it as available",
                "gpuaas operation start train upgrade --parameter version=v1.37.1+rke2r1",
            ),
            (
                "Print the plan without carrying it out",
                "gpuaas operation start train upgrade --parameter version=v1.37.1+rke2r1 --plan",
            ),
            (
                "Read the parameters from a file",
                "gpuaas operation start train replace_member --parameters replacement.json",
            ),
        ],
    ),
    (
        "operation show",
        &[
            ("Show an operation with its steps", "gpuaas operation show 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
            ("Print the steps as JSON", "gpuaas operation show 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10 -o json"),
        ],
    ),
    (
        "operation watch",
        &[
            ("Follow an operation until it ends", "gpuaas operation watch 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
            (
                "Stop following after ten minutes",
                "gpuaas operation watch 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10 --timeout 10m",
            ),
        ],
    ),
    (
        "operation cancel",
        &[
            (
                "Request the cancellation of an operation",
                "gpuaas operation cancel 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10",
            ),
            (
                "Wait until the operation has ended",
                "gpuaas operation cancel 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10 --wait",
            ),
        ],
    ),
    (
        "task",
        &[
            ("List the tasks of a node", "gpuaas task list --node gpu-1"),
            ("Show a task", "gpuaas task show 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
        ],
    ),
    (
        "task list",
        &[
            ("List the tasks of a node", "gpuaas task list --node gpu-1"),
            ("List the tasks of an operation", "gpuaas task list --operation 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
        ],
    ),
    ("task show", &[("Show a task with its key and outcome", "gpuaas task show 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10")]),
];
