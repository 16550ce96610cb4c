import { expect, test } from "vitest";
import type { Failure } from "../../../src/api/client";
import { ruleItems, storeProblems } from "../../../src/pages/groupCheck";
import { folderGroups, groupName } from "../../../src/pages/ruleFolder";
import { groupOfRule } from "../../../src/pages/ruleText";

test("names of the folder are read in the layout of the server", () => {
  const yaml = `"123":
- name: "null"
  rules:
  - record: a:b
    expr: up
    labels:
      name: x
team:
- interval: 1s
  name: g1
  rules: []
- name: it's
  rules: []
we ird:/'n:
- name: 'g: #"2'
"- a":
- name: "two\\nlines"
`;
  expect(folderGroups(yaml)).toEqual([
    { namespace: "123", group: "null" },
    { namespace: "team", group: "g1" },
    { namespace: "team", group: "it's" },
    { namespace: "we ird:/'n", group: 'g: #"2' },
    { namespace: "- a", group: "two\nlines" },
  ]);
  expect(folderGroups("{}\n")).toEqual([]);
});

const GROUP = `# a note
name: 'g'

rules: # all
  - record: a
    expr: |-
      up

      == 1
  # between
  - alert: B
    expr: down
labels: {a: b}
`;

test("rules of a group keep their lines", () => {
  expect(groupName(GROUP)).toBe("g");
  expect(ruleItems(GROUP)).toEqual([
    { start: 4, text: "  - record: a\n    expr: |-\n      up\n\n      == 1" },
    { start: 10, text: "  - alert: B\n    expr: down" },
  ]);
  expect(ruleItems("name: g\nrules: []\n")).toEqual([]);
  expect(ruleItems("name: g\nrules:\n- record: a\n  expr: b")).toEqual([{ start: 2, text: "- record: a\n  expr: b" }]);
});

const refused = (message: string): Failure => ({ kind: "refused", status: 400, errorType: "bad_data", message });

test.each([
  ["3:3: field labels not found in type rulefmt.RuleGroup", 13, /^field labels/],
  ['0:0: 0:0: group "g", rule 2, "": one of \'record\' or \'alert\' must be set', 11, /^group "g", rule 2/],
  ["2:3: Groupname must not be empty", 2, /^Groupname/],
  ["3:9: something else", 4, /^something/],
  ["no place", undefined, /^no place/],
])("%s is a mistake of line %s", (message, line, text) => {
  const [problem] = storeProblems(GROUP, refused(message));
  expect(problem?.line).toBe(line);
  expect(problem?.message).toMatch(text);
});

test("other failures are no mistakes of the text", () => {
  expect(storeProblems(GROUP, { kind: "forbidden", message: "no" })).toEqual([]);
  expect(storeProblems(GROUP, { kind: "refused", status: 409, errorType: "conflict", message: "taken" })).toEqual([]);
});

test.each([
  ["alert: A\nexpr: up\n", "1m", "name: 'A'\ninterval: 1m\nrules:\n- alert: A\n  expr: up\n"],
  ["# why\nrecord: a:b\nexpr: |-\n  up\n\n  > 1\n", "", "name: 'a:b'\nrules:\n# why\n- record: a:b\n  expr: |-\n    up\n\n    > 1\n"],
  ["- alert: A\n  expr: up\n", "", "name: 'A'\nrules:\n- alert: A\n  expr: up\n"],
])("a group of the rule %j", (rule, interval, group) => {
  expect(groupOfRule(rule, interval)).toBe(group);
});
