//! Tests of reading rule files, and of the errors in invalid ones.

use super::*;

/// Parses `text` and compares either its group names with their rules or its errors with `want`.
fn check(text: &str, want: &[&str]) {
    let got: Vec<String> = match parse(text, RuleFileOptions::default()) {
        Ok(file) => {
            let shown = |group: &GroupDefinition| {
                let names: Vec<_> = group.rules.iter().map(RuleDefinition::name).collect();
                format!("{}: {}", group.name, names.join(", "))
            };
            file.groups.iter().map(shown).collect()
        }
        Err(errors) => errors.iter().map(RuleParseError::to_string).collect(),
    };
    assert_eq!(got, want, "{text}");
}

#[test]
fn parse_reads_quoted_texts_of_several_lines() {
    let head = "groups:\n- name: a\n  rules:\n  - alert: x\n    expr: up == 0\n    annotations:\n";
    for (description, want) in [
        (
            "\"first line\n      second line\"",
            "first line second line",
        ),
        (
            "\"first line\n\n      second paragraph\"",
            "first line\nsecond paragraph",
        ),
        ("'it''s\n\n\n  down'", "it's\n\ndown"),
        (">-\n        one\n        two\n", "one two"),
    ] {
        let text = format!("{head}      description: {description}\n");
        let file = parse(&text, RuleFileOptions::default()).unwrap();
        let annotations = file.groups[0].rules[0].annotations();
        assert_eq!(annotations[0].1, want, "{text}");
    }
}

#[test]
fn parse_resolves_merge_keys_as_upstream() {
    let text = "groups:\n- name: a\n  rules:\n  - &first {record: r, expr: '1', labels: {x: y}}\n\
                \x20 - {record: s, <<: *first}\n  - {<<: *first, record: t, ~: u}\n";
    check(text, &["a: r, s, t"]);
    check(
        "groups: [{name: a, name: b}]",
        &["1:20: duplicate key \"name\", first set at 1:11"],
    );
}

#[test]
fn parse_reads_every_field() {
    let text = "\
groups:
- name: g
  interval: 15s
  query_offset: 1m
  limit: 7
  labels: {team: a}
  rules:
  - record: r:sum
    expr: sum(x)
    labels: {zone: 1, on: true}
  - alert: A
    expr: x > 1
    for: 5m
    keep_firing_for: 1h
    labels: {severity: page}
    annotations: {summary: hot}
";
    let file = parse(text, RuleFileOptions::default()).unwrap();
    let group = &file.groups[0];
    let seconds = Duration::from_secs;
    assert_eq!(
        (group.interval, group.query_offset, group.limit),
        (Some(seconds(15)), Some(seconds(60)), 7)
    );
    assert_eq!(group.labels["team"], "a");
    let [record, alert] = &group.rules[..] else {
        panic!("{group:?}");
    };
    assert_eq!(record.labels["zone"], "1");
    assert_eq!(record.labels["on"], "true");
    assert_eq!(
        (alert.hold, alert.keep_firing_for),
        (seconds(300), seconds(3600))
    );
    assert_eq!(
        alert.annotations(),
        [("summary".to_owned(), "hot".to_owned())]
    );
}

#[test]
fn parse_sound_files_gives_groups_in_order() {
    check("", &[]);
    check("groups:\n", &[]);
    check("groups: [{name: a, rules: []}, {name: b}]", &["a: ", "b: "]);
    check(
        "groups: [{name: a, interval: 0s, rules: [{record: x, expr: 1}, {alert: y, expr: x}]}]",
        &["a: x, y"],
    );
}

#[test]
fn parse_what_is_nothing_counts_for_nothing() {
    check(
        "groups: [~, {name: a, rules: [~, {record: x, expr: 1}]}]",
        &["a: x"],
    );
    check("groups:\n-\n- name: a\n  rules:\n  -\n", &["a: "]);
}

