//! An action as a dialog collects it, and the request that asks for it.

import { api, take } from "../../api/client";
import type {
  AddMembers,
  App,
  Member,
  OperationKind,
  Preview,
  StartOperation,
  Started,
  Workload,
} from "../../api/types";
import type { PlanQuery } from "../../plan/planned.svelte";
import { type Choice, fieldsOf, type JsonObject, type SchemaField } from "../../schema/fields";
import type { ActionKind } from "../../text/command";
import { words } from "../../text/plain";

/** Everything that a request of an action says. */
export interface Terms {
  kind: Exclude<ActionKind, "deploy" | "cancel">;
  /** Id of the workload: its name may be that of another one in the project that the page shows. */
  id: string;
  workload: string;
  app: string;
  /** Project of the workload. */
  project: string | undefined;
  /** Parameters by name; for added members their placement; for a decommission what it gives up. */
  parameters: JsonObject;
}

/** Sends an action, as a dry run or with the digest of its plan. */
export function sendAction(terms: Terms, query: PlanQuery, key: string | undefined): Promise<Preview | Started> {
  const { app, kind, parameters } = terms;
  const path = { workload: terms.id };
  const params = { path, query: { project: terms.project, ...query }, header: { "Idempotency-Key": key } };
  switch (kind) {
    case "resume":
      return take(api.POST("/api/v1/workloads/{workload}/resume", { params }));
    case "decommission": {
      const all = { ...params, query: { ...params.query, ...givenUp(parameters) } };
      const querySerializer = { array: { style: "form", explode: false } } as const;
      return take(api.DELETE("/api/v1/workloads/{workload}", { params: all, querySerializer }));
    }
    // The API's document has a body for each app and kind; their shapes come from the schemas of the manifest.
    case "add_member": {
      const body = { app, placement: parameters } as unknown as AddMembers;
      return take(api.POST("/api/v1/workloads/{workload}/members", { params, body }));
    }
    default: {
      const body = { app, kind, parameters } as unknown as StartOperation;
      return take(api.POST("/api/v1/workloads/{workload}/operations", { params, body }));
    }
  }
}

function givenUp(parameters: JsonObject): { give_up?: string[]; force?: boolean; reason?: string } {
  const { give_up: nodes, force, reason } = parameters;
  return {
    ...(Array.isArray(nodes) && nodes.length > 0 && { give_up: nodes.map(String) }),
    ...(force === true && { force }),
    ...(typeof reason === "string" && { reason }),
  };
}

/** What a decommission can give up. It has a request of its own, whose parameters no manifest describes. */
const DECOMMISSION: readonly SchemaField[] = [
  {
    kind: "list",
    key: "give_up",
    label: "Give up nodes",
    hint: "Names of unreachable nodes that will not return: nothing shows then that they are clean.",
    required: false,
  },
  {
    kind: "flag",
    key: "force",
    label: "Give up what could not be removed",
    hint: "Ends every member whose removal the last decommission could not prove.",
    required: false,
  },
  {
    kind: "text",
    key: "reason",
    label: "Reason",
    hint: "In one line; needed to give something up. The audit keeps it.",
    required: false,
  },
];

/** The fields of an action's dialog. */
export function fieldsFor(kind: Terms["kind"], app: App, members: readonly Member[]): SchemaField[] {
  if (kind === "resume") return [];
  if (kind === "decommission") return [...DECOMMISSION];
  if (kind === "add_member") return fieldsOf(app.added_members_schema);
  const schema = app.operations?.find((operation) => operation.kind === kind)?.parameters_schema;
  return fieldsOf(schema).map((field) => withChoices(field, kind, app, members));
}

/** A parameter `member` is one of the workload's members, `version` one of the app's versions. */
function withChoices(field: SchemaField, kind: OperationKind, app: App, members: readonly Member[]): SchemaField {
  if (field.kind !== "text") return field;
  const { key, label, hint, required } = field;
  const choices =
    key === "member" ? memberChoices(kind, members) : key === "version" ? app.versions.map(same) : undefined;
  return choices === undefined ? field : { kind: "choice", key, label, hint, required, choices };
}

function memberChoices(kind: OperationKind, members: readonly Member[]): Choice[] {
  const present = members.filter((member) => member.state !== "removed");
  const offered = present.filter((member) => member.actions?.includes(kind));
  return (offered.length > 0 ? offered : present).map((member) => ({
    value: member.name,
    label: `${member.name} on ${member.node_name}`,
  }));
}

const same = (value: string): Choice => ({ value, label: value });

/** What an action does to what runs in the workload. The plan has the details. */
export function consequenceOf(kind: ActionKind, workload: Pick<Workload, "name">, member: string | undefined): string {
  const who = member ?? "the member";
  switch (kind) {
    case "add_member":
      return "New members join. Nothing that runs is interrupted.";
    case "drain_member":
      return `The work of ${who} moves to other members, and it accepts no new work until it is uncordoned.`;
    case "uncordon_member":
      return `${member ?? "The member"} accepts new work again. Nothing is interrupted.`;
    case "remove_member":
      return `The work of ${who} moves to other members. Then it is stopped, and its files are deleted from its node.`;
    case "replace_member":
      return `A new member joins first. Then the work of ${who} moves to other members, it is stopped, and its files are deleted from its node.`;
    case "stop":
      return "Everything that runs in it ends on every member. Its data and its allocations stay.";
    case "start":
      return "Everything starts again on every member.";
    case "reconcile":
      return "What deviates from the desired state is written again. Nothing is restarted.";
    case "repair":
      return "What the scope contains is stopped, reinstalled where something is missing, and started: what runs there ends and starts again. The data stays.";
    case "decommission":
      return `${workload.name} and all data in it are deleted from every node. This cannot be undone. The allocations stay with the project.`;
    case "resume":
      return "The operation that did not succeed is repeated. Steps that are done already change nothing.";
    case "cancel":
      return "Running steps are asked to stop. Steps that have not begun never run. What is done already stays done.";
    case "deploy":
    case "upgrade":
    case "snapshot":
    case "restore":
    case "rotate_certificates":
      return `The plan says what ${words(kind)} changes and interrupts.`;
  }
}
