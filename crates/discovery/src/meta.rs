//! The labels under `__meta_` that a discovery gives a target, and how values become parts of them.

use super::group::Group;
use std::collections::BTreeMap;

/// Labels of one target, under the prefix of its discovery.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    prefix: &'static str,
    labels: BTreeMap<String, String>,
}

impl Meta {
    /// No labels yet; `prefix` is what follows `__meta_` in all of them.
    pub(super) fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            labels: BTreeMap::new(),
        }
    }

    /// Sets the label `name` behind the prefix. An empty value takes the label away.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        let name = format!("__meta_{}_{name}", self.prefix);
        self.set_plain(name, value.into());
    }

    /// Sets labels behind the prefix, as [`Self::set`] does.
    pub(super) fn set_all<'v>(&mut self, pairs: impl IntoIterator<Item = (&'v str, &'v str)>) {
        for (name, value) in pairs {
            self.set(name, value);
        }
    }

    /// Sets the label `name` to a list with `separator` around it too; one without items sets none.
    pub(super) fn set_list(&mut self, name: &str, list: &[String], separator: &str) {
        if !list.is_empty() {
            self.set(name, surrounded(list, separator));
        }
    }

    /// Sets a label for each entry of `map`: `name` and the key.
    pub(super) fn set_each<'m>(
        &mut self,
        name: &str,
        map: impl IntoIterator<Item = (&'m String, &'m String)>,
    ) {
        for (key, value) in map {
            self.set(&format!("{name}{}", sanitize(key)), value);
        }
    }

    /// Sets the label that targets are known by later.
    pub(super) fn set_instance(&mut self, value: &str) {
        self.set_plain("instance".to_owned(), value.to_owned());
    }

    /// Sets a label that says how a target is scraped: `__scheme__`, `__metrics_path__`.
    pub(super) fn set_reserved(&mut self, name: &str, value: &str) {
        self.set_plain(name.to_owned(), value.to_owned());
    }

    fn set_plain(&mut self, name: String, value: String) {
        match value.is_empty() {
            true => self.labels.remove(&name),
            false => self.labels.insert(name, value),
        };
    }

    /// Adds the labels of `other` in place of those with the same names.
    pub(super) fn merge(&mut self, other: &Meta) {
        let entries = other.labels.iter();
        self.labels
            .extend(entries.map(|(name, value)| (name.clone(), value.clone())));
    }

    /// The target at `address` that has these labels.
    pub(super) fn at(self, address: impl Into<String>) -> Group {
        Group {
            targets: vec![address.into()],
            labels: self.labels,
        }
    }
}

/// A text as a part of a label's name: what is not a letter, a digit or `_` becomes `_`.
pub(super) fn sanitize(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars()
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}

/// A host and a port as an address; IPv6 stands in brackets.
pub(super) fn host_port(host: &str, port: impl std::fmt::Display) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// A list with the separator around it too, so that patterns need not mind places in it.
pub(super) fn surrounded(list: &[String], separator: &str) -> String {
    format!("{separator}{}{separator}", list.join(separator))
}
