//! What each permission lets a person do, in words.

import type { Permission } from "../../api/types";

export const PERMISSION_NOTES: Record<Permission, string> = {
  "project.read": "See the project, its allocations and the catalog",
  "workloads.read": "See workloads, operations and events",
  "logs.read": "Read the logs of workloads",
  "workloads.write": "Deploy, change and remove workloads",
  "workloads.report": "Report on a workload as its controller",
  "operations.control": "Cancel operations",
  "access.view": "Take a credential that reads a cluster",
  "access.take": "Take every other credential of a cluster",
  "access.break_glass": "Take a break-glass credential",
  "audit.read": "Read audit records",
  "archives.read": "Read archived history and verify the audit",
  "tokens.write": "Create and revoke tokens and service accounts",
  "platform.read": "See nodes, keys and replicas",
  "metrics.read": "Read metrics",
  "nodes.write": "Register, inspect, fix and retire nodes",
  "allocations.write": "Allocate and release nodes",
  "artifacts.write": "Import releases",
  "keys.write": "Rotate and revoke keys",
  "projects.write": "Create and delete projects",
};

export const PERMISSIONS = Object.keys(PERMISSION_NOTES) as Permission[];
