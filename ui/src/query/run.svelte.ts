// One query under way: its answer or failure, its elapsed time, and its progress on the
// server. The last good answer stays until the next one comes.

import { get, post, type Failure, type Params, type Success } from "../api/client";
import type { QueryData } from "../api/types";
import type { PlanNode } from "./explain/plan";

export type Kind = "range" | "instant";

export interface Question {
  expr: string;
  kind: Kind;
  // Seconds; for an instant query `end` is its time.
  start: number;
  end: number;
  step: number;
  // 0 for all series.
  limit: number;
  // The plan in place of the result, or with its cost in addition to the result.
  report?: "plan" | "analysis";
}

export interface Answer {
  question: Question;
  data: QueryData;
  // The plan with the cost of its operations, if the question was for an analysis.
  analysis: PlanNode | undefined;
  warnings: string[];
  infos: string[];
  // Time in all, and time on the server, in milliseconds.
  milliseconds: number;
  serverMilliseconds: number | undefined;
  samples: number | undefined;
  // Whether the server has more series than the limit of the request.
  isCut: boolean;
  receivedAt: number;
}

// The progress of a query, from `/status/active_queries`.
export interface Progress {
  samples: number;
  phase: string;
  // Number of queries that waited before this one.
  ahead: number;
}

interface ActiveQuery {
  id: number;
  queryId?: string;
  samples: number;
  phase: string;
}

const PATIENCE_MS = 1000;
const CLOCK_MS = 100;
const CUT = "results truncated due to limit";

export class Run {
  answer = $state.raw<Answer | undefined>(undefined);
  failure = $state.raw<Failure | undefined>(undefined);
  // The question of the failure, which may be another one than that of the answer.
  failed = $state.raw<Question | undefined>(undefined);
  isRunning = $state(false);
  wasCancelled = $state(false);
  elapsed = $state(0);
  progress = $state.raw<Progress | undefined>(undefined);

  #control: AbortController | undefined;

  // Sends a question in place of the one under way.
  async ask(question: Question): Promise<void> {
    this.#control?.abort();
    const control = new AbortController();
    this.#control = control;
    const id = `page-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    this.isRunning = true;
    this.wasCancelled = false;
    const stop = this.#watch(id, control.signal);
    const outcome = await post<QueryData>(...requestOf(question, id), { signal: control.signal });
    stop();
    if (this.#control !== control) return;
    this.#control = undefined;
    this.isRunning = false;
    if (outcome.ok) {
      this.answer = answerOf(question, outcome);
      this.failure = undefined;
      this.failed = undefined;
    } else if (outcome.failure.kind !== "cancelled") {
      this.failure = outcome.failure;
      this.failed = question;
    }
  }

  // Ends the query: the server notices that its client is gone.
  cancel(): void {
    if (this.#control === undefined) return;
    this.#control.abort();
    this.#control = undefined;
    this.isRunning = false;
    this.wasCancelled = true;
  }

  // Removes all state, as for an empty expression.
  clear(): void {
    this.cancel();
    this.answer = undefined;
    this.failure = undefined;
    this.failed = undefined;
    this.wasCancelled = false;
  }

  #watch(id: string, signal: AbortSignal): () => void {
    const started = performance.now();
    this.elapsed = 0;
    this.progress = undefined;
    const clock = setInterval(() => {
      this.elapsed = performance.now() - started;
    }, CLOCK_MS);
    const poll = setInterval(() => void this.#poll(id, signal), PATIENCE_MS);
    return () => {
      clearInterval(clock);
      clearInterval(poll);
    };
  }

  async #poll(id: string, signal: AbortSignal): Promise<void> {
    const outcome = await get<{ queries: ActiveQuery[] }>("status/active_queries", {}, { signal });
    // A credential without this right sees the time alone.
    if (!outcome.ok || signal.aborted) return;
    const { queries } = outcome.data;
    const at = queries.findIndex(({ queryId }) => queryId === id);
    const own = queries[at];
    if (own === undefined) return;
    const ahead = queries.slice(0, at).filter(({ phase }) => phase === "wait").length;
    this.progress = { samples: own.samples, phase: own.phase, ahead };
  }
}

// The path and the parameters of a question.
export function requestOf(question: Question, id?: string): [string, Params] {
  const { expr, kind, start, end, step, limit, report } = question;
  const reports = { explain: report === "plan" || undefined, analyze: report === "analysis" || undefined };
  const shared = { query: expr, stats: "true", query_id: id, limit: limit || undefined, ...reports };
  if (kind === "instant") return ["query", { ...shared, time: end }];
  return ["query_range", { ...shared, start, end, step }];
}

interface Stats {
  timings?: { execTotalTime?: number };
  samples?: { samplesRead?: number; totalQueryableSamples?: number };
}

function answerOf(question: Question, outcome: Success<QueryData>): Answer {
  const stats = (outcome.data as { stats?: Stats }).stats;
  const seconds = stats?.timings?.execTotalTime;
  return {
    question,
    data: outcome.data,
    analysis: (outcome.data as { analysis?: PlanNode }).analysis,
    warnings: outcome.warnings.filter((text) => text !== CUT),
    infos: outcome.infos,
    milliseconds: outcome.milliseconds,
    serverMilliseconds: seconds === undefined ? undefined : seconds * 1000,
    samples: stats?.samples?.samplesRead ?? stats?.samples?.totalQueryableSamples,
    isCut: outcome.warnings.includes(CUT),
    receivedAt: Date.now(),
  };
}