#[test]
fn parse_limits_are_numbers_of_yaml() {
    for (limit, want) in [
        ("0x10", 16),
        ("1_000", 1000),
        ("1.9", 1),
        ("-1", -1),
        ("~", 0),
    ] {
        let text = format!("groups: [{{name: a, limit: {limit}}}]");
        let file = parse(&text, RuleFileOptions::default()).unwrap();
        assert_eq!(file.groups[0].limit, want, "{limit}");
    }
    for limit in ["'1'", "!!str 1", "x", "yes"] {
        let text = format!("groups: [{{name: a, limit: {limit}}}]");
        let errors = parse(&text, RuleFileOptions::default()).unwrap_err();
        assert!(
            errors[0]
                .to_string()
                .contains("limit must be a whole number")
        );
    }
}

#[test]
fn parse_unknown_keys_names_each_with_its_place() {
    check(
        "groups:\n- name: a\n  intervall: 1m\n  rules:\n  - record: x\n    exp: 1\nmore: 1\n",
        &[
            "3:3: field intervall not found in type rulefmt.RuleGroup",
            "6:5: field exp not found in type rulefmt.Rule",
            "7:1: field more not found in type rulefmt.RuleGroups",
        ],
    );
    let options = RuleFileOptions {
        ignores_unknown: true,
        ..RuleFileOptions::default()
    };
    let file = parse(
        "x: 1\ngroups: [{name: a, y: 1, rules: [{record: x, expr: 1, z: 2}]}]",
        options,
    );
    assert_eq!(file.unwrap().groups.len(), 1);
}

#[test]
fn parse_takes_the_tenant_of_a_group_where_there_are_tenants() {
    let options = RuleFileOptions {
        has_tenants: true,
        ..RuleFileOptions::default()
    };
    let text = "groups: [{name: a, tenant: x}, {name: b}]";
    let groups = parse(text, options).unwrap().groups;
    let tenants = groups.iter().map(|group| group.tenant.as_ref());
    let tenants: Vec<_> = tenants.map(|id| id.map(|id| id.as_str())).collect();
    assert_eq!(tenants, [Some("x"), None]);
    let error = |text, options| parse(text, options).unwrap_err()[0].to_string();
    let unknown = "1:20: field tenant not found in type rulefmt.RuleGroup";
    assert_eq!(error(text, RuleFileOptions::default()), unknown);
    let wrong = "groups: [{name: a, tenant: ..}]";
    let why = "1:28: tenant id is not allowed: \"..\"";
    assert_eq!(error(wrong, options), why);
}

#[test]
fn parse_keys_of_a_ruler_takes_them_where_a_ruler_has_them() {
    let text = "groups: [{name: a, source_tenants: [x], evaluation_delay: 1m,
        align_evaluation_time_on_interval: true}, {name: b, evaluation_delay: 1m,
        query_offset: 2m, source_tenants: []}]";
    let options = RuleFileOptions {
        is_of_ruler: true,
        ..RuleFileOptions::default()
    };
    let groups = parse(text, options).unwrap().groups;
    let of = |i: usize| {
        let group: &GroupDefinition = &groups[i];
        (group.query_offset, group.is_aligned, group.ignored.clone())
    };
    let minutes = |count: u64| Some(Duration::from_secs(60 * count));
    assert_eq!(of(0), (minutes(1), true, vec!["source_tenants"]));
    assert_eq!(of(1), (minutes(2), false, vec![]));
    assert_eq!(
        parse(text, RuleFileOptions::default()).unwrap_err().len(),
        5
    );
    let wrong = "groups: [{name: a, align_evaluation_time_on_interval: 7}]";
    assert_eq!(
        parse(wrong, options).unwrap_err()[0].to_string(),
        "1:55: align_evaluation_time_on_interval must be true or false, got \"7\""
    );
}

#[test]
fn parse_malformed_values_are_told_with_their_places() {
    check("groups: 1", &["1:9: groups must be a list"]);
    check(
        "groups: [{name: a, interval: 5, limit: x, rules: [7, {record: [], expr: 1}]}]",
        &[
            "1:30: not a valid duration string: \"5\"",
            "1:40: limit must be a whole number, got \"x\"",
            "1:51: a rule must be a mapping",
            "1:63: record must be a single value",
        ],
    );
    check("groups: [", &["2:1: did not find expected node content"]);
}

