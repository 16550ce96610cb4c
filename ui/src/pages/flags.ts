// Flags of the server, from `/api/v1/status/settings`, or from `/api/v1/status/flags` of servers without it.

import { get, type Outcome } from "../api/client";

export interface ServerFlag {
  name: string;
  value: string;
  // Unknown without `/status/settings`, like the help text.
  default?: string;
  changed: boolean;
  help: string;
}

export async function loadFlags(signal: AbortSignal): Promise<Outcome<ServerFlag[]>> {
  const outcome = await get<{ settings: ServerFlag[] }>("status/settings", {}, { signal });
  if (outcome.ok) return { ...outcome, data: outcome.data.settings };
  if (!("status" in outcome.failure) || outcome.failure.status !== 404) return outcome;
  const flags = await get<Record<string, string>>("status/flags", {}, { signal });
  if (!flags.ok) return flags;
  return { ...flags, data: Object.entries(flags.data).map(([name, value]) => ({ name, value, changed: false, help: "" })) };
}

// Changed flags first, both parts by name.
export const orderedFlags = (flags: readonly ServerFlag[]): ServerFlag[] =>
  [...flags].sort((a, b) => Number(b.changed) - Number(a.changed) || a.name.localeCompare(b.name));
