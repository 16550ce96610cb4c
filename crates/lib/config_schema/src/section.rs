//! A section of a config, read by the rows of its keys.
//!
//! Invariant: a reader can read only keys in the table of the section. A missing key has the
//! default of its row, so readers contain no defaults, and printed defaults are the effective ones.
//! Entries of discoveries are an exception: their readers contain the defaults. The tree must have
//! passed [`walk`](crate::schema::walk).

use crate::read;
use crate::schema::{ConfigKey, ConfigValueShape, KeyGroups};
use firn_model::units::{parse_duration, parse_size};
use firn_yaml::{YamlEntry, YamlError, YamlNode, YamlPosition, YamlValue};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Node of a section that is not set.
static UNSET: YamlNode = YamlNode {
    place: YamlPosition { line: 1, column: 1 },
    value: YamlValue::Scalar {
        text: String::new(),
        plain: true,
    },
};

/// A section of a config with the rows of its keys. If the section is missing or null, all of its
/// keys have their defaults.
#[derive(Clone, Copy, Debug)]
pub struct ConfigSection<'n> {
    node: &'n YamlNode,
    keys: KeyGroups,
    dir: &'n Path,
}

impl<'n> ConfigSection<'n> {
    /// Creates a section of a config in the folder `dir`. `None` is a missing section.
    pub fn new(node: Option<&'n YamlNode>, keys: KeyGroups, dir: &'n Path) -> Self {
        let node = node.unwrap_or(&UNSET);
        Self { node, keys, dir }
    }

    /// Returns whether the section is neither missing nor null.
    pub fn is_set(&self) -> bool {
        !self.node.is_null()
    }

    /// Returns the section, or `None` if it is missing or null.
    pub fn if_set(self) -> Option<Self> {
        Some(self).filter(Self::is_set)
    }

