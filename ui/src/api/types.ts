//! Short names of the API's schemas. Pages import types from here, never from the generated file.

import type { components } from "./schema";

type Schemas = components["schemas"];

export type AccessAnswer = Schemas["AccessAnswer"];
export type AccessGrant = Schemas["AccessGrant"];
export type AccessGranted = Schemas["AccessGranted"];
export type AccessKind = Schemas["AccessKind"];
export type AddMembers = Schemas["AddMembers"];
export type Allocation = Schemas["Allocation"];
export type AllocationState = Schemas["AllocationState"];
export type App = Schemas["App"];
export type AppOperation = Schemas["AppOperation"];
export type Artifact = Schemas["Artifact"];
export type Archive = Schemas["Archive"];
export type AuditAction = Schemas["AuditAction"];
export type AuditEntry = Schemas["AuditEntry"];
export type Authority = Schemas["Authority"];
export type AuthorityState = Schemas["AuthorityState"];
export type BrowserSession = Schemas["BrowserSession"];
export type ClockState = Schemas["ClockState"];
export type Connectivity = Schemas["Connectivity"];
export type ControllerReport = Schemas["ControllerReport"];
export type Deploy = Schemas["Deploy"];
export type CreatedToken = Schemas["CreatedToken"];
export type CurrentSession = Schemas["CurrentSession"];
export type Difference = Schemas["Difference"];
export type Enrollment = Schemas["Enrollment"];
export type Event = Schemas["Event"];
export type EventKind = Schemas["EventKind"];
export type FileSystem = Schemas["FileSystem"];
export type Fault = Schemas["Fault"];
export type Health = Schemas["Health"];
export type Gpu = Schemas["Gpu"];
export type Lifecycle = Schemas["Lifecycle"];
export type LogLine = Schemas["LogLine"];
export type Member = Schemas["Member"];
export type MemberState = Schemas["MemberState"];
export type Node = Schemas["Node"];
export type NodeFacts = Schemas["NodeFacts"];
export type NodeResidue = Schemas["NodeResidue"];
export type NodeState = Schemas["NodeState"];
export type NotKnown = Schemas["NotKnown"];
export type Operation = Schemas["Operation"];
export type OperationDetail = Schemas["OperationDetail"];
export type OperationKind = Schemas["OperationKind"];
export type OperationState = Schemas["OperationState"];
export type Permission = Schemas["Permission"];
export type PlacementOption = Schemas["PlacementOption"];
export type PlannedStep = Schemas["PlannedStep"];
export type PreflightFinding = Schemas["PreflightFinding"];
export type Preview = Schemas["Preview"];
export type Problem = Schemas["Problem"];
export type ProblemReason = Schemas["ProblemReason"];
export type Project = Schemas["Project"];
export type ProjectRole = Schemas["ProjectRole"];
export type Recovery = Schemas["Recovery"];
export type RequestAccess = Schemas["RequestAccess"];
export type RegisteredNode = Schemas["RegisteredNode"];
export type Replica = Schemas["Replica"];
export type Role = Schemas["Role"];
export type SealingKey = Schemas["SealingKey"];
export type Section = Schemas["Section"];
export type ServiceAccount = Schemas["ServiceAccount"];
export type SigningKey = Schemas["SigningKey"];
export type SigningKeyState = Schemas["SigningKeyState"];
export type Started = Schemas["Started"];
export type StartOperation = Schemas["StartOperation"];
export type Step = Schemas["Step"];
export type StepState = Schemas["StepState"];
export type Task = Schemas["Task"];
export type TaskState = Schemas["TaskState"];
export type Token = Schemas["Token"];
export type Waiting = Schemas["Waiting"];
export type WaitingFrom = Schemas["WaitingFrom"];
export type WhoAmI = Schemas["WhoAmI"];
export type Workload = Schemas["Workload"];
export type WorkloadDetail = Schemas["WorkloadDetail"];
export type WorkloadDiff = Schemas["WorkloadDiff"];
export type WorkloadLogLine = Schemas["WorkloadLogLine"];

/** A page of a list. */
export interface ListPage<T> {
  items: T[];
  next_cursor?: string | null;
  counts?: Record<string, number> | null;
}
