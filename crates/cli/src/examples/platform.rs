//! Examples of the commands about the control plane and this program.

use super::CommandExamples;

/// Examples by command, in the order of the help.
pub(super) const EXAMPLES: &[CommandExamples] = &[
    (
        "event",
        &[
            ("List the events of a project", "gpuaas event list --project ml"),
            ("Follow events as they happen", "gpuaas event watch"),
        ],
    ),
    (
        "event list",
        &[
            ("List the events of a project", "gpuaas event list --project ml"),
            ("List the events after number 1200 as JSON", "gpuaas event list --after 1200 -o json"),
        ],
    ),
    (
        "event watch",
        &[
            ("Follow new events of a project", "gpuaas event watch --project ml"),
            ("Start after the event with number 1200", "gpuaas event watch --after 1200"),
            ("Print each event as one line of JSON", "gpuaas event watch -o json"),
        ],
    ),
    (
        "audit",
        &[
            ("List the audit records of the last hour", "gpuaas audit list --since 1h"),
            ("Verify the whole audit", "gpuaas audit verify"),
        ],
    ),
    (
        "audit list",
        &[
            ("List the records of the last hour", "gpuaas audit list --since 1h"),
            ("List the records about a node", "gpuaas audit list --target node/gpu-1"),
            ("List what a workload and its tasks did", "gpuaas audit list --workload train --project ml"),
            ("List the newest records of one actor", "gpuaas audit list --actor alice --limit 20"),
            ("List what one request caused", "gpuaas audit list --correlation 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
            (
                "List the records of one day",
                "gpuaas audit list --since 2026-07-01T00:00:00Z --until 2026-07-02T00:00:00Z",
            ),
            ("List the tokens created within a day", "gpuaas audit list --action token.create --since 24h -o json"),
            ("List what was refused within a day, and to whom", "gpuaas audit list --result refused --since 24h"),
        ],
    ),
    (
        "audit chain",
        &[
            ("Show up to which record the audit is sealed", "gpuaas audit chain"),
            ("Show the newest seal as JSON", "gpuaas audit chain -o json"),
        ],
    ),
    (
        "audit verify",
        &[
            ("Verify the whole audit", "gpuaas audit verify"),
            ("Print only the head, to note it elsewhere", "gpuaas audit verify -o name"),
            (
                "Verify that the audit still contains a head that was noted earlier",
                "gpuaas audit verify --head 412:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            ),
        ],
    ),
    (
        "archive",
        &[
            ("List archives of operations", "gpuaas archive list --kind operations"),
            ("Print the content of an archive", "gpuaas archive get 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10"),
        ],
    ),
    (
        "archive list",
        &[
            ("List all archives", "gpuaas archive list"),
            ("List archives of audit records", "gpuaas archive list --kind audit"),
        ],
    ),
    (
        "archive get",
        &[
            (
                "Write an archive to a file",
                "gpuaas archive get 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10 --file operations.jsonl",
            ),
            (
                "Find an operation in the archives",
                "gpuaas archive get --operation 0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10",
            ),
        ],
    ),
    ("support", &[("Collect diagnostics", "gpuaas support bundle")]),
    (
        "support bundle",
        &[
            ("Collect diagnostics into gpuaas-support.tar.gz", "gpuaas support bundle"),
            ("Choose the file", "gpuaas support bundle --file ./support.tar.gz"),
            ("Add logs, with secrets redacted", "gpuaas support bundle --add control-plane.log --add agent.log"),
        ],
    ),
    ("context", &[("List contexts", "gpuaas context list"), ("Select the current context", "gpuaas context use cp")]),
    ("context list", &[("List contexts; * marks the current one", "gpuaas context list")]),
    ("context use", &[("Select the current context", "gpuaas context use cp")]),
    (
        "context delete",
        &[
            ("Delete a context", "gpuaas context delete staging"),
            ("Delete it without a question", "gpuaas context delete staging --yes"),
        ],
    ),
    (
        "context set",
        &[
            (
                "Create a context with a token",
                "gpuaas context set cp --url https://cp.example:7443 --ca-file ca.pem --token-file token",
            ),
            ("Change the project of a context", "gpuaas context set cp --project ml"),
            ("Create a context for a development control plane", "gpuaas context set dev --ready-file dev.json"),
        ],
    ),
    (
        "whoami",
        &[
            ("Show whose token is in use", "gpuaas whoami"),
            ("Check the token of another context", "gpuaas whoami --context cp"),
        ],
    ),
    ("version", &[("Print the version", "gpuaas version")]),
    (
        "explain",
        &[("Explain an error code", "gpuaas explain rke2_residue"), ("List all error codes", "gpuaas explain")],
    ),
    ("flags", &[("Show the flags that every command accepts", "gpuaas flags")]),
    (
        "server",
        &[
            ("Run with the settings of a file", "gpuaas server --config /etc/gpuaas/server.toml"),
            (
                "Serve clients and nodes on other machines",
                "gpuaas server --listen 0.0.0.0:443 --channel-listen 0.0.0.0:7444 --public-url https://cp.example",
            ),
            (
                "Keep events for 90 days and log JSON",
                "gpuaas server --data-dir /var/lib/gpuaas --keep-events 90d --log-format json",
            ),
        ],
    ),
    (
        "server accept-history",
        &[
            (
                "Accept an older database and revoke credentials",
                "gpuaas server accept-history --config /etc/gpuaas/server.toml",
            ),
            (
                "Confirm that the database is the newest",
                "gpuaas server accept-history --keep-credentials --config /etc/gpuaas/server.toml",
            ),
            ("Show what would be accepted", "gpuaas server accept-history --dry-run"),
        ],
    ),
    (
        "server check-config",
        &[
            ("Check a configuration file", "gpuaas server check-config --config /etc/gpuaas/server.toml"),
            ("Print the effective settings as JSON", "gpuaas server check-config -o json"),
        ],
    ),
    (
        "server backup",
        &[
            ("Back up the data directory", "gpuaas server backup /backup/gpuaas-2026-07-01.tar"),
            (
                "Back up with the settings of a file",
                "gpuaas server backup /backup/gpuaas-2026-07-01.tar --config /etc/gpuaas/server.toml",
            ),
        ],
    ),
    (
        "server next-sealing-key",
        &[
            ("Make the next sealing key", "gpuaas server next-sealing-key --config /etc/gpuaas/server.toml"),
            ("Use the key from another replica", "gpuaas server next-sealing-key --from /root/sealing-next.key"),
        ],
    ),
    (
        "server recover-admin",
        &[("Make a one-time admin token", "gpuaas server recover-admin --config /etc/gpuaas/server.toml")],
    ),
    (
        "server verify",
        &[
            ("Check the database and the artifacts", "gpuaas server verify --config /etc/gpuaas/server.toml"),
            ("Print the problems as JSON", "gpuaas server verify -o json"),
        ],
    ),
    (
        "server restore",
        &[
            ("Restore into an empty data directory", "gpuaas server restore /backup/gpuaas-2026-07-01.tar"),
            (
                "Restore with the settings of a file",
                "gpuaas server restore /backup/gpuaas-2026-07-01.tar --config /etc/gpuaas/server.toml",
            ),
        ],
    ),
    (
        "dev",
        &[
            ("Run a control plane with three sandbox nodes", "gpuaas dev"),
            ("Write the URL and a token to a file", "gpuaas dev --nodes 5 --ready-file dev.json"),
            ("Run three replicas on PostgreSQL", "gpuaas dev --replicas 3 --store-url-file store-url"),
        ],
    ),
    (
        "completion",
        &[
            ("Print the script for Bash; source <(…) in ~/.bashrc loads it", "gpuaas completion bash"),
            ("Print the script for Zsh", "gpuaas completion zsh"),
        ],
    ),
    ("man", &[("Install the manual pages", "gpuaas man /usr/local/share/man/man1")]),
];
