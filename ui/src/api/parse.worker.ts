// Parses large answers away from the main thread.

import { compact } from "./matrix";

export interface ParseTask {
  id: number;
  bytes: ArrayBuffer;
}

export type ParseResult = { id: number; document: unknown } | { id: number; fault: string };

// `self` of a worker, whose types exclude those of a page.
const scope = self as unknown as {
  onmessage: (event: MessageEvent<ParseTask>) => void;
  postMessage: (result: ParseResult, transfer: Transferable[]) => void;
};

scope.onmessage = ({ data: { id, bytes } }) => {
  try {
    const document: unknown = JSON.parse(new TextDecoder().decode(bytes));
    scope.postMessage({ id, document }, compact(document));
  } catch (error) {
    scope.postMessage({ id, fault: String(error) }, []);
  }
};
