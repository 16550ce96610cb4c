//! Parser of the text format with the rules of upstream's tools, which are stricter than scrapes:
//! no duplicate labels, no second help or type, each line terminated. Errors are those of upstream.

use super::line::{LineCursor, quoted_byte};
use super::{Families, LabelMap, TextMetric, TextSample};
use firn_model::go_float::format_shortest;
use firn_model::metadata::MetricType;
use firn_model::names::NameScheme;
use firn_model::quote::quote;
use firn_model::sample::TimestampMs;
use std::collections::HashSet;

/// Parses a text with names allowed by `names`. The error is the text for the user.
pub(in crate::commands) fn read(text: &[u8], names: NameScheme) -> Result<Families, String> {
    let mut reader = FamilyReader {
        names,
        families: Families::new(),
        typed: HashSet::new(),
    };
    for (i, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let (line, is_whole) = match line.strip_suffix(b"\n") {
            Some(line) => (line, true),
            None => (line, false),
        };
        let read = reader.line(&mut LineCursor::new(line, is_whole));
        read.map_err(|e| format!("text format parsing error in line {}: {e}", i + 1))?;
    }
    let mut families = reader.families;
    families.retain(|_, family| !family.metrics.is_empty());
    Ok(families)
}

struct FamilyReader {
    names: NameScheme,
    families: Families,
    /// Families whose type is set or can no longer be set.
    typed: HashSet<String>,
}

/// Role of a sample of a histogram or a summary, which follows from the suffix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleRole {
    Part,
    Count,
    Sum,
}

/// A sample that is being parsed: its name, its family and its role there.
struct NamedSample {
    name: String,
    family: String,
    role: SampleRole,
}

/// Labels of a sample that are being parsed, with the bucket or quantile apart.
#[derive(Default)]
struct SampleLabelsDraft {
    labels: LabelMap,
    /// Numeric value of the label `le` or `quantile`, if there is one.
    part: Option<f64>,
}

impl FamilyReader {
    fn line(&mut self, line: &mut LineCursor<'_>) -> Result<(), String> {
        let first = match line.skip_blanks() {
            Err(_) if line.is_over() => return Ok(()),
            first => first?,
        };
        let mut found = SampleLabelsDraft::default();
        let named = match first {
            b'\n' => return Ok(()),
            b'#' => return self.comment(line),
            b'{' => self.labels(line, None, &mut found)?,
            _ => {
                let name = line.name(true)?;
                if name.is_empty() {
                    return Err("invalid metric name".into());
                }
                let named = self.sample_of(&name)?;
                match line.skip_blanks()? {
                    b'{' => self.labels(line, Some(named), &mut found)?,
                    _ => named,
                }
            }
        };
        self.sample(line, named, found)
    }

    fn comment(&mut self, line: &mut LineCursor<'_>) -> Result<(), String> {
        line.step();
        line.skip_blanks()?;
        let keyword = line.word()?;
        if line.here()? == b'\n' {
            return Ok(());
        }
        if !matches!(keyword, b"HELP" | b"TYPE") {
            return line.rest().map(|_| ());
        }
        line.skip_blanks()?;
        let name = line.name(true)?;
        match line.here()? {
            b'\n' => return Ok(()),
            b' ' | b'\t' => {}
            _ => return Err("invalid metric name in comment".into()),
        }
        let family = self.named(&name)?.family;
        if line.skip_blanks()? == b'\n' {
            return Ok(());
        }
        match keyword {
            b"HELP" => self.help(line, &family),
            _ => self.kind(line, family),
        }
    }

    fn help(&mut self, line: &mut LineCursor<'_>, name: &str) -> Result<(), String> {
        let family = self.families.entry(name.to_owned()).or_default();
        if family.help.is_some() {
            let name = quote(name.as_bytes());
            return Err(format!("second HELP line for metric name {name}"));
        }
        let help = line.unescaped_rest()?;
        family.help = Some(String::from_utf8_lossy(&help).into_owned());
        Ok(())
    }

