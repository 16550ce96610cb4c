// The place that an error of the server names: "1:6: parse error: ..." or "... (1:6)".

// Line and column, counted from 1; the column counts bytes of UTF-8, as in Prometheus.
export interface Place {
  line: number;
  column: number;
}

export function placeOf(message: string): Place | undefined {
  const found = /(?:^|: )(\d+):(\d+): /.exec(message) ?? /\((\d+):(\d+)\)/.exec(message);
  if (found === null) return undefined;
  return { line: Number(found[1]), column: Number(found[2]) };
}

const encoder = new TextEncoder();

// Offset of a place in a text; the end of the text if the text is shorter.
export function offsetOf(text: string, { line, column }: Place): number {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const target = lines[line - 1];
  if (target === undefined) return text.length;
  let [bytes, offset] = [1, 0];
  for (const letter of target) {
    if (bytes >= column) break;
    bytes += encoder.encode(letter).length;
    offset += letter.length;
  }
  return Math.min(text.length, before + offset);
}

// The word or sign at an offset, at least one letter long where the text has one.
export function rangeAt(text: string, offset: number): { from: number; to: number } {
  const from = Math.max(0, Math.min(offset, text.length === 0 ? 0 : text.length - 1));
  const word = /^[\w:]+/.exec(text.slice(from));
  return { from, to: Math.min(text.length, from + Math.max(1, word?.[0].length ?? 1)) };
}
