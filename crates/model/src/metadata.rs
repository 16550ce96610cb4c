//! What a metric is, as its source says.

/// The type of a metric family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetricType {
    /// Not said, or said to be unknown.
    #[default]
    Unknown,
    /// A sum that only grows, until it starts over.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of observations in buckets, which only grow.
    Histogram,
    /// Counts of observations in buckets as they are now.
    GaugeHistogram,
    /// Quantiles computed by the source.
    Summary,
    /// Facts in labels; the value is 1.
    Info,
    /// One series for each state of a thing, 1 or 0.
    Stateset,
}

impl MetricType {
    /// All types, each at its number: what stands for it in files.
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

    /// The type with this name; unknown if there is none.
    pub fn of_name(name: &str) -> Self {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.unwrap_or_default()
    }

    /// The number of the type in files.
    pub fn number(self) -> u8 {
        Self::ALL.iter().position(|kind| *kind == self).unwrap_or(0) as u8
    }

    /// The type with this number in files.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The name that Prometheus's API and the text formats use.
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

/// What a source says of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The name of the metric, or of its family.
    pub name: &'a str,
    /// Its type.
    pub kind: MetricType,
    /// A sentence for people.
    pub help: &'a str,
    /// The unit of its values.
    pub unit: &'a str,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    kind: MetricType,
    name_end: usize,
    help_end: usize,
    unit_end: usize,
}

/// What a request says of metrics, in its order. Reuse one with [`MetadataBatch::clear`] to keep
/// its memory.
#[derive(Clone, Debug, Default)]
pub struct MetadataBatch {
    text: String,
    rows: Vec<Row>,
}

impl MetadataBatch {
    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.rows.clear();
    }

    /// Adds what is said of one metric.
    pub fn push(&mut self, metadata: Metadata<'_>) {
        let mut put = |text| {
            self.text.push_str(text);
            self.text.len()
        };
        let (name_end, help_end) = (put(metadata.name), put(metadata.help));
        self.rows.push(Row {
            kind: metadata.kind,
            name_end,
            help_end,
            unit_end: put(metadata.unit),
        });
    }

    /// Metrics in the batch, each as often as something was said of it.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What is said, in the order in which it came.
    pub fn iter(&self) -> impl Iterator<Item = Metadata<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let name = start;
            start = row.unit_end;
            Metadata {
                name: &self.text[name..row.name_end],
                kind: row.kind,
                help: &self.text[row.name_end..row.help_end],
                unit: &self.text[row.help_end..row.unit_end],
            }
        })
    }

    /// Bytes of memory that the batch holds.
    pub fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.rows.capacity() * size_of::<Row>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_pushed_comes_back_in_order() {
        let said = [
            Metadata {
                name: "a_total",
                kind: MetricType::Counter,
                help: "Help.",
                unit: "",
            },
            Metadata::default(),
            Metadata {
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
