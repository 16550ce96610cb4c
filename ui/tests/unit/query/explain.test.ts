import { describe, expect, test } from "vitest";
import { hintsOf } from "../../../src/query/explain/fixes";
import { hottestOf, operationsOf, totalsOf, type PlanNode } from "../../../src/query/explain/plan";

type Shape = [text: string, ...children: Shape[]];

// A plan of texts alone.
function plan([text, ...children]: Shape, more: Partial<PlanNode> = {}): PlanNode {
  return { type: "call", text, hints: [], children: children.map((child) => plan(child)), ...more };
}

describe("places of operations", () => {
  const RATE: Shape = ["rate(x[1m] offset 1m)", ["x[1m] offset 1m"]];
  test.each<[string, Shape, (string | undefined)[]]>([
    ["up", ["up"], ["up"]],
    [" sum( up )", ["sum(up)", ["up"]], ["sum( up )", "up"]],
    ["(sum(up) without (job)) or topk(2, rate(x[1m] offset 1m))", ["…", ["sum without (job) (up)", ["up"]], ["topk(2, …)", ["2"], RATE]],
      ["(sum(up) without (job)) or topk(2, rate(x[1m] offset 1m))", "sum(up) without (job)", "up", "topk(2, rate(x[1m] offset 1m))", "2", "rate(x[1m] offset 1m)", "x[1m] offset 1m"]],
    ["max_over_time(rate(x[1m])[5m:15s])", ["…", ["…", ["…", ["x[1m]"]]]],
      ["max_over_time(rate(x[1m])[5m:15s])", "rate(x[1m])[5m:15s]", "rate(x[1m])", "x[1m]"]],
    // The server computes constants in advance.
    ["-up + (1 + 2) * 3", ["…", ["-up", ["up"]], ["9"]], ["-up + (1 + 2) * 3", "-up", "up", "(1 + 2) * 3"]],
    ["up * on (job) group_left (a) (c)", ["…", ["up"], ["c"]], ["up * on (job) group_left (a) (c)", "up", "c"]],
    ["sum(a, b", ["…", ["a"], ["b"]], [undefined, undefined, undefined]],
    ["-up + up @ 5 * c", ["…", ["-up", ["up"]], ["…", ["up @ 5"], ["c"]]], [undefined, undefined, undefined, undefined, undefined, undefined]],
  ])("%s", (expr, shape, expected) => {
    const found = operationsOf(plan(shape), expr);
    expect(found.map(({ part }) => part && expr.slice(part.from, part.to))).toEqual(expected);
  });

  test("shares add up, and the hottest operation is found", () => {
    const cost = (cpuSeconds: number) => ({ cpuSeconds, samplesRead: 10, bytesRead: 5 });
    const root = plan(["sum(up)", ["up"]], cost(1));
    Object.assign(root.children[0] ?? {}, cost(3));
    const found = operationsOf(root, "sum(up)");
    expect(found.map(({ path, depth, share }) => [path, depth, share])).toEqual([["0", 0, 0.25], ["0.0", 1, 0.75]]);
    expect(hottestOf(found)?.path).toBe("0.0");
    expect(totalsOf(found)).toEqual({ seconds: 4, samples: 20, bytes: 10 });
    expect(hottestOf(operationsOf(plan(["up"]), "up"))).toBeUndefined();
  });
});

describe("changes that hints apply", () => {
  const selector = (shape: Shape, kind: string, text: string, expr: string) => {
    const root = plan(shape);
    let last = root;
    while (last.children[0] !== undefined) [last] = last.children as [PlanNode];
    last.hints = [{ kind, text }];
    return hintsOf(operationsOf(root, expr), expr);
  };

  const SHORT = "the range 1s is shorter than two scrapes; use a range of at least 1m30s";
  const useless = (matcher: string) => `the matcher ${matcher} matches every series; remove it`;
  test.each<[string, string, string, string | undefined]>([
    ['rate(x{a="[1s]"}[1s] offset 1m)', "short_range", SHORT, 'rate(x{a="[1s]"}[1m30s] offset 1m)'],
    ["sum(x offset 1h)", "counter_without_rate", "", "sum(rate(x[5m] offset 1h))"],
    ['sum(x{a="b"})', "counter_without_rate", "", 'sum(rate(x{a="b"}[5m]))'],
    ["rate(x[5m])", "rate_of_gauge", "", "deriv(x[5m])"],
    ["increase(x[5m])", "rate_of_gauge", "", "delta(x[5m])"],
    ['sum(x{a=~".*"})', "matches_everything", useless('a=~".*"'), "sum(x)"],
    ['sum(x{a=~".*", b="c"})', "matches_everything", useless('a=~".*"'), 'sum(x{b="c"})'],
    ['sum(x{b="c",a=~".*"})', "matches_everything", useless('a=~".*"'), 'sum(x{b="c"})'],
    ['sum(x{b="c" , a=~".*" , d="e"})', "matches_everything", useless('a=~".*"'), 'sum(x{b="c", d="e"})'],
    ['sum({"x.y", a=~".*"})', "matches_everything", useless('a=~".*"'), 'sum({"x.y"})'],
    ['sum({__name__=~".+"})', "matches_everything", 'the matcher __name__=~".+" matches every series; name the metrics that you need', undefined],
    ["sum(x)", "of_a_newer_server", "new", undefined],
  ])("%s, %s", (expr, kind, text, expected) => {
    const [hint] = selector(["…", ["…"]], kind, text, expr);
    expect(hint?.expr).toBe(expected);
    expect(hint?.id).toBe(kind);
  });

  test("a join that drops series opens both sides", () => {
    const root = plan(["a / b", ["a"], ["b"]], { hints: [{ kind: "join_drops_series", text: "no partner" }] });
    expect(hintsOf(operationsOf(root, "a / b"), "a / b")).toMatchObject([{ text: "No partner.", open: ["a", "b"], action: "Show both sides" }]);
  });
});