    fn kind(&mut self, line: &mut LineCursor<'_>, name: String) -> Result<(), String> {
        if self.typed.contains(&name) {
            let name = quote(name.as_bytes());
            return Err(format!(
                "second TYPE line for metric name {name}, or TYPE reported after samples"
            ));
        }
        let said: Vec<u8> = line
            .rest()?
            .iter()
            .copied()
            .filter(|b| *b != b'\\')
            .collect();
        let kind = match said.to_ascii_uppercase().as_slice() {
            b"COUNTER" => MetricType::Counter,
            b"GAUGE" => MetricType::Gauge,
            b"SUMMARY" => MetricType::Summary,
            b"UNTYPED" => MetricType::Unknown,
            b"HISTOGRAM" => MetricType::Histogram,
            b"GAUGE_HISTOGRAM" | b"GAUGEHISTOGRAM" => MetricType::GaugeHistogram,
            _ => return Err(format!("unknown metric type {}", quote(&said))),
        };
        self.families.entry(name.clone()).or_default().kind = kind;
        self.typed.insert(name);
        Ok(())
    }

    /// Returns the family of a name: the one with that name, or the summary or histogram whose
    /// suffix the name has.
    fn named(&mut self, name: &[u8]) -> Result<NamedSample, String> {
        let known = std::str::from_utf8(name).ok();
        let Some(name) = known.filter(|name| self.names.allows_metric(name)) else {
            return Err(format!("invalid metric name {}", quote(name)));
        };
        let (family, role) = self.family_of(name);
        self.families.entry(family.to_owned()).or_default();
        Ok(NamedSample {
            name: name.to_owned(),
            family: family.to_owned(),
            role,
        })
    }

