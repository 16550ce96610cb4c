// Parses an answer: small ones here, large ones in a worker, so that the page stays responsive.

import { compact } from "./matrix";
import type { ParseResult, ParseTask } from "./parse.worker";

// JSON.parse takes about 5 ms for this on a slow machine.
const WORKER_FROM_BYTES = 256 * 1024;

let worker: Worker | undefined;
let lastId = 0;
const waiting = new Map<number, { resolve: (document: unknown) => void; reject: (error: Error) => void }>();

// Returns the JSON document in `bytes`, matrices compacted. Rejects bytes that are not JSON.
export async function parse(bytes: ArrayBuffer): Promise<unknown> {
  if (bytes.byteLength < WORKER_FROM_BYTES || typeof Worker === "undefined") {
    const document: unknown = JSON.parse(new TextDecoder().decode(bytes));
    compact(document);
    return document;
  }
  worker ??= start();
  const task: ParseTask = { id: (lastId += 1), bytes };
  const answer = new Promise<unknown>((resolve, reject) => waiting.set(task.id, { resolve, reject }));
  worker.postMessage(task, [bytes]);
  return answer;
}

function start(): Worker {
  const started = new Worker(new URL("./parse.worker.ts", import.meta.url), { type: "module" });
  started.onmessage = ({ data }: MessageEvent<ParseResult>) => {
    const task = waiting.get(data.id);
    waiting.delete(data.id);
    if ("fault" in data) task?.reject(new Error(data.fault));
    else task?.resolve(data.document);
  };
  // The script did not load, for example after an upgrade of the server.
  started.onerror = () => {
    for (const task of waiting.values()) task.reject(new Error("the page's worker did not start"));
    waiting.clear();
    worker = undefined;
  };
  return started;
}
