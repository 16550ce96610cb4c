//! Tests relabelling rules with tables of label sets.

use super::*;

/// Parses a rule from a line `action key=value ...`; lists are separated by commas, `~` represents
/// a space.
fn settings(text: &str) -> RelabelRuleSettings {
    let mut words = text.split(' ');
    let action = words.next().expect("a rule starts with its action");
    let mut settings = RelabelRuleSettings {
        action: RelabelAction::from_name(action).expect("a known action"),
        ..RelabelRuleSettings::default()
    };
    for word in words {
        let (key, value) = word.split_once('=').expect("key=value");
        let value = value.replace('~', " ");
        match key {
            "from" => {
                settings.source_labels = Some(value.split(',').map(str::to_owned).collect());
            }
            "sep" => settings.separator = Some(value),
            "regex" => settings.regex = Some(value),
            "mod" => settings.modulus = value.parse().expect("a number"),
            "to" => settings.target_label = value,
            "with" => settings.replacement = Some(value),
            _ => panic!("unknown key {key}"),
        }
    }
    settings
}

fn rules(text: &[&str], names: NameScheme) -> Vec<RelabelRule> {
    let compile = |t: &&str| settings(t).compile(names).unwrap();
    text.iter().map(compile).collect()
}

fn labels(text: &str) -> Labels {
    let pairs = text.split_whitespace().map(|pair| {
        let (name, value) = pair.split_once('=').expect("name=value");
        (name.to_owned(), value.to_owned())
    });
    Labels::from_pairs(pairs)
}

fn check_with(names: NameScheme, input: &str, texts: &[&str], want: Option<&str>) {
    let mut builder = LabelsBuilder::from_labels(labels(input).as_ref());
    let is_kept = apply_rules(&rules(texts, names), &mut builder);
    let got = is_kept.then(|| builder.build());
    assert_eq!(got, want.map(labels), "{input} by {texts:?}");
}

fn check(input: &str, texts: &[&str], want: Option<&str>) {
    check_with(NameScheme::Utf8, input, texts, want);
}

#[test]
fn replace_writes_what_the_groups_matched() {
    let input = "a=foo b=bar c=baz";
    for (rule, want) in [
        ("replace from=a to=d", "a=foo b=bar c=baz d=foo"),
        ("replace from=a,b to=d sep=-", "a=foo b=bar c=baz d=foo-bar"),
        (
            "replace from=a regex=f(.*) to=d with=ch${1}-ch${1}",
            "a=foo b=bar c=baz d=choo-choo",
        ),
        (
            "replace from=a,b regex=f(.*);(.*)r to=a with=b${1}${2}m",
            "a=boobam b=bar c=baz",
        ),
        (
            "replace from=a regex=(?P<x>f)(.*) to=d with=$x$2$$",
            "a=foo b=bar c=baz d=foo$",
        ),
        (
            "replace from=a regex=nothing to=d with=x",
            "a=foo b=bar c=baz",
        ),
        ("replace from=a regex=fo to=d with=x", "a=foo b=bar c=baz"),
        ("replace from=a to=b with=", "a=foo c=baz"),
        ("replace from=none to=b", "a=foo c=baz"),
        ("replace to=d with=fixed", "a=foo b=bar c=baz d=fixed"),
        (
            "replace from=a regex=(f).* to=${1}_x with=y",
            "a=foo b=bar c=baz f_x=y",
        ),
        (
            "replace from=a regex=(x)?.* to=$1 with=y",
            "a=foo b=bar c=baz",
        ),
        ("replace from=a to=ä.$1 with=y", "a=foo b=bar c=baz ä.foo=y"),
    ] {
        check(input, &[rule], Some(want));
    }
}

#[test]
fn replace_to_a_name_that_the_scheme_forbids_does_nothing() {
    let rule = ["replace from=a regex=(.*) to=${1} with=x"];
    check_with(NameScheme::Legacy, "a=b-c", &rule, Some("a=b-c"));
    check_with(NameScheme::Legacy, "a=b_c", &rule, Some("a=b_c b_c=x"));
    check_with(NameScheme::Utf8, "a=b-c", &rule, Some("a=b-c b-c=x"));
}

#[test]
fn keep_and_drop_judge_the_whole_value() {
    for (rule, is_kept) in [
        ("keep from=a regex=f.*", true),
        ("keep from=a regex=o", false),
        ("keep from=none regex=", true),
        ("drop from=a regex=f.*", false),
        ("drop from=a regex=f", true),
        ("drop from=a,b regex=foo;bar", false),
        ("keepequal from=a to=a", true),
        ("keepequal from=a to=b", false),
        ("dropequal from=a to=a", false),
        ("dropequal from=a to=b", true),
        ("keepequal from=none to=none", true),
    ] {
        let want = is_kept.then_some("a=foo b=bar");
        check("a=foo b=bar", &[rule], want);
    }
    let rules = ["drop from=a regex=foo", "replace to=c with=x"];
    check("a=foo", &rules, None);
}

