//! Patterns against what Go answered, bounds on hostile ones, groups and templates.

use super::*;
use crate::env::sim::SimRng;

const GO: &str = include_str!("tests/go.txt");

fn value(word: &str) -> String {
    word.replace('∅', "").replace('␊', "\n").replace('␠', " ")
}

fn step(stepper: &Stepper, value: &[u8]) -> State {
    let step = |state, byte: &u8| stepper.step(state, *byte);
    value.iter().fold(stepper.start(), step)
}

fn check(pattern: &str, answer: &str, values: &[String]) {
    let regex = match (Regex::new(pattern.as_bytes()), answer.strip_prefix("! ")) {
        (Err(e), Some(message)) => return assert_eq!(e.message, message, "{pattern:?}"),
        (Err(e), None) => panic!("{pattern:?}: {e}"),
        (Ok(_), Some(message)) => panic!("{pattern:?} is accepted, Go says {message}"),
        (Ok(regex), None) => regex,
    };
    let wanted: Vec<String> = answer.split(' ').skip(1).map(value).collect();
    let set = regex.literal_set();
    let tree = parse(pattern).unwrap();
    let slow = compile::without_captures(&tree).unwrap();
    let stepper = Stepper::new(&tree, 1 << 20);
    for v in values {
        let matches = wanted.contains(v);
        let bytes = v.as_bytes();
        assert_eq!(regex.is_match(bytes), matches, "{pattern:?} on {v:?}");
        assert_eq!(
            slow.is_match(bytes),
            matches,
            "automaton of {pattern:?} on {v:?}"
        );
        if let Some(stepper) = &stepper {
            let end = step(stepper, bytes);
            assert_eq!(
                stepper.accepts(end),
                matches,
                "steps of {pattern:?} on {v:?}"
            );
            assert!(!matches || !stepper.is_dead(end), "{pattern:?} on {v:?}");
        }
        assert!(
            !matches || bytes.starts_with(regex.prefix()),
            "{pattern:?} on {v:?}"
        );
        let listed = set.is_none_or(|set| set.iter().any(|s| s == bytes) == matches);
        assert!(listed, "{pattern:?} lists {set:?}");
        assert!(
            matches || !regex.matches_everything(),
            "{pattern:?} on {v:?}"
        );
        let any_non_empty = regex.matches_any_non_empty();
        assert!(
            matches != v.is_empty() || !any_non_empty,
            "{pattern:?} on {v:?}"
        );
    }
}

#[test]
fn regex_answers_as_go() {
    let mut lines = GO.lines().filter(|l| !l.starts_with('#'));
    let values: Vec<String> = lines
        .next()
        .unwrap()
        .split(' ')
        .skip(1)
        .map(value)
        .collect();
    let mut count = 0;
    while let (Some(pattern), Some(answer)) = (lines.next(), lines.next()) {
        check(&pattern[1..], answer, &values);
        count += 1;
    }
    assert!(count > 300, "{count}");
}

/// Texts of which many are plain, and some only look so.
fn random_text(rng: &SimRng) -> String {
    let parts = [
        "a", "b", "ab", "|", "|", "\\.", "\\|", "-", "é", "\\-", "\\", "{", "}", "]", "_", "(",
        ")", "\\)", "?", "a{2}", "\\d", "\\_", "/", ".",
    ];
    let most = if rng.one_in(2) { 10 } else { parts.len() };
    let part = |_| parts[rng.below(most as u64) as usize];
    let text: String = (0..rng.below(9)).map(part).collect();
    match rng.below(4) {
        0 => format!("({text})"),
        1 => format!("(?:{text})"),
        _ => text,
    }
}

#[test]
fn regex_random_plain_texts_are_read_as_their_trees() {
    let mut plain = 0;
    for seed in 0..20_000 {
        let text = random_text(&SimRng::new(seed));
        let Some(choices) = plain::choices(&text) else {
            continue;
        };
        plain += 1;
        let tree = parse(&text).unwrap_or_else(|e| panic!("{text:?}: {e}, seed {seed}"));
        let slow = Strategy::new(tree).unwrap();
        assert_eq!(slow.literal_set(), Some(&choices), "{text:?}, seed {seed}");
    }
    assert!(plain > 5_000, "{plain}");
}