    /// Returns the node of the section.
    pub fn node(&self) -> &'n YamlNode {
        self.node
    }

    /// Returns the folder of the config, which relative paths start at.
    pub fn dir(&self) -> &'n Path {
        self.dir
    }

    /// Returns an error at the place of the section.
    pub fn error(&self, message: impl Into<String>) -> YamlError {
        self.node.error(message)
    }

    /// Returns the node of `key`, which may be null.
    pub fn get(&self, key: &str) -> Option<&'n YamlNode> {
        self.node.get(self.row(key).name)
    }

    /// Returns the section `key`.
    pub fn section(&self, key: &str) -> ConfigSection<'n> {
        match self.row(key).shape {
            ConfigValueShape::Section(keys) => Self::new(self.get(key), keys, self.dir),
            shape => panic!("{key} is not a section but {shape:?}"),
        }
    }

    /// Returns the sections of the list `key`.
    pub fn sections(&self, key: &str) -> impl Iterator<Item = ConfigSection<'n>> {
        let ConfigValueShape::List(ConfigValueShape::Section(keys)) = self.row(key).shape else {
            panic!("{key} is not a list of sections");
        };
        let dir = self.dir;
        let nodes = self.items(key).iter();
        nodes.map(move |node| ConfigSection { node, keys, dir })
    }

    /// Returns the sections of the mapping `key`, each with its name.
    pub fn named_sections(&self, key: &str) -> impl Iterator<Item = (&'n str, ConfigSection<'n>)> {
        let ConfigValueShape::Map(ConfigValueShape::Section(keys)) = self.row(key).shape else {
            panic!("{key} is not a mapping of sections");
        };
        let dir = self.dir;
        let entries = self.entries(key).iter();
        entries.map(move |entry| (&*entry.key, Self::new(Some(&entry.node), keys, dir)))
    }

    /// Returns the items of the list `key`.
    pub fn items(&self, key: &str) -> &'n [YamlNode] {
        self.get(key).map_or(&[], YamlNode::items)
    }

    /// Returns the entries of the mapping `key`.
    pub fn entries(&self, key: &str) -> &'n [YamlEntry] {
        read::entries(self.get(key))
    }

    /// Returns the texts of the list `key`, or `None` if it is missing or null.
    pub fn texts(&self, key: &str) -> Option<Vec<String>> {
        read::texts(self.node, self.row(key).name)
    }

    /// Returns the text of `key`, or the default if it is missing or null.
    pub fn text(&self, key: &str) -> &'n str {
        let row = self.row(key);
        read::text(self.node, row.name).unwrap_or(row.default)
    }

    /// Returns the text of `key`, or the default if it is missing. Null is empty, as in Go.
    pub fn text_or_empty(&self, key: &str) -> &'n str {
        self.text_if_present(key).unwrap_or(self.row(key).default)
    }

    /// Returns the text of `key`, or the default if it is missing, null or empty.
    pub fn text_or_default(&self, key: &str) -> &'n str {
        self.text_if_set(key).unwrap_or(self.row(key).default)
    }

    /// Returns the text of `key`, or `None` if it is missing. Null is empty, as in Go.
    pub fn text_if_present(&self, key: &str) -> Option<&'n str> {
        Some(self.get(key)?.text().unwrap_or_default())
    }

    /// Returns the text of `key`, or `None` if it is missing, null or empty.
    pub fn text_if_set(&self, key: &str) -> Option<&'n str> {
        let text = read::text(self.node, self.row(key).name);
        text.filter(|text| !text.is_empty())
    }

    /// Returns the path of `key`, relative to the folder of the config unless it is absolute.
    pub fn path(&self, key: &str) -> Option<PathBuf> {
        read::path(self.node, self.row(key).name, self.dir)
    }

    /// Returns the boolean of `key`, or the default if it is missing or null.
    pub fn flag(&self, key: &str) -> bool {
        let set = self.flag_if_set(key);
        set.unwrap_or(self.row(key).default == "true")
    }

    /// Returns the boolean of `key`, or the default if it is missing. Null is false, as in Go.
    pub fn flag_or_false(&self, key: &str) -> bool {
        let row = self.row(key);
        read::flag_or(self.node, row.name, row.default == "true")
    }

    /// Returns the boolean of `key`, or `None` if it is missing or null.
    pub fn flag_if_set(&self, key: &str) -> Option<bool> {
        read::flag(self.node, self.row(key).name)
    }

    /// Returns the duration of `key`, or the default if it is missing, null or zero.
    pub fn duration(&self, key: &str) -> Duration {
        let set = self.duration_if_set(key);
        set.unwrap_or_else(|| self.default_duration(key))
    }

    /// Returns the duration of `key`, or the default if it is missing. Null is zero, as in Go.
    pub fn duration_or_zero(&self, key: &str) -> Duration {
        read::duration_or(self.node, self.row(key).name, self.default_duration(key))
    }

    /// Returns the duration of `key`, or `None` if it is missing, null or zero.
    pub fn duration_if_set(&self, key: &str) -> Option<Duration> {
        read::duration(self.node, self.row(key).name)
    }

    /// Returns the duration of `key`, or the default if it is missing or null. Zero is a duration.
    pub fn exact_duration(&self, key: &str) -> Duration {
        parse_duration(self.text(key)).unwrap_or_default()
    }

    /// Returns the count of `key`, or the default if it is missing, null or not positive.
    pub fn count(&self, key: &str) -> u64 {
        let set = self.count_if_set(key);
        set.unwrap_or_else(|| self.row(key).default.parse().unwrap_or_default())
    }

    /// Returns the count of `key`, or `None` if it is missing, null or not positive.
    pub fn count_if_set(&self, key: &str) -> Option<u64> {
        read::count(self.node, self.row(key).name)
    }

    /// Returns the integer of `key`, or the default if it is missing. Null is zero, as in Go.
    pub fn integer_or_zero(&self, key: &str) -> i64 {
        let row = self.row(key);
        let default = row.default.parse().unwrap_or_default();
        read::integer_or(self.node, row.name, default)
    }

    /// Returns the number of `key`, or `None` if it is missing or null.
    pub fn number_if_set(&self, key: &str) -> Option<f64> {
        read::number(self.node, self.row(key).name)
    }

    /// Returns the size of `key` in bytes, or the default if it is missing, null or not positive.
    pub fn size(&self, key: &str) -> u64 {
        let set = self.size_if_set(key);
        set.unwrap_or_else(|| parse_size(self.row(key).default).unwrap_or_default())
    }

    /// Returns the size of `key` in bytes, or `None` if it is missing, null or not positive.
    pub fn size_if_set(&self, key: &str) -> Option<u64> {
        read::size(self.node, self.row(key).name)
    }

    fn default_duration(&self, key: &str) -> Duration {
        parse_duration(self.row(key).default).unwrap_or_default()
    }

    /// Returns the row of a key. Panics without one, because the reader is wrong then.
    fn row(&self, key: &str) -> &'static ConfigKey {
        let mut rows = self.keys.iter().copied().flatten();
        let row = rows.find(|row| row.name == key);
        row.unwrap_or_else(|| panic!("the table of the section has no key {key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::key;
    use ConfigValueShape::{
        Bool, Count, Duration as Time, Integer, List, Map, Section, Size, Text,
    };

    const INNER: KeyGroups = &[&[key("count", Count).or("9")]];

    const KEYS: KeyGroups = &[
        &[
            key("flag", Bool).or("true"),
            key("time", Time).or("5s"),
            key("count", Count).or("7"),
            key("integer", Integer).or("-3"),
        ],
        &[
            key("size", Size).or("4KiB"),
            key("text", Text).or("usual"),
            key("inner", Section(INNER)),
            key("list", List(&Section(INNER))),
            key("named", Map(&Section(INNER))),
        ],
    ];

    fn check(text: &str, expected: &str) {
        let root = firn_yaml::parse(text).unwrap();
        let section = ConfigSection::new(root.as_ref(), KEYS, Path::new("/etc"));
        let found = format!(
            "{} {} {:?} {:?} {:?} {} {} {} {:?} {:?} {:?}",
            section.flag("flag"),
            section.flag_or_false("flag"),
            section.duration("time"),
            section.duration_or_zero("time"),
            section.exact_duration("time"),
            section.count("count"),
            section.integer_or_zero("integer"),
            section.size("size"),
            section.text("text"),
            section.text_or_empty("text"),
            section.text_or_default("text"),
        );
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn value_that_is_missing_null_or_zero_is_the_default_of_its_row_or_zero() {
        let defaults = r#"true true 5s 5s 5s 7 -3 4096 "usual" "usual" "usual""#;
        check("", defaults);
        check("{}", defaults);
        check(
            "{flag: , time: , count: , integer: , size: , text: }",
            r#"true false 5s 0ns 5s 7 0 4096 "usual" "" "usual""#,
        );
        check(
            "{flag: false, time: 0s, count: 0, integer: 0, size: 0, text: ''}",
            r#"false false 5s 0ns 0ns 7 0 4096 "" "" "usual""#,
        );
        check(
            "{flag: true, time: 1m, count: 2, integer: -4, size: 1KiB, text: a}",
            r#"true true 60s 60s 60s 2 -4 1024 "a" "a" "a""#,
        );
    }

    #[test]
    fn section_in_a_section_is_read_by_its_own_rows() {
        let text = "{list: [{count: 1}, {}], named: {a: {count: 2}}}";
        let root = firn_yaml::parse(text).unwrap();
        let section = ConfigSection::new(root.as_ref(), KEYS, Path::new("/etc"));
        assert!(!section.section("inner").is_set());
        assert_eq!(section.section("inner").count("count"), 9);
        let listed = section.sections("list").map(|item| item.count("count"));
        assert_eq!(listed.collect::<Vec<_>>(), [1, 9]);
        let named = section.named_sections("named");
        let named = named.map(|(name, item)| (name, item.count("count")));
        assert_eq!(named.collect::<Vec<_>>(), [("a", 2)]);
    }

    #[test]
    #[should_panic(expected = "no key other")]
    fn key_that_is_not_in_the_table_is_refused() {
        ConfigSection::new(None, KEYS, Path::new("")).text("other");
    }
}
