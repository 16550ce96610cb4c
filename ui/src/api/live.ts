// Server-sent events, read by `fetch`: EventSource sends no credential.

import { pageHeaders } from "./client";
import { root } from "./root";

export interface Follower {
  signal: AbortSignal;
  // The stream is open.
  onopen: () => void;
  // Events arrived.
  onevents: () => void;
}

// Follows the stream of api/v1/PATH until it ends. Returns whether another attempt may succeed.
export async function follow(path: string, { signal, onopen, onevents }: Follower): Promise<boolean> {
  try {
    const response = await fetch(`${root}api/v1/${path}`, { headers: pageHeaders(), signal });
    const reader = response.body?.getReader();
    // 204: the server has too many streams.
    if (!response.ok || response.status === 204 || !reader) return response.status >= 500;
    onopen();
    while (!(await reader.read()).done) onevents();
    return true;
  } catch {
    return true;
  }
}
