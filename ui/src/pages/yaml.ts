// Lines of YAML in colour. The tokens of a line joined are the line itself, so text of unknown
// syntax is kept.

export type YamlKind = "key" | "string" | "figure" | "word" | "comment" | "punctuation" | "plain";

export interface YamlToken {
  kind: YamlKind;
  text: string;
}

export interface YamlLine {
  number: number;
  indent: number;
  tokens: YamlToken[];
  // The number of the last line that belongs to this one; its own number if there is none.
  lastChild: number;
}

const KEY = /^(\s*)((?:- +)*)([^\s#'"[{][^#'"]*?|"[^"]*"|'[^']*')(:)(?=\s|$)/;

function scalarKind(text: string): YamlKind {
  if (/^-?\d+(\.\d+)?([a-zA-Z]+)?$/.test(text)) return "figure";
  if (/^(true|false|null|~)$/.test(text)) return "word";
  return /^['"]/.test(text) ? "string" : "plain";
}

function valueTokens(text: string): YamlToken[] {
  const pattern = /(\s+#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|([[\]{},])|(\s+)|([^\s[\]{},"']+)|(.)/g;
  return [...text.matchAll(pattern)].map(([all, comment, quoted, bracket]) => {
    if (comment !== undefined) return { kind: "comment", text: all };
    if (quoted !== undefined) return { kind: "string", text: all };
    return { kind: bracket === undefined ? scalarKind(all) : "punctuation", text: all };
  });
}

function tokensOf(line: string): YamlToken[] {
  if (/^\s*#/.test(line)) return [{ kind: "comment", text: line }];
  const key = KEY.exec(line);
  if (!key) {
    const [, lead = ""] = /^(\s*(?:- +|-$)*)/.exec(line) ?? [];
    const start: YamlToken[] = lead ? [{ kind: "punctuation", text: lead }] : [];
    return [...start, ...valueTokens(line.slice(lead.length))];
  }
  const [all, spaces = "", dashes = "", name = "", colon = ""] = key;
  const start: YamlToken[] = [
    { kind: "punctuation", text: spaces + dashes },
    { kind: "key", text: name },
    { kind: "punctuation", text: colon },
  ];
  return [...start.filter(({ text }) => text), ...valueTokens(line.slice(all.length))];
}

const isBlank = (line: string) => /^\s*(#.*)?$/.test(line);

// A list under a key starts at the same column as the key ("a:\n- b"), yet belongs to it.
function isChild(parent: string, parentIndent: number, line: string, indent: number): boolean {
  if (indent > parentIndent) return true;
  const isList = (text: string) => /^\s*-( |$)/.test(text);
  return indent === parentIndent && isList(line) && !isList(parent) && /:\s*$/.test(parent);
}

// Splits a document into lines with tokens, and finds which lines each line can fold.
export function yamlLines(text: string): YamlLine[] {
  const lines = text.replace(/\n$/, "").split("\n");
  const indents = lines.map((line) => line.length - line.trimStart().length);
  return lines.map((line, i) => {
    const indent = indents[i] ?? 0;
    let last = i;
    for (let j = i + 1; j < lines.length && !isBlank(line); j += 1) {
      const next = lines[j] ?? "";
      if (isBlank(next)) continue;
      if (!isChild(line, indent, next, indents[j] ?? 0)) break;
      last = j;
    }
    return { number: i + 1, indent, tokens: tokensOf(line), lastChild: last + 1 };
  });
}

// Numbers of the lines that contain a text, without regard to case; none for an empty text.
export function foundLines(text: string, search: string): number[] {
  const wanted = search.trim().toLowerCase();
  if (wanted === "") return [];
  return text.split("\n").flatMap((line, i) => (line.toLowerCase().includes(wanted) ? [i + 1] : []));
}
