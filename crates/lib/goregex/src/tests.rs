//! Tests of patterns against the results of Go, of limits for hostile patterns, and of groups and
//! templates.

mod fixed_limits;
pub(crate) mod random;

use super::*;
use crate::tests::random::SplitMixRng;
use crate::walker::LazyDfa;
use fixed_limits::FixedRegexLimits;

const GO: &str = include_str!("tests/go.txt");

fn value(word: &str) -> String {
    word.replace('∅', "").replace('␊', "\n").replace('␠', " ")
}

fn step(stepper: &RegexStepper, value: &[u8]) -> RegexStepperState {
    let step = |state, byte: &u8| stepper.step(state, *byte);
    value.iter().fold(stepper.start(), step)
}

fn unlimited() -> Arc<dyn RegexLimits> {
    Arc::new(UnlimitedRegex)
}

fn walker_of(tree: &RegexNode) -> LazyDfa {
    let limits = unlimited();
    let memory = RegexMemory::reserve(&limits, 0).unwrap();
    LazyDfa::new(RegexProgram::new(tree, false), memory, limits)
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
    let slow = compile::compile_without_captures(&tree).unwrap();
    let mut walker = walker_of(&tree);
    let stepper = RegexStepper::new(&tree, 1 << 20, &unlimited());
    assert_eq!(wanted.contains(&String::new()), tree.matches_empty());
    for v in values {
        let matches = wanted.contains(v);
        let bytes = v.as_bytes();
        assert_eq!(regex.is_match(bytes), matches, "{pattern:?} on {v:?}");
        assert_eq!(
            slow.is_match(bytes),
            matches,
            "automaton of {pattern:?} on {v:?}"
        );
        let walked = walker.is_match(bytes);
        assert_eq!(walked, matches, "walker of {pattern:?} on {v:?}");
        if let Some(stepper) = &stepper {
            let end = step(stepper, bytes);
            assert_eq!(
                stepper.is_accepting(end),
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

/// Returns a random text: many are plain, and some only resemble plain text.
fn random_text(rng: &SplitMixRng) -> String {
    let parts = [
        "a", "b", "ab", "|", "|", "\\.", "\\|", "-", "é", "\\-", "\\", "{", "}", "]", "_", "(",
        ")", "\\)", "?", "a{2}", "\\d", "\\_", "/", ".",
    ];
    let most = if rng.one_in(2) { 10 } else { parts.len() };
    let part = |_| parts[rng.next_below(most as u64) as usize];
    let text: String = (0..rng.next_below(9)).map(part).collect();
    match rng.next_below(4) {
        0 => format!("({text})"),
        1 => format!("(?:{text})"),
        _ => text,
    }
}

#[test]
fn regex_random_plain_texts_are_read_as_their_trees() {
    let mut plain = 0;
    for seed in 0..20_000 {
        let text = random_text(&SplitMixRng::new(seed));
        let Some(choices) = plain::parse_choices(&text) else {
            continue;
        };
        plain += 1;
        let tree = parse(&text).unwrap_or_else(|e| panic!("{text:?}: {e}, seed {seed}"));
        let slow = RegexStrategy::new(tree);
        assert_eq!(slow.literal_set(), Some(&choices), "{text:?}, seed {seed}");
    }
    assert!(plain > 5_000, "{plain}");
}

#[test]
fn regex_simple_patterns_need_no_automaton() {
    let shape = |pattern: &str| match &Regex::new(pattern.as_bytes()).unwrap().strategy {
        RegexStrategy::Set(values) => format!("set of {}", values.len()),
        RegexStrategy::Glob(_) => "glob".to_owned(),
        strategy @ RegexStrategy::Automaton(_) => {
            let prefix = String::from_utf8_lossy(strategy.prefix());
            format!("automaton behind {prefix:?}")
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

/// Returns patterns at the limits, and the error text of Go's parser, if any.
fn at_the_limits() -> Vec<(String, Option<&'static str>)> {
    let mega = |part: &str| part.repeat((1 << 20) / part.len());
    let nested = |open: &str, close: &str, times| open.repeat(times) + "a" + &close.repeat(times);
    let (large, deep, count) = (
        Some("expression too large"),
        Some("expression nests too deeply"),
        Some("invalid repeat count"),
    );
    vec![
        (mega("a|"), None),
        (mega("(?:a"), Some("missing closing )")),
        (mega("(a"), Some("missing closing )")),
        (mega(r"\pL"), large),
        (mega(r"[\pL\PN]"), large),
        (mega("[[:"), Some("missing closing ]")),
        (mega("(?i)é"), None),
        (mega("a?"), None),
        (nested("(", ")", 999), None),
        (nested("(", ")", 1000), deep),
        (nested("(", ")", 100_000), deep),
        ("a".to_owned() + &"(?i)*".repeat(999), None),
        ("a".to_owned() + &"(?i)*".repeat(1000), deep),
        (r"(\pL{100}){10}".to_owned(), None),
        (r"\pL{1000}1".to_owned(), None),
        (r"\pL{1001}".to_owned(), count),
        ("(a{100}){11}".to_owned(), count),
        ("((a{100}){10}){2}".to_owned(), count),
        ("a{2,1}".to_owned(), count),
        (mega(".{900}"), large),
        (".{1000}".repeat(3355), None),
        (".{1000}".repeat(3356), large),
        (".{1,1000}".repeat(1678), None),
        (".{1,1000}".repeat(1679), large),
        (r"\pL".repeat(20_000), None),
        (r"\pL".repeat(27_000), large),
        ("(?:a".repeat(5000) + &")".repeat(5000), large),
        ("(?:a|b".repeat(600) + &")".repeat(600), deep),
        ("(?:a.".repeat(499) + &")*".repeat(499), None),
        ("(?:a.".repeat(500) + &")*".repeat(500), deep),
        (
            "(".to_owned() + &"pod-abcdef|".repeat(100_000) + "x)-.*",
            None,
        ),
        ("a".repeat(4_000_000) + ".?", None),
        ("(a{1000}){0}b{1000}".to_owned(), None),
        (mega("a"), None),
        (mega("{1"), None),
        (mega("pod-0123456789abcdef|"), None),
    ]
}

#[test]
fn regex_at_the_limits_is_taken_or_refused_as_go_does() {
    for (pattern, refused) in at_the_limits() {
        let shown = format!(
            "{} of {} bytes",
            &pattern[..pattern.len().min(20)],
            pattern.len()
        );
        let found = Regex::new(pattern.as_bytes()).err();
        let Some(code) = refused else {
            assert_eq!(found, None, "{shown}");
            continue;
        };
        let e = found.expect(&shown);
        assert_eq!(e.kind, RegexErrorKind::Syntax, "{shown}");
        let start = format!("error parsing regexp: {code}: `");
        assert!(e.message.starts_with(&start), "{shown}: {e}");
        assert!(e.message.len() < 2 * QUOTED_BYTES_MAX, "{shown}");
    }
}

#[test]
fn regex_repeated_letters_take_one_instruction_each_as_in_go() {
    let limits = Arc::new(FixedRegexLimits::new(1 << 20));
    let regex = Regex::new(br"\pL{1000}1").unwrap();
    regex.bind(limits.clone());
    regex.prepare().unwrap();
    let letters = "é".repeat(1000);
    assert!(regex.is_match((letters.clone() + "1").as_bytes()));
    for other in [&letters, "1", "", &(letters.clone() + "é1")] {
        assert!(!regex.is_match(other.as_bytes()), "{} bytes", other.len());
    }
    regex.prepare().unwrap();
    assert!(limits.peak_bytes() < 512 << 10, "{}", limits.peak_bytes());
    drop(regex);
    assert_eq!(limits.used_bytes(), 0);
}

#[test]
fn regex_of_many_choices_with_more_around_them_is_taken() {
    let choices: Vec<String> = (0..100_000).map(|n| format!("pod-{n}")).collect();
    let behind = format!("({})-.*", choices.join("|"));
    let limits = Arc::new(FixedRegexLimits::new(32 << 20));
    let regex = Regex::new(behind.as_bytes()).unwrap();
    regex.bind(limits.clone());
    for n in (0..200_000).step_by(997) {
        let value = format!("pod-{n}-x");
        assert_eq!(regex.is_match(value.as_bytes()), n < 100_000, "{value}");
    }
    regex.prepare().unwrap();
    let listed = Regex::new(choices.join("|").as_bytes()).unwrap();
    assert_eq!(listed.literal_set().map(ValueSet::len), Some(100_000));
    let in_front = format!("a-({})", choices[..10_000].join("|"));
    let listed = Regex::new(in_front.as_bytes()).unwrap();
    assert_eq!(listed.literal_set().map(ValueSet::len), Some(10_000));
}

#[test]
fn regex_without_memory_for_its_automaton_is_not_ready() {
    let cases = [("[a-z]+b?x", 1 << 10), (r"(\pL{900}a*)b", 64 << 10)];
    for (pattern, bytes) in cases {
        let limits = Arc::new(FixedRegexLimits::new(bytes));
        let regex = Regex::new(pattern.as_bytes()).unwrap();
        regex.bind(limits.clone());
        let e = regex.prepare().unwrap_err();
        assert_eq!(e.kind, RegexErrorKind::Memory, "{pattern}");
        assert!(e.message.contains("bytes needed, limit"), "{e}");
        assert!(!regex.is_match(b"abx"), "{pattern}");
        assert_eq!(limits.used_bytes(), 0, "{pattern}");
    }
}

#[test]
fn regex_that_runs_out_of_memory_or_time_says_so_behind_the_values() {
    let pattern = b".*(a|b.{500}).{500}.{1000}(b|c).*(a|b.{1000})x".repeat(8);
    let value = "ab".repeat(4_000);
    let limits = Arc::new(FixedRegexLimits::new(640 << 10));
    let regex = Regex::new(&pattern).unwrap();
    regex.bind(limits.clone());
    regex.prepare().unwrap();
    assert!(!regex.is_match(value.as_bytes()));
    assert_eq!(regex.prepare().unwrap_err().kind, RegexErrorKind::Memory);
    let limits = Arc::new(FixedRegexLimits::new(usize::MAX));
    let regex = Regex::new(&pattern).unwrap();
    regex.bind(limits.clone());
    regex.prepare().unwrap();
    limits.time_out();
    assert!(!regex.is_match(value.as_bytes()));
    assert_eq!(regex.prepare().unwrap_err().kind, RegexErrorKind::Timeout);
}

/// Returns a random pattern with parts that automata over bytes and programs over characters build
/// differently.
fn random_pattern(rng: &SplitMixRng, depth: u32) -> String {
    let atoms = [
        "a", "b", "ab", "é", ".", "[a-c]", "[^a]", "\\d", "\\b", "\\B", "^", "$", "", "(?m:^)",
        "(?m:$)", "(?i:aé)", "\\pL", "\\n",
    ];
    let counts = [
        "*", "+", "?", "{2}", "{0,2}", "{1,}", "{0}", "*?", "+?", "??", "{1,2}?",
    ];
    let pick = |from: &[&str]| from[rng.next_below(from.len() as u64) as usize].to_owned();
    let inner = || random_pattern(rng, depth - 1);
    match rng.next_below(if depth == 0 { 1 } else { 6 }) {
        0 => pick(&atoms),
        1 => format!("({})", inner()),
        2 => format!("(?:{}){}", inner(), pick(&counts)),
        3 => format!("(?:{}|{})", inner(), inner()),
        _ => inner() + &inner(),
    }
}

fn random_value(rng: &SplitMixRng) -> String {
    let parts = ["a", "b", "ab", "é", "c", "1", "\n", "A", " ", "É"];
    let part = |_| parts[rng.next_below(parts.len() as u64) as usize];
    (0..rng.next_below(6)).map(part).collect()
}

#[test]
fn regex_random_patterns_match_alike_over_bytes_and_characters() {
    let mut matched = 0;
    for seed in 0..1_500 {
        let rng = SplitMixRng::new(seed);
        let pattern = random_pattern(&rng, 4);
        let Ok(tree) = parse(&pattern) else { continue };
        let automaton = compile::compile_without_captures(&tree).unwrap();
        let capturing = compile::compile_with_captures(&tree).unwrap();
        let (mut walker, groups) = (walker_of(&tree), tree.groups_count());
        let limits = unlimited();
        let memory = RegexMemory::reserve(&limits, 0).unwrap();
        let mut pike = PikeMatcher::new(RegexProgram::new(&tree, true), groups, memory, limits);
        assert!(RegexProgram::new(&tree, true).insts.len() as u64 <= program::len(&tree));
        for _ in 0..8 {
            let value = random_value(&rng);
            let what = format!("{pattern:?} on {value:?}, seed {seed}");
            let wanted = automaton.is_match(&value);
            matched += usize::from(wanted && !value.is_empty());
            assert_eq!(walker.is_match(value.as_bytes()), wanted, "{what}");
            let mut found = capturing.create_captures();
            capturing.search_captures(&Input::new(&value), &mut found);
            let group = |at| found.get_group(at).map(|span| (span.start, span.end));
            let wanted = found.is_match().then(|| (0..=groups).map(group).collect());
            assert_eq!(pike.captures(value.as_bytes()), wanted, "{what}");
        }
    }
    assert!(matched > 400, "{matched}");
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
