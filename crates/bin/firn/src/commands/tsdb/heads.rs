//! Metadata lines before a metric in OpenMetrics: type, unit and help, from blocks or from a text.

use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_wire::exposition::{ExpositionMetadata as Said, FamilyMetadataField};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Metadata of a metric family: type, help and unit, each possibly unknown.
#[derive(Clone, Debug, Default)]
struct FamilyDescription {
    kind: MetricType,
    help: String,
    unit: String,
}

/// Metadata of all families by name, and which of them were already written to the output.
#[derive(Debug, Default)]
pub struct FamilyDescriptions {
    families: BTreeMap<String, FamilyDescription>,
    /// Names of the families whose lines were written.
    written: BTreeSet<String>,
}

impl FamilyDescriptions {
    /// Creates the table from metadata that blocks contain.
    pub fn new(known: &MetadataBatch) -> Self {
        let mut heads = Self::default();
        for said in known.iter() {
            let family = FamilyDescription {
                kind: said.kind,
                help: said.help.to_owned(),
                unit: said.unit.to_owned(),
            };
            heads.families.insert(said.name.to_owned(), family);
        }
        heads
    }

    /// Adds the type, help or unit in a metadata line of a text.
    pub fn add_line(&mut self, said: &Said<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let family = self.families.entry(text(said.name)).or_default();
        match &said.field {
            FamilyMetadataField::Type(kind) => family.kind = *kind,
            FamilyMetadataField::Help(help) => family.help = text(help),
            FamilyMetadataField::Unit(unit) => family.unit = text(unit),
        }
    }

    /// Returns the metadata of all families as a batch, sorted by name.
    pub fn batch(&self) -> MetadataBatch {
        let mut batch = MetadataBatch::default();
        for (name, FamilyDescription { kind, help, unit }) in &self.families {
            batch.push(MetricMetadata {
                name,
                kind: *kind,
                help,
                unit,
            });
        }
        batch
    }

    /// Returns the metadata lines before the first series of the family of the series `metric`. The
    /// text is empty if they were written before or there is no metadata. `quoted` formats a name.
    pub fn lines(&mut self, metric: &str, quoted: impl Fn(&str) -> String) -> String {
        let Some((name, family)) = self.family_of(metric) else {
            return String::new();
        };
        let name = name.to_owned();
        let mut lines = String::new();
        if self.written.contains(&name) {
            return lines;
        }
        let shown = quoted(&name);
        let _ = writeln!(lines, "# TYPE {shown} {}", family.kind.name());
        // OpenMetrics requires that the name of a metric ends with its unit.
        let ending = format!("_{}", family.unit);
        if !family.unit.is_empty() && name.ends_with(&ending) {
            let _ = writeln!(lines, "# UNIT {shown} {}", family.unit);
        }
        if !family.help.is_empty() {
            let _ = writeln!(lines, "# HELP {shown} {}", escaped(&family.help));
        }
        self.written.insert(name);
        lines
    }

    /// Returns the family of a series, by its name in OpenMetrics.
    fn family_of<'a>(&'a self, metric: &'a str) -> Option<(&'a str, FamilyDescription)> {
        if let Some(family) = self.families.get(metric) {
            let mut family = family.clone();
            // The name of a family lacks the suffixes that these types add to their series.
            let ending = match family.kind {
                MetricType::Counter => "_total",
                MetricType::Info => "_info",
                _ => return Some((metric, family)),
            };
            if let Some(name) = metric.strip_suffix(ending) {
                return Some((name, family));
            }
            family.kind = MetricType::Unknown;
            return Some((metric, family));
        }
        for ending in ["_total", "_info", "_bucket", "_count", "_sum", "_created"] {
            let name = metric.strip_suffix(ending);
            let family = name.and_then(|name| self.families.get_key_value(name));
            if let Some((name, family)) = family.filter(|(_, family)| has(family.kind, ending)) {
                return Some((name, family.clone()));
            }
        }
        None
    }
}

/// Returns whether series of a type may have this suffix.
fn has(kind: MetricType, ending: &str) -> bool {
    match kind {
        MetricType::Counter => matches!(ending, "_total" | "_created"),
        MetricType::Info => ending == "_info",
        MetricType::Histogram | MetricType::GaugeHistogram => {
            matches!(ending, "_bucket" | "_count" | "_sum" | "_created")
        }
        MetricType::Summary => matches!(ending, "_count" | "_sum" | "_created"),
        _ => false,
    }
}

fn escaped(help: &str) -> String {
    let help = help.replace('\\', r"\\");
    help.replace('\n', r"\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_stand_once_in_front_of_each_family() {
        let mut known = MetadataBatch::default();
        for (name, kind, help, unit) in [
            (
                "requests_total",
                MetricType::Counter,
                "All \"of\"\nthem.",
                "",
            ),
            ("calls", MetricType::Counter, "Of a family.", ""),
            ("odd", MetricType::Counter, "No total.", ""),
            ("wait_seconds", MetricType::Histogram, "", "seconds"),
            ("up", MetricType::Gauge, "", "percent"),
        ] {
            known.push(MetricMetadata {
                name,
                kind,
                help,
                unit,
            });
        }
        let mut heads = FamilyDescriptions::new(&known);
        for (metric, wanted) in [
            (
                "requests_total",
                "# TYPE requests counter\n# HELP requests All \\\"of\\\"\\nthem.\n",
            ),
            ("requests_total", ""),
            (
                "calls_total",
                "# TYPE calls counter\n# HELP calls Of a family.\n",
            ),
            ("odd", "# TYPE odd unknown\n# HELP odd No total.\n"),
            (
                "wait_seconds_bucket",
                "# TYPE wait_seconds histogram\n# UNIT wait_seconds seconds\n",
            ),
            ("wait_seconds_sum", ""),
            ("wait_seconds_total", ""),
            ("up_count", ""),
            ("up", "# TYPE up gauge\n"),
            ("unheard_of", ""),
        ] {
            assert_eq!(heads.lines(metric, str::to_owned), wanted, "{metric}");
        }
    }
}
