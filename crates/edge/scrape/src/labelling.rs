//! Computes the labels of a new series: merges scraped labels and target labels, relabels, and
//! checks limits.

use super::settings::{ScrapeJobSettings, ScrapeLimits};
use firn_ingest::relabel;
use firn_ingest::targets::ScrapeTarget;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::names::NameScheme;
use firn_wire::WireLimits;
use firn_wire::exposition::LabelPairs;
use std::sync::Arc;

/// Prefix for the name of a scraped label that conflicts with a target label.
const EXPORTED: &str = "exported_";

/// Largest number of characters of a name or value in an error text.
const SHOWN_CHARS: usize = 50;

/// Computes labels for the new series of one target, with the settings of its job. Labels of known
/// series are in the cache.
#[derive(Debug)]
pub(super) struct ScrapeLabeller {
    job: Arc<ScrapeJobSettings>,
    target_labels: Labels,
    limits: ScrapeLimits,
}

impl ScrapeLabeller {
    /// Returns a labeller. Limits that the job does not set are those of any sender.
    pub(super) fn new(
        job: &Arc<ScrapeJobSettings>,
        target: &ScrapeTarget,
        wire: WireLimits,
    ) -> Self {
        let or = |own: u64, general: usize| if own > 0 { own } else { general as u64 };
        let limits = &job.limits;
        Self {
            limits: ScrapeLimits {
                labels: or(limits.labels, wire.label_count_max),
                label_name_bytes: or(limits.label_name_bytes, wire.label_name_bytes_max),
                label_value_bytes: or(limits.label_value_bytes, wire.label_value_bytes_max),
                ..*limits
            },
            job: job.clone(),
            target_labels: target.labels.clone(),
        }
    }

    /// Returns whether `other` computes the same labels for all series. Cached labels remain valid
    /// in this case.
    pub(super) fn computes_same_labels(&self, other: &Self) -> bool {
        let limits = |l: &ScrapeLimits| [l.labels, l.label_name_bytes, l.label_value_bytes];
        self.target_labels == other.target_labels
            && limits(&self.limits) == limits(&other.limits)
            && self.job.honor_labels == other.job.honor_labels
            && self.job.names == other.job.names
            && self.job.metric_relabel == other.job.metric_relabel
    }

    /// Returns the labels of a series that the target writes as `pairs`, which must be sorted;
    /// `None` if relabelling drops it. An error fails the whole scrape.
    pub(super) fn label_series(&self, pairs: &LabelPairs) -> Result<Option<Labels>, Error> {
        let mut labels = LabelsBuilder::default();
        let mut previous: Option<&[u8]> = None;
        for (name, value) in pairs.iter() {
            let text = String::from_utf8_lossy(name);
            if previous == Some(name) {
                return invalid_labels_error(format!(
                    "label name {text:?} is not unique: invalid sample"
                ));
            }
            previous = Some(name);
            if std::str::from_utf8(name).is_err() {
                return invalid_labels_error(format!(
                    "invalid metric name or label names: {text:?}"
                ));
            }
            labels.set(&text, value);
        }
        self.add_target_labels(pairs, &mut labels);
        if !relabel::apply_rules(&self.job.metric_relabel, &mut labels) {
            return Ok(None);
        }
        let labels = labels.build();
        // An empty label set after relabelling drops the series too.
        if labels.is_empty() {
            return Ok(None);
        }
        self.check_labels(&labels)?;
        Ok(Some(labels))
    }

    fn add_target_labels(&self, pairs: &LabelPairs, labels: &mut LabelsBuilder) {
        let mut exposed = Vec::new();
        for (name, value) in self.target_labels.iter() {
            // An empty label counts as exposed: a gateway exposes `instance=""` to get no such
            // label.
            let is_exposed = pairs.iter().any(|(known, _)| known == name.as_bytes());
            if is_exposed && self.job.honor_labels {
                continue;
            }
            let existing = labels.get(name);
            if !existing.is_empty() {
                exposed.push((name, existing.to_vec()));
            }
            labels.set(name, value);
        }
        // Shortest names first, so that none of them takes the new name of another.
        exposed.sort_by_key(|(name, _)| name.len());
        for (name, value) in exposed {
            let mut new_name = format!("{EXPORTED}{name}");
            while !labels.get(&new_name).is_empty() {
                new_name.insert_str(0, EXPORTED);
            }
            labels.set(&new_name, &value);
        }
    }

    fn check_labels(&self, labels: &Labels) -> Result<(), Error> {
        let metric = labels.get(METRIC_NAME);
        if metric.is_empty() {
            return invalid_labels_error("missing metric name (__name__ label)".into());
        }
        let metric_text = String::from_utf8_lossy(metric);
        let names = self.job.names;
        let is_metric_good =
            std::str::from_utf8(metric).is_ok() && names.allows_metric(&metric_text);
        let are_labels_good =
            names == NameScheme::Utf8 || labels.iter().all(|(name, _)| names.allows_label(name));
        if !is_metric_good || !are_labels_good {
            return invalid_labels_error(format!("invalid metric name or label names: {labels}"));
        }
        self.check_limits(labels, &truncate_text(&metric_text))
    }

    fn check_limits(&self, labels: &Labels, metric: &str) -> Result<(), Error> {
        let count = labels.iter().count() as u64;
        let limit = self.limits.labels;
        if count > limit {
            return limit_error(format!(
                "label_limit exceeded (metric: {metric}, number of labels: {count}, limit: {limit})"
            ));
        }
        for (name, value) in labels.iter() {
            let (length, limit) = (name.len() as u64, self.limits.label_name_bytes);
            if length > limit {
                return limit_error(format!(
                    "label_name_length_limit exceeded (metric: {metric}, label name: {}, length: \
                     {length}, limit: {limit})",
                    truncate_text(name)
                ));
            }
            let (length, limit) = (value.len() as u64, self.limits.label_value_bytes);
            if length > limit {
                return limit_error(format!(
                    "label_value_length_limit exceeded (metric: {metric}, label name: {}, value: \
                     {:?}, length: {length}, limit: {limit})",
                    truncate_text(name),
                    truncate_text(&String::from_utf8_lossy(value))
                ));
            }
        }
        Ok(())
    }
}

fn truncate_text(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

fn invalid_labels_error<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::Invalid, message))
}

fn limit_error<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::Limited, message))
}
