//! A group of rules that is ready to run, and the grid of its evaluation instants.
//!
//! Invariant: the instants of a group depend only on its file, name and interval, as upstream's do
//! (`rules/group.go`), so that a restart does not move them. Those of an aligned group depend only
//! on its interval.

use crate::dependencies::{RuleDependency, compute_dependencies};
use crate::file::{GroupDefinition, RuleFile};
use crate::instant::RuleInstant;
use crate::rule::Rule;
use firn_model::tenant::TenantId;
use firn_promql::Features;
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// Marker in the label encoding for a length of 255 or more, which follows in three bytes.
const LONG: u8 = 255;

/// A group of parsed rules. Created from a validated file, immutable, and shared by the machine
/// that evaluates it and the API that shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleGroup {
    /// Name of the group, unique in its file.
    pub name: String,
    /// Path of the rule file, which is part of the group's key and determines its grid.
    pub file: String,
    /// Tenant whose data the rules read and write.
    pub tenant: TenantId,
    /// Namespace of the group if its file is edited through the HTTP API.
    pub namespace: Option<String>,
    /// Time between two evaluation instants; never zero.
    pub interval: Duration,
    /// True if the instants are whole multiples of the interval.
    pub is_aligned: bool,
    /// Time by which queries look behind an instant; `None` selects the global default.
    pub query_offset: Option<Duration>,
    /// Maximum number of series or alerts of one rule; zero means no limit.
    pub limit: usize,
    /// Rules in the order of the file.
    pub rules: Vec<Rule>,
    /// Dependencies of each rule on earlier rules, in the order of the rules.
    pub dependencies: Vec<Vec<RuleDependency>>,
}

impl RuleGroup {
    /// Returns the groups of a validated file. Groups without an interval get `default_interval`.
    /// Fails if an expression cannot be parsed.
    pub fn from_file(
        path: &str,
        file: &RuleFile,
        default_interval: Duration,
        features: Features,
    ) -> Result<Vec<Self>, String> {
        let groups = file.groups.iter();
        groups
            .map(|settings| Self::new(path, settings, default_interval, features))
            .collect()
    }

    fn new(
        path: &str,
        settings: &GroupDefinition,
        default_interval: Duration,
        features: Features,
    ) -> Result<Self, String> {
        let rules = settings.rules.iter();
        let rules: Vec<Rule> = rules
            .map(|rule| Rule::new(rule, &settings.labels, features))
            .collect::<Result<_, _>>()
            .map_err(|e| format!("{path}: {e}"))?;
        Ok(Self {
            name: settings.name.clone(),
            file: path.to_owned(),
            tenant: settings.tenant.clone().unwrap_or_else(TenantId::anonymous),
            namespace: None,
            is_aligned: settings.is_aligned,
            interval: settings.interval.unwrap_or(default_interval),
            query_offset: settings.query_offset,
            limit: usize::try_from(settings.limit).unwrap_or(0),
            dependencies: compute_dependencies(&rules),
            rules,
        })
    }

    /// Returns the group without its alerting rules, for backfills. Dependencies are computed again
    /// for the remaining rules.
    pub fn recording_only(&self) -> Self {
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.alert_settings().is_none());
        let rules: Vec<Rule> = rules.cloned().collect();
        Self {
            dependencies: compute_dependencies(&rules),
            rules,
            ..self.clone()
        }
    }

    /// Returns the file name that API responses contain. For a group that is edited through HTTP
    /// this is the namespace, by which Grafana's editor matches edited and running groups.
    pub fn api_file_name(&self) -> &str {
        self.namespace.as_ref().unwrap_or(&self.file)
    }

    /// Returns the identifier of the group among all groups of a server: file and name, separated
    /// by a semicolon.
    pub fn key(&self) -> String {
        format!("{};{}", self.file, self.name)
    }

    /// Returns the newest instant of the grid that is not later than `now`.
    pub fn instant_at(&self, now: RuleInstant) -> RuleInstant {
        let interval = i64::try_from(self.interval.as_nanos()).unwrap_or(i64::MAX);
        let interval = interval.max(1);
        let offset = if self.is_aligned {
            0
        } else {
            (self.hash() % interval.unsigned_abs()) as i64
        };
        let since = now.nanos().saturating_sub(offset).rem_euclid(interval);
        RuleInstant::from_nanos(now.nanos().saturating_sub(since))
    }

    /// Returns the oldest instant of the grid that is not earlier than `time`.
    pub fn instant_from(&self, time: RuleInstant) -> RuleInstant {
        let before = self.instant_at(time);
        if before == time {
            before
        } else {
            before.after(self.interval)
        }
    }

    /// Returns upstream's hash of the label set `{file, name}`, from which the offset of the grid
    /// follows.
    fn hash(&self) -> u64 {
        let mut bytes = Vec::new();
        for text in ["file", &self.file, "name", &self.name] {
            match u8::try_from(text.len()) {
                Ok(length) if length < LONG => bytes.push(length),
                _ => {
                    bytes.push(LONG);
                    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
                }
            }
            bytes.extend_from_slice(text.as_bytes());
        }
        xxh64(&bytes, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(file: &str, name: &str, interval: Duration) -> RuleGroup {
        let text = format!("groups: [{{name: {name}}}]");
        let read = crate::file::parse(&text, crate::file::RuleFileOptions::default());
        let groups = RuleGroup::from_file(file, &read.unwrap(), interval, Features::default());
        groups.unwrap().remove(0)
    }

    #[test]
    fn instants_lie_on_a_grid_that_follows_from_file_and_name() {
        let minute = Duration::from_secs(60);
        let now = RuleInstant::from_seconds(1_700_000_000);
        let mut offsets = Vec::new();
        for (file, name) in [("a.yml", "x"), ("a.yml", "y"), (&"long/".repeat(60), "x")] {
            let group = group(file, name, minute);
            let instant = group.instant_at(now);
            assert!(instant <= now && now.since(instant) < minute);
            assert_eq!(group.instant_at(instant), instant, "on the grid");
            assert_eq!(
                group.instant_at(instant.after(minute)),
                instant.after(minute)
            );
            offsets.push(instant.nanos().rem_euclid(60_000_000_000));
        }
        offsets.dedup();
        assert_eq!(offsets.len(), 3, "groups are spread");
        let aligned = RuleGroup {
            is_aligned: true,
            ..group("a.yml", "x", minute)
        };
        let instant = aligned.instant_at(now);
        assert_eq!(instant.nanos().rem_euclid(60_000_000_000), 0);
        assert!(now.since(instant) < minute);
    }
}
