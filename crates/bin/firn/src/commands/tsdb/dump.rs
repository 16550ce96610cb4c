//! The commands `firn tsdb dump` and `firn tsdb dump-openmetrics`: print samples as text, like
//! promtool.

use super::heads::FamilyDescriptions;
use super::progress::CommandProgressLine;
use super::reading::DataFolderReader;
use firn_model::columns::SeriesColumns;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::quote::quote;
use firn_model::sample::TimeRange;
use firn_promql::texts;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Format of the printed text, which depends on the subcommand and its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpFormat {
    /// One line per sample: labels, value, and timestamp in milliseconds.
    Plain,
    /// One line per series: its labels as a JSON object.
    SeriesJson,
    /// OpenMetrics, the input of `create-blocks-from openmetrics`. Native histograms cannot be
    /// printed.
    OpenMetrics,
}

/// Prints the samples of a folder in the order of labels and times. Returns descriptions of the
/// damage found.
pub fn dump(
    env: &Env,
    data: &Path,
    selectors: &[String],
    range: TimeRange,
    form: DumpFormat,
) -> Result<Vec<String>, Error> {
    let folder = DataFolderReader::open(env, data, selectors)?;
    let mut heads = match form {
        DumpFormat::Plain | DumpFormat::SeriesJson => FamilyDescriptions::default(),
        DumpFormat::OpenMetrics => FamilyDescriptions::new(&folder.metadata()?),
    };
    let progress = CommandProgressLine::new_hidden_on_output("series");
    progress.set_item(data.display().to_string());
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = folder.each_series(range, Some(&progress), &mut |labels, columns| {
        let text = match form {
            DumpFormat::Plain => plain(labels, columns),
            DumpFormat::SeriesJson => series_json(labels),
            DumpFormat::OpenMetrics => {
                let metric = String::from_utf8_lossy(labels.get(METRIC_NAME));
                let lines = heads.lines(&metric, |name| word(name.as_bytes()));
                lines + &open_metrics(labels, columns)
            }
        };
        out.write_all(text.as_bytes()).map_err(closed)
    });
    let end = match form {
        DumpFormat::Plain | DumpFormat::SeriesJson => "",
        DumpFormat::OpenMetrics => "# EOF\n",
    };
    let ended = out.write_all(end.as_bytes()).and_then(|()| out.flush());
    match printed.and_then(|()| ended.map_err(closed)) {
        // A reader that closed the pipe needs no more output.
        Err(e) if e.kind == ErrorKind::Canceled => Ok(Vec::new()),
        Err(e) => Err(e),
        Ok(()) => Ok(folder.damages()),
    }
}

fn closed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(ErrorKind::Canceled, "the reader closed the pipe"),
        _ => Error::unavailable(format!("write to standard output: {error}")),
    }
}

/// Formats the samples of a series for [`DumpFormat::Plain`], one line each.
fn plain(labels: &Labels, columns: SeriesColumns<'_>) -> String {
    let mut text = String::new();
    let mut histograms = columns.histograms.iter().peekable();
    for (i, (time, value)) in columns.times.iter().zip(columns.values).enumerate() {
        let value = match histograms.next_if(|(at, _)| *at as usize == i) {
            Some((_, histogram)) => texts::format_histogram(histogram),
            None => texts::format_float(*value),
        };
        let _ = writeln!(text, "{labels} {value} {time}");
    }
    text
}

fn series_json(labels: &Labels) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs = labels.as_ref().pairs();
    let pairs = pairs.map(|(name, value)| (text(name), Value::from(text(value))));
    format!("{}\n", Value::Object(pairs.collect()))
}

fn open_metrics(labels: &Labels, columns: SeriesColumns<'_>) -> String {
    let mut text = String::new();
    let series = open_metrics_series(labels);
    let mut histograms = columns.histograms.iter().peekable();
    for (i, (time, value)) in columns.times.iter().zip(columns.values).enumerate() {
        if histograms.next_if(|(at, _)| *at as usize == i).is_none() {
            let (value, seconds) = (texts::format_float(*value), *time as f64 / 1e3);
            let _ = writeln!(text, "{series} {value} {seconds:.3}");
        }
    }
    text
}

/// Formats a series for OpenMetrics. Names that are not plain words are quoted, and a quoted metric
/// name is written among the labels.
fn open_metrics_series(labels: &Labels) -> String {
    let metric = labels.get(METRIC_NAME);
    let is_in_front = is_plain(metric);
    let named = (!is_in_front && !metric.is_empty()).then(|| quote(metric));
    let pairs = labels.as_ref().pairs();
    let rest = pairs.filter(|(name, _)| *name != METRIC_NAME.as_bytes());
    let rest = rest.map(|(name, value)| format!("{}={}", word(name), quote(value)));
    let all: Vec<String> = named.into_iter().chain(rest).collect();
    let front = if is_in_front {
        String::from_utf8_lossy(metric).into_owned()
    } else {
        String::new()
    };
    format!("{front}{{{}}}", all.join(","))
}

/// Returns a name, quoted unless it is a plain word.
fn word(name: &[u8]) -> String {
    if is_plain(name) {
        String::from_utf8_lossy(name).into_owned()
    } else {
        quote(name)
    }
}

fn is_plain(name: &[u8]) -> bool {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    name.iter().all(is_word) && !name.first().is_none_or(u8::is_ascii_digit)
}
