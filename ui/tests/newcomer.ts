//! A machine that is not yet a node: a sandbox whose agent enrolls with the command that the shell shows.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { type Platform, until } from "./platform.ts";
import { program, required } from "./settings.ts";

const UNIT = "[Service]\nType=notify\nExecStart=AGENT\nRestart=always\nRestartSec=1s\nTimeoutStartSec=0\n";
/** Last number of the address, which no node of `gpuaas dev` has. */
const NUMBER = 90;

export class Newcomer {
  readonly #init: ChildProcess;

  private constructor(init: ChildProcess) {
    this.#init = init;
  }

  /** Does what the command's script does on a machine with packages: it starts the agent with the string of the command. */
  static start(platform: Platform, hostname: string, command: string): Newcomer {
    const string = /GPUAAS_ENROLL=(\S+) sh$/.exec(command)?.[1];
    if (string === undefined) throw new Error(`no enrollment string in: ${command}`);
    const gpuaas = required("UI_PROGRAM", program);
    const root = join(platform.folder, "newcomer");
    // Another machine than the newcomer of an earlier test.
    rmSync(root, { recursive: true, force: true });
    const put = (path: string, text: string): void => {
      mkdirSync(join(root, dirname(path)), { recursive: true });
      writeFileSync(join(root, path), text, { mode: 0o600 });
    };
    put("etc/systemd/system/gpuaas-agent.service", UNIT.replace("AGENT", join(dirname(gpuaas), "gpuaas-agent")));
    put(".sandbox/enabled", "gpuaas-agent.service");
    put("var/lib/gpuaas-agent/enroll", string);
    const { nodes } = JSON.parse(readFileSync(join(platform.folder, "ready.json"), "utf8")) as {
      nodes: { address: string }[];
    };
    const address = (nodes[0]?.address ?? "").replace(/\d+$/, String(NUMBER));
    const options = ["--lifeline", "--root", root, "--hostname", hostname, "--address", address];
    // It ends with the test, also with one that is killed. The init wants a pipe for that, and Node.js would give it a socket.
    const line = 'cat | exec "$0" sandbox-init "$@"';
    return new Newcomer(spawn("sh", ["-c", line, gpuaas, ...options], { stdio: ["pipe", "ignore", "inherit"] }));
  }

  async stop(): Promise<void> {
    this.#init.stdin?.end();
    await until("the newcomer has ended", () => this.#init.exitCode !== null);
  }
}
