//! Finds rules of a file that produce the same series or alerts, for the linter.

use super::{RuleFile, Texts};
use std::collections::BTreeMap;

/// A name and label set that more than one rule of a file has, so that their output may conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Name of the recorded series or of the alert.
    pub metric: String,
    /// Labels of the rules, including those of their groups.
    pub labels: Texts,
}

/// Returns the combinations of name and labels that more than one rule of the file has, sorted and
/// unique.
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
