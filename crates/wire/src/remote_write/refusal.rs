//! Series that cannot stand, counted by reason.

/// Why a series, or a histogram of one, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// There is no metric name, or it is empty or not UTF-8.
    MetricName,
    /// A label's name is empty or not UTF-8.
    LabelName,
    /// A label's value is not UTF-8.
    LabelValue,
    /// Two labels have the same name.
    DuplicateLabel,
    /// There are more labels than allowed.
    TooManyLabels,
    /// A label's name is longer than allowed.
    LabelNameTooLong,
    /// A label's value is longer than allowed.
    LabelValueTooLong,
    /// A native histogram contradicts itself.
    Histogram,
}

/// What was refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// Series that lost all their samples, or some in the case of histograms.
    pub series_count: usize,
    /// Samples that were lost.
    pub sample_count: usize,
    /// What is wrong with the first one, in Prometheus's words where it has some.
    pub first: String,
}

/// Everything that was refused, one entry a reason, in the order in which they first occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(Vec<Refused>);

impl Refusals {
    /// Counts a series; `message` is called for the first one of its reason.
    pub(crate) fn add(
        &mut self,
        refusal: Refusal,
        sample_count: usize,
        message: impl FnOnce() -> String,
    ) {
        if let Some(entry) = self.0.iter_mut().find(|e| e.refusal == refusal) {
            entry.series_count += 1;
            entry.sample_count += sample_count;
            return;
        }
        self.0.push(Refused {
            refusal,
            series_count: 1,
            sample_count,
            first: message(),
        });
    }

    /// One entry a reason.
    pub fn iter(&self) -> impl Iterator<Item = &Refused> {
        self.0.iter()
    }

    /// Whether nothing was refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