#[test]
fn labels_are_mapped_dropped_and_kept_by_name() {
    let input = "a=foo b1=bar b2=baz __meta_x_y=1";
    for (rule, want) in [
        ("labeldrop regex=b.*", "a=foo __meta_x_y=1"),
        ("labelkeep regex=(b.*)", "b1=bar b2=baz"),
        ("labelmap regex=(b.*)", "a=foo b1=bar b2=baz __meta_x_y=1"),
        (
            "labelmap regex=b(.*) with=bar_${1}",
            "a=foo b1=bar b2=baz bar_1=bar bar_2=baz __meta_x_y=1",
        ),
        (
            "labelmap regex=__meta_(.+)",
            "a=foo b1=bar b2=baz __meta_x_y=1 x_y=1",
        ),
    ] {
        check(input, &[rule], Some(want));
    }
}

#[test]
fn hashmod_is_that_of_prometheus() {
    check(
        "a=foo b=bar",
        &["hashmod from=b to=d mod=1000"],
        Some("a=foo b=bar d=922"),
    );
    check(
        "a=foo b=bar",
        &["hashmod from=a,b to=d mod=18446744073709551615"],
        Some("a=foo b=bar d=15973639978189266750"),
    );
}

#[test]
fn letters_change_case_one_by_one() {
    for (input, small, capital) in [
        ("a=Foo", "a=Foo d=foo", "a=Foo d=FOO"),
        ("a=straße", "a=straße d=straße", "a=straße d=STRAßE"),
        ("a=ΟΔΟΣ", "a=ΟΔΟΣ d=οδοσ", "a=ΟΔΟΣ d=ΟΔΟΣ"),
        ("a=ᾳİ", "a=ᾳİ d=ᾳi", "a=ᾳİ d=ᾼİ"),
    ] {
        check(input, &["lowercase from=a to=d"], Some(small));
        check(input, &["uppercase from=a to=d"], Some(capital));
    }
}

#[test]
fn rules_apply_one_after_the_other_and_steps_show_it() {
    let texts = [
        "replace from=a to=b",
        "drop from=b regex=foo",
        "replace to=c with=x",
    ];
    let rules = rules(&texts, NameScheme::Utf8);
    let steps: Vec<_> = trace_rules(&rules, &labels("a=foo")).collect();
    let got: Vec<_> = steps
        .iter()
        .map(|s| (s.is_kept, s.output.to_string()))
        .collect();
    let want = [
        (true, r#"{a="foo", b="foo"}"#.to_owned()),
        (false, "{}".to_owned()),
        (false, "{}".to_owned()),
    ];
    assert_eq!(got, want);
}

#[test]
fn compile_of_an_unsound_rule_is_refused_in_prometheus_words() {
    use NameScheme::{Legacy, Utf8};
    for (names, rule, want) in [
        (
            Utf8,
            "hashmod from=a to=b",
            "relabel configuration for hashmod requires non-zero modulus",
        ),
        (
            Utf8,
            "replace from=a",
            "relabel configuration for replace action requires 'target_label' value",
        ),
        (
            Utf8,
            "keepequal from=a",
            "relabel configuration for keepequal action requires 'target_label' value",
        ),
        (
            Legacy,
            "replace from=a to=a-b",
            "\"a-b\" is invalid 'target_label' for replace action",
        ),
        (
            Legacy,
            "replace from=a to=-${1}",
            "\"-${1}\" is invalid 'target_label' for replace action",
        ),
        (
            Legacy,
            "lowercase from=a to=${3}",
            "\"${3}\" is invalid 'target_label' for lowercase action",
        ),
        (
            Legacy,
            "hashmod from=a to=1b mod=3",
            "\"1b\" is invalid 'target_label' for hashmod action",
        ),
        (
            Utf8,
            "uppercase from=a to=b with=x",
            "'replacement' can not be set for uppercase action",
        ),
        (
            Legacy,
            "labelmap regex=(.*) with=a-$1",
            "\"a-$1\" is invalid 'replacement' for labelmap action",
        ),
        (
            Utf8,
            "dropequal from=a to=b regex=(.*)",
            "dropequal action requires only 'source_labels' and `target_label`, and no other \
             fields",
        ),
        (
            Utf8,
            "labeldrop regex=a from=b",
            "labeldrop action requires only 'regex', and no other fields",
        ),
        (
            Utf8,
            "labelkeep regex=a sep=,",
            "labelkeep action requires only 'regex', and no other fields",
        ),
        (
            Utf8,
            "keep from=a regex=(",
            "error parsing regexp: missing closing ): `^(?s:()$`",
        ),
        (
            Utf8,
            "replace from=a regex=a** to=b",
            "error parsing regexp: invalid nested repetition operator: `**`",
        ),
    ] {
        let e = settings(rule).compile(names).unwrap_err();
        assert_eq!(e.message, want, "{rule}");
    }
}

#[test]
fn compile_of_legacy_templates_is_that_of_prometheus() {
    for (template, is_good) in [
        ("a", true),
        ("$1", true),
        ("${1}", true),
        ("a${1}_$name9", true),
        ("_", true),
        ("1a", false),
        ("$", false),
        ("a$", false),
        ("${}", false),
        ("${1", false),
        ("a-b", false),
        ("", false),
    ] {
        let rule = RelabelRuleSettings {
            action: RelabelAction::LabelMap,
            replacement: Some(template.to_owned()),
            ..RelabelRuleSettings::default()
        };
        let compiled = rule.compile(NameScheme::Legacy);
        assert_eq!(compiled.is_ok(), is_good, "{template}");
    }
}
