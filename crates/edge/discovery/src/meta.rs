//! Builder of a target's `__meta_` labels, and the conversion of values to label names and
//! addresses.

use super::group::TargetGroup;
use std::collections::BTreeMap;

/// Labels of one target, with the prefix of its discovery mechanism.
#[derive(Clone, Debug)]
pub(super) struct MetaLabels {
    prefix: &'static str,
    labels: BTreeMap<String, String>,
}

impl MetaLabels {
    /// Creates an empty set of labels whose names begin with `__meta_` and `prefix`.
    pub(super) fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            labels: BTreeMap::new(),
        }
    }

    /// Sets the label `name`, to which the prefix is added. An empty value removes the label.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        let name = format!("__meta_{}_{name}", self.prefix);
        self.set_full_name(name, value.into());
    }

    /// Sets several labels like [`Self::set`], in the order of `pairs`.
    pub(super) fn set_all<'v>(&mut self, pairs: impl IntoIterator<Item = (&'v str, &'v str)>) {
        for (name, value) in pairs {
            self.set(name, value);
        }
    }

    /// Sets the label `name` to a list that begins and ends with `separator`. An empty list sets no
    /// label.
    pub(super) fn set_list(&mut self, name: &str, list: &[String], separator: &str) {
        if !list.is_empty() {
            self.set(name, join_surrounded(list, separator));
        }
    }

    /// Sets a label for each entry of `map`, with the sanitized key appended to `name`.
    pub(super) fn set_each<'m>(
        &mut self,
        name: &str,
        map: impl IntoIterator<Item = (&'m String, &'m String)>,
    ) {
        for (key, value) in map {
            self.set(&format!("{name}{}", sanitize(key)), value);
        }
    }

    /// Sets the `instance` label, which identifies the target in its samples.
    pub(super) fn set_instance(&mut self, value: &str) {
        self.set_full_name("instance".to_owned(), value.to_owned());
    }

    /// Sets a label that controls how the target is scraped, such as `__scheme__` or
    /// `__metrics_path__`.
    pub(super) fn set_reserved(&mut self, name: &str, value: &str) {
        self.set_full_name(name.to_owned(), value.to_owned());
    }

    fn set_full_name(&mut self, name: String, value: String) {
        if value.is_empty() {
            self.labels.remove(&name)
        } else {
            self.labels.insert(name, value)
        };
    }

    /// Adds the labels of `other`, which replace labels of the same name.
    pub(super) fn merge(&mut self, other: &MetaLabels) {
        let entries = other.labels.iter();
        self.labels
            .extend(entries.map(|(name, value)| (name.clone(), value.clone())));
    }

    /// Builds the target at `address` with these labels, as a group of its own.
    pub(super) fn into_target(self, address: impl Into<String>) -> TargetGroup {
        TargetGroup {
            targets: vec![address.into()],
            labels: self.labels,
        }
    }
}

/// Converts a text to a part of a label name: characters except ASCII letters, digits and `_`
/// become `_`.
pub(super) fn sanitize(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars()
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}

/// Joins a host and a port to an address. IPv6 addresses are enclosed in brackets.
pub(super) fn join_host_port(host: &str, port: impl std::fmt::Display) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Joins a list, with the separator also at both ends, so that a pattern matches an item at any
/// position.
pub(super) fn join_surrounded(list: &[String], separator: &str) -> String {
    format!("{separator}{}{separator}", list.join(separator))
}