    fn family_of<'n>(&self, name: &'n str) -> (&'n str, SampleRole) {
        if self.families.contains_key(name) {
            return (name, SampleRole::Part);
        }
        for (suffix, role) in [
            ("_count", SampleRole::Count),
            ("_sum", SampleRole::Sum),
            ("_bucket", SampleRole::Part),
        ] {
            let stem = name.strip_suffix(suffix).filter(|stem| !stem.is_empty());
            let Some(stem) = stem else {
                continue;
            };
            let is_compound = match self.kind_of(stem) {
                MetricType::Histogram | MetricType::GaugeHistogram => true,
                MetricType::Summary => role != SampleRole::Part,
                _ => false,
            };
            if is_compound {
                return (stem, role);
            }
        }
        (name, SampleRole::Part)
    }

    fn kind_of(&self, family: &str) -> MetricType {
        let family = self.families.get(family);
        family.map_or(MetricType::Unknown, |family| family.kind)
    }

    /// Returns the family of a sample's name. Its type can no longer be set after this.
    fn sample_of(&mut self, name: &[u8]) -> Result<NamedSample, String> {
        let named = self.named(name)?;
        self.typed.insert(named.family.clone());
        Ok(named)
    }

    /// Parses the labels, starting at the brace. If no metric name precedes it, the name is among
    /// the labels.
    fn labels(
        &mut self,
        line: &mut LineCursor<'_>,
        mut named: Option<NamedSample>,
        found: &mut SampleLabelsDraft,
    ) -> Result<NamedSample, String> {
        let is_within = named.is_none();
        loop {
            line.step();
            if line.skip_blanks()? == b'}' {
                break;
            }
            let name = line.name(false)?;
            let metric = named.as_ref().map_or("", |named| &named.family);
            let metric = quote(metric.as_bytes());
            if name.is_empty() {
                return Err(format!("invalid label name for metric {metric}"));
            }
            let behind = line.skip_blanks()?;
            match behind {
                b'=' => self.label(line, &name, named.as_ref(), found)?,
                _ if !is_within => {
                    let behind = quoted_byte(behind);
                    return Err(format!("expected '=' after label name, found {behind}"));
                }
                _ if named.is_some() => {
                    return Err(format!("multiple metric names for metric {metric}"));
                }
                b',' | b'}' => named = Some(self.sample_of(&name)?),
                _ => {
                    let behind = quoted_byte(behind);
                    return Err(format!("unexpected end of metric name {behind}"));
                }
            }
            if line.here()? == b'}' {
                break;
            }
        }
        let named = named.ok_or("invalid metric name")?;
        line.step();
        line.skip_blanks()?;
        Ok(named)
    }

    /// Parses a label from its `=` up to the following `,` or `}`.
    fn label(
        &self,
        line: &mut LineCursor<'_>,
        name: &[u8],
        named: Option<&NamedSample>,
        found: &mut SampleLabelsDraft,
    ) -> Result<(), String> {
        let metric = named.map_or("", |named| &named.family);
        let quoted = quote(name);
        let known = std::str::from_utf8(name).ok();
        let Some(name) = known.filter(|name| self.names.allows_label(name)) else {
            return Err(format!("invalid label name {quoted}"));
        };
        if name == "__name__" {
            return Err(format!("label name {quoted} is reserved"));
        }
        let is_part = part_of(self.kind_of(metric)) == Some(name);
        if !is_part && found.labels.contains_key(name) {
            let metric = quote(metric.as_bytes());
            return Err(format!("duplicate label names for metric {metric}"));
        }
        line.step();
        let first = line.skip_blanks()?;
        if first != b'"' {
            let first = quoted_byte(first);
            return Err(format!(
                "expected '\"' at start of label value, found {first}"
            ));
        }
        line.step();
        let value = line.value()?;
        let quoted = quote(&value);
        let Ok(value) = String::from_utf8(value) else {
            return Err(format!("invalid label value {quoted}"));
        };
        if is_part {
            let wrong = || format!("expected float as value for '{name}' label, got {quoted}");
            found.part = Some(float(value.as_bytes()).ok_or_else(wrong)?);
        } else {
            found.labels.insert(name.to_owned(), value);
        }
        match line.skip_blanks()? {
            b',' | b'}' => Ok(()),
            _ => Err(format!("unexpected end of label value {quoted}")),
        }
    }

    /// Parses the value and the timestamp, and adds the sample.
    fn sample(
        &mut self,
        line: &mut LineCursor<'_>,
        named: NamedSample,
        found: SampleLabelsDraft,
    ) -> Result<(), String> {
        let text = line.word()?;
        let wrong = || format!("expected float as value, got {}", quote(text));
        let value = float(text).ok_or_else(wrong)?;
        let kind = self.kind_of(&named.family);
        let part = found.part.filter(|part| !part.is_nan());
        check_count(kind, &named, part.is_some(), value)?;
        let time = match line.here()? {
            b'\n' => None,
            _ => Some(time(line)?),
        };
        let sample = TextSample {
            part: part
                .filter(|_| named.role == SampleRole::Part)
                .and_then(|part| Some((part_of(kind)?, format_shortest(part)))),
            name: named.name,
            time,
            value,
        };
        let family = self.families.entry(named.family).or_default();
        let known = match part_of(kind) {
            Some(_) => family.metrics.iter_mut().find(|m| m.labels == found.labels),
            None => None,
        };
        match known {
            Some(metric) => metric.samples.push(sample),
            None => family.metrics.push(TextMetric {
                labels: found.labels,
                samples: vec![sample],
            }),
        }
        Ok(())
    }
}

/// Returns the label that identifies a part of a histogram or summary.
fn part_of(kind: MetricType) -> Option<&'static str> {
    match kind {
        MetricType::Histogram | MetricType::GaugeHistogram => Some("le"),
        MetricType::Summary => Some("quantile"),
        _ => None,
    }
}

/// Rejects a negative count or bucket population of a histogram, with upstream's error.
fn check_count(
    kind: MetricType,
    named: &NamedSample,
    has_part: bool,
    value: f64,
) -> Result<(), String> {
    if part_of(kind) != Some("le") || value >= 0.0 || value.is_nan() {
        return Ok(());
    }
    let what = match named.role {
        SampleRole::Count => "count",
        SampleRole::Part if has_part => "bucket population",
        _ => return Ok(()),
    };
    let name = quote(named.family.as_bytes());
    Err(format!("negative {what} for histogram {name}"))
}

