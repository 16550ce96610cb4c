//! Compares shown output with current output, without the parts that differ between runs.

use regex::Regex;
use std::sync::LazyLock;

/// A line that represents any number of lines.
pub const LEFT_OUT: &str = "...";

/// Replacement of a part that differs.
const MASKED: &str = "#";

/// Times, ids, hashes, sizes, rates, durations and other numbers, in the order of matching. A
/// number is matched with its unit, because `999 MiB` may be `1.1 GiB` in the next run.
static DIFFERING: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let number = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?";
    let units = r"(?: ?(?:[KMGTPE]i?B|[kMGT]|B|ns|us|µs|ms|s|bytes)\b)?(?:/s\b)?";
    [
        r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z?".to_owned(),
        r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b".to_owned(),
        r"\b(?:[0-9]+[a-f]|[a-f]+[0-9])[0-9a-f]{5,62}\b".to_owned(),
        r"\b(?:[0-9]+(?:\.[0-9]+)?(?:y|w|d|h|ms|m|s))+\b".to_owned(),
        format!("{number}{units}"),
        // The sign of a number, after a character that no name contains.
        format!("(?:^|([\\s:,=\\[\\](>@\"]))[-+]{MASKED}"),
    ]
    .iter()
    .map(|pattern| Regex::new(pattern).unwrap())
    .collect()
});

/// Returns a line without the parts that differ.
pub fn masked(line: &str) -> String {
    let line = line.trim_end().to_owned();
    DIFFERING.iter().fold(line, |line, pattern| {
        pattern
            .replace_all(&line, format!("${{1}}{MASKED}"))
            .into_owned()
    })
}

/// Returns whether `shown` equals `current`, except for omitted lines and parts that differ.
pub fn is_same(shown: &[String], current: &[String]) -> bool {
    let Some((first, rest)) = shown.split_first() else {
        return current.is_empty();
    };
    if first.trim() == LEFT_OUT {
        return (0..=current.len()).any(|from| is_same(rest, &current[from..]));
    }
    match current.split_first() {
        Some((line, behind)) => masked(first) == masked(line) && is_same(rest, behind),
        None => false,
    }
}

/// Returns `current` with the same omissions as `shown`. A line between two omissions is kept as
/// shown if the current output does not contain it.
pub fn renewed(shown: &[String], current: &[String]) -> Vec<String> {
    let stretches: Vec<&[String]> = shown.split(|line| line.trim() == LEFT_OUT).collect();
    let [head, between @ .., tail] = &stretches[..] else {
        return current.to_vec();
    };
    let head_end = head.len().min(current.len());
    let tail_begin = (current.len() - tail.len().min(current.len())).max(head_end);
    let mut out = current[..head_end].to_vec();
    let mut rest = &current[head_end..tail_begin];
    for stretch in between {
        out.push(LEFT_OUT.to_owned());
        for line in *stretch {
            let is_it = |found: &String| masked(found) == masked(line);
            match rest.iter().position(is_it) {
                Some(at) => {
                    out.push(rest[at].clone());
                    rest = &rest[at + 1..];
                }
                None => out.push(line.clone()),
            }
        }
    }
    out.push(LEFT_OUT.to_owned());
    out.extend_from_slice(&current[tail_begin..]);
    out
}

#[test]
fn lines_that_differ_in_numbers_alone_are_the_same() {
    for (a, b) in [
        ("took_ms=0 series=20795", "took_ms=422 series=0"),
        ("999 MiB in 1.3 s", "1.1 GiB in 250 ms"),
        ("writes 618 k/s", "writes 1.34 M/s"),
        (
            "{} => 579.8622066846169 @[1795208898.843]",
            "{} => -1e+06 @[1.5]",
        ),
        ("up for 1h2m3s", "up for 15d"),
        ("at 2026-11-02T10:00:00Z", "at 2027-01-01T00:00:00.125Z"),
        ("[1795208898.843,\"12\"]", "[1,\"-3.5\"]"),
        ("revision: 4e9ec3a7", "revision: 121bd7c7ab"),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01K9XFNDEKTSV4RRFFQ69G5FZZ"),
    ] {
        assert_eq!(masked(a), masked(b));
    }
    for (a, b) in [
        ("1 block", "3 blocks"),
        ("shop-1", "shop_1"),
        ("{\"status\":\"error\"}", "{\"status\":\"success\"}"),
        ("level=INFO", "level=WARN"),
    ] {
        assert_ne!(masked(a), masked(b));
    }
}
