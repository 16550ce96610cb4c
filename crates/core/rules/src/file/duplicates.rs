//! Finds rules of a file that produce the same series or alerts, for the linter.

use super::{RuleFile, Texts};
use std::collections::BTreeMap;

/// A name and label set that more than one rule of a file has, so that their output may conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateRule {
    /// Name of the recorded series or of the alert.
    pub metric: String,
    /// Labels of the rules, including those of their groups.
    pub labels: Texts,
}

/// Returns the combinations of name and labels that more than one rule of the file has, sorted and
/// unique.
pub fn find_duplicates(file: &RuleFile) -> Vec<DuplicateRule> {
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
        .map(|((metric, labels), _)| DuplicateRule {
            metric: metric.to_owned(),
            labels,
        })
        .collect()
}
