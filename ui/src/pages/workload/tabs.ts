//! The tabs of a workload's page, one a line. A tab is loaded when it is first opened; a line whose file does not exist is left out.

import type { Component } from "svelte";

import type { Permission, WorkloadDetail } from "../../api/types";
import type { ActionRequest } from "./actions";

/** What every tab gets. The detail is live; `act` opens the dialog of an action. */
export interface WorkloadTabProps {
  detail: WorkloadDetail;
  /** Reads the detail again, after an action. */
  reload: () => void;
  act: (request: ActionRequest) => void;
}

export type WorkloadTab = Component<WorkloadTabProps>;

export interface TabLine {
  id: string;
  label: string;
  file: string;
  needs?: Permission;
}

const LINES: readonly TabLine[] = [
  { id: "overview", label: "Overview", file: "OverviewTab" },
  { id: "members", label: "Members", file: "MembersTab" },
  { id: "access", label: "Access", file: "AccessTab" },
  { id: "operations", label: "Operations", file: "OperationsTab" },
  { id: "logs", label: "Logs", file: "LogsTab", needs: "logs.read" },
  { id: "events", label: "Events", file: "EventsTab" },
  { id: "settings", label: "Settings", file: "SettingsTab" },
];

export interface TabEntry extends TabLine {
  load: () => Promise<{ default: WorkloadTab }>;
}

const files = import.meta.glob<{ default: WorkloadTab }>("./*Tab.svelte");

export const workloadTabs: readonly TabEntry[] = LINES.flatMap((line) => {
  const load = files[`./${line.file}.svelte`];
  return load === undefined ? [] : [{ ...line, load }];
});
