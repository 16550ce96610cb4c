//! Tests of JSON texts with the results that Go returns for them.

use super::*;
use crate::group::{TargetGroup, read_json_groups};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Replaces escapes such as `\\xff` with the byte that they encode.
fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).unwrap());
        bytes.extend(rest.as_bytes());
    }
    bytes
}

fn escape(text: &str) -> String {
    let escape = |b: u8| match b {
        b' '..=b'~' => char::from(b).to_string(),
        b => format!("\\x{b:02x}"),
    };
    text.bytes().map(escape).collect()
}

/// Checks each row of a table: `read` decodes the text, `wanted` the expected result.
fn check<T: std::fmt::Debug + PartialEq>(
    table: &str,
    read: impl Fn(&[u8]) -> Result<T, String>,
    wanted: impl Fn(&str) -> T,
) {
    let is_case = |line: &&str| !line.starts_with('#');
    for line in table.lines().filter(is_case) {
        let (text, want) = line.rsplit_once('\t').unwrap();
        let got = read(&unescape(text));
        match want {
            "refused" => assert!(got.is_err(), "{line}: {got:?}"),
            want => assert_eq!(got, Ok(wanted(want)), "{line}"),
        }
    }
}

#[test]
fn groups_are_those_of_go() {
    let shown = |group: &TargetGroup| {
        let labels = group
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let labels: Vec<_> = labels.collect();
        format!("{}{{{}}};", group.targets.join(","), labels.join(","))
    };
    let read = |bytes: &[u8]| {
        let groups = read_json_groups(bytes)?;
        Ok(escape(&groups.iter().map(shown).collect::<String>()))
    };
    check(include_str!("groups.txt"), read, str::to_owned);
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "PascalCase")]
struct Fields {
    int: i64,
    small: i32,
    count: u64,
    float: f64,
    bool: bool,
    text: String,
    list: Vec<i64>,
    inner: Pair,
    map: BTreeMap<String, Pair>,
    any: Value,
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Id")]
    other_id: String,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "PascalCase")]
struct Pair {
    a: String,
    b: String,
}

#[test]
fn fields_are_those_of_go() {
    let wanted = |want: &str| serde_json::from_str::<Fields>(want).unwrap();
    check(include_str!("fields.txt"), from_slice::<Fields>, wanted);
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let read = |depth| from_slice::<serde::de::IgnoredAny>(nested(depth).as_bytes());
    assert!(read(500).is_ok());
    let want = "exceeded max depth of 500 at offset 500".to_owned();
    assert_eq!(read(501).unwrap_err(), want);
}
