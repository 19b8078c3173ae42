//! What an operation does, in words, with the member that it is about.

import type { Operation } from "../../api/types";
import { actionLabel } from "../workload/actions";

type Asked = Pick<Operation, "kind" | "parameters">;

/** The member that an operation is about, if it is about one. */
function memberOf({ parameters }: Asked): string | undefined {
  const member: unknown = parameters?.["member"];
  return typeof member === "string" ? member : undefined;
}

/** `Drain agent-2`; without a member `Deploy`. */
export function operationLabel(operation: Asked): string {
  const member = memberOf(operation);
  return actionLabel({ kind: operation.kind, ...(member !== undefined && { member }) });
}

/** `Drain agent-2 of train`, `Add member to train`; `Deploy train` for an operation on the workload as a whole. */
export function operationTitle(operation: Asked & Pick<Operation, "workload_name">): string {
  const workload = operation.workload_name ?? "";
  if (workload === "") return operationLabel(operation);
  const about = operation.kind === "add_member" ? "to" : memberOf(operation) === undefined ? "" : "of";
  return [operationLabel(operation), about, workload].filter((word) => word !== "").join(" ");
}