#[test]
fn parse_wrong_rules_are_told_as_prometheus_words_it() {
    check(
        "groups: [{name: a}, {name: a}, {rules: []}]",
        &[
            "1:21: groupname: \"a\" is repeated in the same file",
            "1:32: Groupname must not be empty",
        ],
    );
    check(
        "groups:\n- name: a\n  labels: {__name__: x}\n  rules:\n  - record: x\n    alert: y\n    expr: 1\n",
        &[
            "invalid label name: __name__",
            "5:13: 6:12: group \"a\", rule 1, \"y\": only one of 'record' and 'alert' must be set",
        ],
    );
    check(
        "groups:\n- name: a\n  rules:\n  - expr: sum(\n  - record: '{x}'\n    for: 1s\n    keep_firing_for: 1s\n    annotations: {a: b}\n",
        &[
            "0:0: 0:0: group \"a\", rule 1, \"\": one of 'record' or 'alert' must be set",
            "4:11: group \"a\", rule 1, \"\": could not parse expression: 1:5: parse error: unclosed left parenthesis",
            "0:0: group \"a\", rule 2, \"{x}\": field 'expr' must be set in rule",
            "5:13: group \"a\", rule 2, \"{x}\": invalid field 'annotations' in recording rule",
            "5:13: group \"a\", rule 2, \"{x}\": invalid field 'for' in recording rule",
            "5:13: group \"a\", rule 2, \"{x}\": invalid field 'keep_firing_for' in recording rule",
            "5:13: group \"a\", rule 2, \"{x}\": braces present in the recording rule name; should it be in expr?: {x}",
        ],
    );
}

#[test]
fn parse_templates_that_are_none_are_told() {
    check(
        "groups: [{name: a, rules: [{alert: A, expr: x, labels: {b: '{{ .X'}, annotations: {s: '{{ $x }}'}}]}]",
        &[
            "group \"a\", rule 1, \"A\": label \"b\": template: __alert_A:1: unclosed action",
            "group \"a\", rule 1, \"A\": annotation \"s\": template: __alert_A:1: undefined variable \"$x\"",
        ],
    );
}

#[test]
fn duplicates_of_names_and_labels_are_found_over_groups() {
    let text = "\
groups:
- name: a
  labels: {team: x}
  rules:
  - {record: r, expr: 1}
  - {record: r, expr: 2, labels: {team: y}}
- name: b
  rules:
  - {record: r, expr: 3, labels: {team: x}}
  - {alert: r, expr: 3, labels: {team: x}}
  - {record: s, expr: 3}
";
    let file = parse(text, RuleFileOptions::default()).unwrap();
    let found = find_duplicates(&file);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].metric, "r");
    assert_eq!(found[0].labels["team"], "x");
}

fn check_rule(text: &str, expected: Result<&str, &[&str]>) {
    let actual = parse_rule(text, RuleFileOptions::default());
    let errors = actual.as_ref().err().map(|errors| {
        let errors = errors.iter().map(ToString::to_string);
        errors.collect::<Vec<_>>()
    });
    match expected {
        Ok(name) => assert_eq!(actual.unwrap().name(), name, "{text}"),
        Err(expected) => assert_eq!(errors.unwrap(), expected, "{text}"),
    }
}

#[test]
fn single_rule_is_a_mapping_or_a_list_of_one() {
    check_rule("alert: A\nexpr: up == 0\nfor: 5m\n", Ok("A"));
    check_rule("- record: a:b\n  expr: sum(up)\n", Ok("a:b"));
    check_rule("", Err(&["the rule is empty"]));
    check_rule(
        "- {record: a, expr: 1}\n- {record: b, expr: 1}\n",
        Err(&["1:1: expected one rule, got 2"]),
    );
    check_rule("up", Err(&["1:1: a rule must be a mapping"]));
    check_rule(
        "alert: A\nexpr: sum(\n",
        Err(&["2:7: could not parse expression: 1:5: parse error: unclosed left parenthesis"]),
    );
    check_rule(
        "alert: A\nexpr: 1\nfro: 5m\n",
        Err(&["3:1: field fro not found in type rulefmt.Rule"]),
    );
}
