//! Rules that make the same series or alerts.

use super::{RuleFile, Texts};
use std::collections::BTreeMap;

/// What several rules make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The name of the series or of the alert.
    pub metric: String,
    /// The labels of the rules, those of their groups included.
    pub labels: Texts,
}

/// The names with labels that more than one rule of the file has, sorted, each once.
pub fn duplicates(file: &RuleFile) -> Vec<Duplicate> {
    let mut counts: BTreeMap<(&str, Texts), usize> = BTreeMap::new();
    for group in &file.groups {
        for rule in &group.rules {
            let mut labels = group.labels.clone();
            labels.extend(rule.labels.clone());
            *counts.entry((rule.name(), labels)).or_default() += 1;
        }
    }
    let repeated = counts.into_iter().filter(|(_, count)| *count > 1);
    repeated
        .map(|((metric, labels), _)| Duplicate {
            metric: metric.to_owned(),
            labels,
        })
        .collect()
}