#[test]
fn regex_simple_patterns_need_no_automaton() {
    let shape = |pattern: &str| match &Regex::new(pattern.as_bytes()).unwrap().strategy {
        Strategy::Set(values) => format!("set of {}", values.len()),
        Strategy::Glob(_) => "glob".to_owned(),
        Strategy::Automaton { prefix, .. } => {
            format!("automaton behind {:?}", String::from_utf8_lossy(prefix))
        }
    };
    let cases = [
        ("api", "set of 1"),
        ("^api$", "set of 1"),
        ("^a$|^b$", "set of 2"),
        ("api|web|", "set of 3"),
        ("(api|web)-[0-9]", "set of 20"),
        ("(?i)get", "set of 8"),
        ("5..", "automaton behind \"5\""),
        ("4..|5..", "automaton behind \"\""),
        ("pod-[a-z]{3}", "automaton behind \"pod-\""),
        ("pod-a.?|pod-b.?", "automaton behind \"pod-\""),
        ("[^a].*", "automaton behind \"\""),
        (".*", "glob"),
        ("(.+)", "glob"),
        ("api.*", "glob"),
        (".*error.*", "glob"),
        ("a.*b.+c", "glob"),
    ];
    for (pattern, wanted) in cases {
        assert_eq!(shape(pattern), wanted, "{pattern}");
    }
}

#[test]
fn regex_bytes_that_are_not_utf8_match_any_text_as_in_go() {
    let cases = [
        (".*", true),
        (".+", true),
        ("a.*", true),
        ("a.*b|c", true),
        ("a", false),
    ];
    for (pattern, wanted) in cases {
        let regex = Regex::new(pattern.as_bytes()).unwrap();
        assert_eq!(regex.is_match(b"a\xff\xfeb"), wanted, "{pattern}");
    }
    let e = Regex::new(b"a\xff").unwrap_err();
    assert_eq!(
        e.message,
        "error parsing regexp: invalid UTF-8: `a\u{fffd}`"
    );
}

#[test]
fn regex_hostile_pattern_is_refused_or_bounded() {
    let mega = |part: &str| part.repeat((1 << 20) / part.len());
    let refused = [
        mega("a|"),
        mega("(?:a"),
        mega("(a"),
        mega(r"\pL"),
        mega(r"[\pL\PN]"),
        mega("[[:"),
        mega("(?i)é"),
        mega("a?"),
        "(".repeat(600) + &")".repeat(600),
        "a".to_owned() + &"(?i)*".repeat(600),
        r"(\pL{100}){10}".to_owned(),
        r"\pL{1000}".to_owned(),
        mega(".{900}"),
    ];
    for pattern in refused {
        let shown = &pattern[..pattern.len().min(20)];
        let e = Regex::new(pattern.as_bytes()).expect_err(shown);
        assert_eq!(e.kind, ErrorKind::Invalid, "{shown}");
        assert!(e.message.starts_with("error parsing regexp: "), "{shown}");
        assert!(e.message.len() < 2 * QUOTED_BYTES_MAX, "{shown}");
    }
    let nested = "(".repeat(490) + "a.?b" + &")".repeat(490);
    assert!(Regex::new(nested.as_bytes()).unwrap().is_match(b"ab"));
    for pattern in [mega("a"), mega("{1"), mega("pod-0123456789abcdef|")] {
        let shown = &pattern[..20];
        assert!(Regex::new(pattern.as_bytes()).is_ok(), "{shown}");
    }
}

#[test]
fn capture_regex_expands_as_go() {
    let cases = [
        ("(.*)-(.*)", "a-b", "$1:$2", "a:b"),
        ("(.*)-(.*)", "a-b", "${1}x$1x", "ax"),
        ("(?P<n>.*)-.*", "a-b", "$n ${n} $m", "a a "),
        ("(?P<n>a)|(?P<n>b)", "b", "$n", "b"),
        ("a", "a", "$$ $0 $ ${ ${0} ${} $9", "$ a $ ${ a ${} "),
        ("(a)(b)?", "a", "$1$2$01", "a"),
        ("(.*?)(.*)", "ab", "[$1][$2]", "[][ab]"),
        ("(é*)(.*)", "ééa", "$2", "a"),
    ];
    for (pattern, value, template, wanted) in cases {
        let regex = CaptureRegex::new(pattern.as_bytes()).unwrap();
        let mut text = Vec::new();
        let captures = regex.captures(value.as_bytes()).unwrap();
        captures.expand(template, &mut text);
        assert_eq!(captures.expanded_len(template), text.len(), "{template}");
        assert_eq!(
            String::from_utf8_lossy(&text),
            wanted,
            "{pattern} {template}"
        );
    }
    assert!(CaptureRegex::new(b"a").unwrap().captures(b"ab").is_none());
    let e = CaptureRegex::new(b"(").unwrap_err();
    assert_eq!(
        e.message,
        "error parsing regexp: missing closing ): `^(?s:()$`"
    );
}
