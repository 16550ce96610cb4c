//! The metadata of metrics: type, help text and unit.

/// The type of a metric family, as in OpenMetrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetricType {
    /// The type is unknown, or the source did not specify it.
    #[default]
    Unknown,
    /// A cumulative value that only increases, until it is reset.
    Counter,
    /// A value that may increase and decrease, such as a temperature.
    Gauge,
    /// Cumulative counts of observations in buckets, classic or native.
    Histogram,
    /// Current counts of observations in buckets, which may decrease.
    GaugeHistogram,
    /// Quantiles that the source has computed, with a count and a sum.
    Summary,
    /// Information in the labels of a series, whose value is always 1.
    Info,
    /// One series for each state of an entity, with the value 1 or 0.
    Stateset,
}

impl MetricType {
    /// All types. The index of a type is its number in files.
    pub const ALL: [MetricType; 8] = [
        MetricType::Unknown,
        MetricType::Counter,
        MetricType::Gauge,
        MetricType::Histogram,
        MetricType::GaugeHistogram,
        MetricType::Summary,
        MetricType::Info,
        MetricType::Stateset,
    ];

    /// Returns the type with this name, or `Unknown` if there is none.
    pub fn from_name(name: &str) -> Self {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.unwrap_or_default()
    }

    /// Returns the number of the type in files, which never changes.
    pub fn number(self) -> u8 {
        Self::ALL.iter().position(|kind| *kind == self).unwrap_or(0) as u8
    }

    /// Returns the type with this number in files, or `None` if there is none.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the name that the API and the text formats of Prometheus use.
    pub fn name(self) -> &'static str {
        match self {
            MetricType::Unknown => "unknown",
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::GaugeHistogram => "gaugehistogram",
            MetricType::Summary => "summary",
            MetricType::Info => "info",
            MetricType::Stateset => "stateset",
        }
    }
}

/// The metadata of one metric, as borrowed texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricMetadata<'a> {
    /// The name of the metric or of its family.
    pub name: &'a str,
    /// The type of the metric, if the source specified it.
    pub kind: MetricType,
    /// The help text for users, empty if there is none.
    pub help: &'a str,
    /// The unit of the values, empty if there is none.
    pub unit: &'a str,
}

#[derive(Clone, Copy, Debug)]
struct MetadataBatchRow {
    kind: MetricType,
    name_end: usize,
    help_end: usize,
    unit_end: usize,
}

/// The metadata in a request, in order. Reuse a batch with [`MetadataBatch::clear`] to keep its
/// memory.
#[derive(Clone, Debug, Default)]
pub struct MetadataBatch {
    text: String,
    rows: Vec<MetadataBatchRow>,
}

impl MetadataBatch {
    /// Removes all metadata and keeps the memory, so that the batch can be reused.
    pub fn clear(&mut self) {
        self.text.clear();
        self.rows.clear();
    }

    /// Adds the metadata of one metric. The texts are copied.
    pub fn push(&mut self, metadata: MetricMetadata<'_>) {
        let mut put = |text| {
            self.text.push_str(text);
            self.text.len()
        };
        let (name_end, help_end) = (put(metadata.name), put(metadata.help));
        self.rows.push(MetadataBatchRow {
            kind: metadata.kind,
            name_end,
            help_end,
            unit_end: put(metadata.unit),
        });
    }

    /// Returns the number of entries. A metric may have several.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the batch contains no metadata.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the entries in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = MetricMetadata<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let name = start;
            start = row.unit_end;
            MetricMetadata {
                name: &self.text[name..row.name_end],
                kind: row.kind,
                help: &self.text[row.name_end..row.help_end],
                unit: &self.text[row.help_end..row.unit_end],
            }
        })
    }

    /// Returns the memory of the batch in bytes, including unused capacity.
    pub fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.rows.capacity() * size_of::<MetadataBatchRow>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_pushed_comes_back_in_order() {
        let said = [
            MetricMetadata {
                name: "a_total",
                kind: MetricType::Counter,
                help: "Help.",
                unit: "",
            },
            MetricMetadata::default(),
            MetricMetadata {
                name: "b",
                kind: MetricType::Gauge,
                help: "",
                unit: "seconds",
            },
        ];
        let mut batch = MetadataBatch::default();
        for _ in 0..2 {
            batch.clear();
            said.iter().for_each(|metadata| batch.push(*metadata));
            assert_eq!(batch.iter().collect::<Vec<_>>(), said);
            assert_eq!((batch.len(), batch.is_empty()), (3, false));
        }
    }
}
