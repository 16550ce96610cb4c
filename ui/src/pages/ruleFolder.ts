// The rule folder of the server, which clients edit group by group under `/config/v1/rules`.

import { get, request, type Failure, type Outcome } from "../api/client";
import { plainFailure } from "../api/failure";
import { absent } from "../parts/pageResource";
import { access } from "../state/access.svelte";
import { ruleFields } from "./ruleText";

export interface FolderGroup {
  namespace: string;
  group: string;
}

export const folderKey = ({ namespace, group }: FolderGroup): string => `${namespace};${group}`;

const pathOf = (namespace: string, group?: string): string =>
  ["config/v1/rules", namespace, ...(group === undefined ? [] : [group])].map((part, i) => (i === 0 ? part : encodeURIComponent(part))).join("/");

// Whether the server has a rule folder.
export async function hasRuleFolder(signal?: AbortSignal): Promise<boolean> {
  const outcome = await get<{ features?: { ruler_config_api?: string } }>("status/buildinfo", {}, signal ? { signal } : {});
  return outcome.ok && outcome.data.features?.ruler_config_api === "true";
}

// The groups of the folder; undefined if they cannot be edited.
export async function loadFolder(signal: AbortSignal): Promise<Outcome<FolderGroup[] | undefined>> {
  if (!access.mayEditRules || !(await hasRuleFolder(signal))) return absent();
  const outcome = await request<string>(pathOf("").slice(0, -1), { method: "GET" }, { signal, isText: true });
  return outcome.ok ? { ...outcome, data: folderGroups(outcome.data) } : outcome;
}

// A text of YAML on one line.
function scalar(text: string): string {
  if (text.startsWith("'")) return text.slice(1, -1).replaceAll("''", "'");
  if (!text.startsWith('"')) return text;
  try {
    return String(JSON.parse(text));
  } catch {
    return text.slice(1, -1);
  }
}

// The names in the list of all namespaces, in the layout in which the server prints it.
export function folderGroups(yaml: string): FolderGroup[] {
  const groups: FolderGroup[] = [];
  let namespace = "";
  for (const line of yaml.split("\n")) {
    const top = /^([^\s-].*):$/.exec(line)?.[1] ?? /^("-.*"|'-.*'):$/.exec(line)?.[1];
    const name = /^(?:- | {2})name: (.+)$/.exec(line)?.[1];
    if (top !== undefined) namespace = scalar(top);
    else if (name !== undefined) groups.push({ namespace, group: scalar(name) });
  }
  return groups;
}

// The YAML of a group; undefined if the folder has none of this name.
export async function readGroup({ namespace, group }: FolderGroup): Promise<Outcome<string | undefined>> {
  const outcome = await request<string>(pathOf(namespace, group), { method: "GET" }, { isText: true });
  const isMissing = !outcome.ok && outcome.failure.kind === "foreign" && outcome.failure.status === 404;
  return isMissing ? absent() : outcome;
}

const conflict = (message: string): { ok: false; failure: Failure } =>
  ({ ok: false, failure: { kind: "refused", status: 409, errorType: "conflict", message } });

const plain = <T>(outcome: Outcome<T>): Outcome<T> => (outcome.ok ? outcome : { ok: false, failure: plainFailure(outcome.failure) });

// The name of a group in its YAML.
export const groupName = (text: string): string => ruleFields(text).get("name")?.value ?? "";

export interface GroupEdit {
  namespace: string;
  text: string;
  // The group before the edit, with its YAML; undefined for a new one.
  before?: { group: string; text: string } | undefined;
}

// Stores a group. Never replaces another group, nor one that changed meanwhile.
export async function saveGroup({ namespace, text, before }: GroupEdit): Promise<Outcome<unknown>> {
  const group = groupName(text);
  const known = await readGroup({ namespace, group });
  if (!known.ok) return plain(known);
  if (before === undefined || group !== before.group) {
    if (known.data !== undefined) return conflict(`the namespace ${namespace} has a group ${group} already; choose another name`);
  } else if (known.data !== before.text) {
    return conflict(`the group ${group} has changed on the server; open it again`);
  }
  const headers = { "content-type": "application/yaml" };
  const stored = plain(await request<unknown>(pathOf(namespace), { method: "POST", body: text }, { headers }));
  if (!stored.ok || before === undefined || group === before.group) return stored;
  return removeGroup({ namespace, group: before.group });
}

export async function removeGroup({ namespace, group }: FolderGroup): Promise<Outcome<unknown>> {
  return plain(await request<unknown>(pathOf(namespace, group), { method: "DELETE" }));
}