/// Parses the timestamp up to the end of the line.
fn time(line: &mut LineCursor<'_>) -> Result<TimestampMs, String> {
    line.skip_blanks()?;
    let text = line.word()?;
    let time = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    let time = time.ok_or_else(|| format!("expected integer as timestamp, got {}", quote(text)))?;
    match line.rest()? {
        b"" => Ok(time),
        rest => Err(format!("spurious string after timestamp: {}", quote(rest))),
    }
}

/// Parses a number like upstream: decimal, infinite, or unsigned NaN.
fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let value: f64 = text.parse().ok()?;
    let is_said = text.contains(['i', 'I']);
    let is_signed_nan = value.is_nan() && text.starts_with(['+', '-']);
    (!is_signed_nan && (value.is_finite() || value.is_nan() || is_said)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a text and compares its samples, or the error.
    fn check(text: &[u8], want: &str) {
        let shown = match read(text, NameScheme::Utf8) {
            Err(e) => e
                .trim_start_matches("text format parsing error in ")
                .to_owned(),
            Ok(families) => {
                let mut shown = Vec::new();
                for (name, family) in families {
                    for metric in family.metrics {
                        let samples = metric.samples.into_iter();
                        let samples = samples.map(|s| (s.name, s.part, s.value, s.time));
                        let samples: Vec<_> = samples.collect();
                        shown.push(format!("{name}{:?}: {samples:?}", metric.labels));
                    }
                }
                shown.join("; ")
            }
        };
        assert_eq!(shown, want, "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn text_reads_names_labels_values_and_times() {
        check(b"", "");
        check(b" # any\n\n#\n# HELP a\n \t", "");
        check(b"a 1\n", r#"a{}: [("a", None, 1.0, None)]"#);
        check(
            b"\ta { b = \"c\\n\\\"\" , } -.5e1 \t-7\n",
            r#"a{"b": "c\n\""}: [("a", None, -5.0, Some(-7))]"#,
        );
        check(
            b"{\"a b\",\"c d\"=\"e\"} +Inf\n",
            r#"a b{"c d": "e"}: [("a b", None, inf, None)]"#,
        );
        check(
            b"# TYPE a Histogram\na_bucket{le=\"1\"} 1\na_sum 2\na_count 1\n",
            "a{}: [(\"a_bucket\", Some((\"le\", \"1\")), 1.0, None), (\"a_sum\", None, 2.0, None), \
             (\"a_count\", None, 1.0, None)]",
        );
    }

    #[test]
    fn text_that_cannot_be_read_is_told_with_its_line() {
        for (text, want) in [
            (&b"a 1"[..], "line 1: unexpected end of input stream"),
            (b"a 1\nb", "line 2: unexpected end of input stream"),
            (b"a\n", "line 1: expected float as value, got \"\""),
            (b"a +nan\n", "line 1: expected float as value, got \"+nan\""),
            (
                b"a 1e999\n",
                "line 1: expected float as value, got \"1e999\"",
            ),
            (
                b"a 1 x\n",
                "line 1: expected integer as timestamp, got \"x\"",
            ),
            (
                b"a 1 2 \n",
                "line 1: spurious string after timestamp: \" \"",
            ),
            (b"{b=\"c\"} 1\n", "line 1: invalid metric name"),
            (
                b"{\"a\",\"b\"} 1\n",
                "line 1: multiple metric names for metric \"a\"",
            ),
            (
                b"a{b=\"\xff\"} 1\n",
                "line 1: invalid label value \"\\xff\"",
            ),
            (
                b"a{b;} 1\n",
                "line 1: expected '=' after label name, found ';'",
            ),
        ] {
            check(text, want);
        }
    }
}
