//! `firn tsdb analyze DIR [BLOCK]`: which labels a block is made of, in promtool's form. With a
//! config it counts the samples that each retention rule keeps ([`super::kept`]).
//!
//! A folder that a server uses may be looked at: a block never changes, and one that was replaced
//! meanwhile is an error that a second run does not see.

use super::kept;
use super::progress::CommandProgressLine;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::METRIC_NAME;
use firn_model::rounded;
use firn_model::sample::TimeRange;
use firn_promql::parser::parse_selector;
use firn_storage::block::{Block, BlockCache};
use firn_storage::import::SampleColumns;
use firn_storage::listing;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of the block that are kept in memory.
const CACHE_BYTES: usize = 64 << 20;

/// Series whose labels are read at a time.
const BATCH_SERIES: usize = 4_096;

/// `firn tsdb analyze`.
pub fn command() -> Command {
    Command::new("analyze")
        .about("Analyze churn, label pair cardinality and size of a block")
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("N")
                .value_parser(value_parser!(usize))
                .default_value("20")
                .help("Maximum number of items in each list"),
        )
        .arg(
            Arg::new("extended")
                .long("extended")
                .action(ArgAction::SetTrue)
                .help("Also read the samples, and show their number and size"),
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with_all(["extended", "match", "block"])
                .help(
                    "Show the series and samples of all blocks that each rule of firn.retention in \
                     this configuration file keeps, instead of the labels",
                ),
        )
        .arg(
            Arg::new("match").long("match").value_name("SELECTOR").help(
                "Selector of the series to analyze, for example up{job=\"x\"} [default: all]",
            ),
        )
        .arg(
            Arg::new("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .default_value("data/")
                .help("Data folder; a server may be using it"),
        )
        .arg(
            Arg::new("block")
                .value_name("BLOCK")
                .help("Block to analyze, as printed by list [default: the last one]"),
        )
}

/// What `firn tsdb analyze` prints.
pub fn run(env: &Env, matches: &ArgMatches) -> Result<String, Error> {
    let dir = matches.get_one::<PathBuf>("dir").cloned();
    let dir = dir.unwrap_or_default();
    if let Some(config) = matches.get_one::<PathBuf>("config") {
        return kept::run(env, &dir, config);
    }
    let selector = matches.get_one::<String>("match");
    let block = open(env, &dir, matches.get_one::<String>("block"))?;
    let progress = CommandProgressLine::new(0, "series");
    progress.set_item(block.meta().id.to_string());
    let analysis = BlockAnalysis::from_block(&block, selector.map(String::as_str), &progress)?;
    let limit = matches.get_one::<usize>("limit").copied();
    let mut out = analysis.text(&block, selector, limit.unwrap_or(usize::MAX));
    if matches.get_flag("extended") {
        out += &sizes(&block, &analysis.series, &progress)?;
    }
    Ok(out)
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::Invalid, why)
}

/// Opens the block with this name, or the one with the newest samples.
fn open(env: &Env, dir: &Path, name: Option<&String>) -> Result<Block, Error> {
    let listed = listing::list(env, dir)?;
    let found = match name {
        Some(name) => listed.iter().find(|block| block.id == *name),
        None => {
            let sound = listed.iter().filter(|block| !block.is_bad);
            sound.max_by_key(|block| (block.range.max, block.range.min))
        }
    };
    let found = found.ok_or_else(|| match name {
        Some(name) => invalid(format!("block {name} is not in {}", dir.display())),
        None => invalid(format!("no blocks found in {}", dir.display())),
    })?;
    let cache = Arc::new(BlockCache::new(CACHE_BYTES));
    Ok(Block::open(env, &found.folder(dir), &cache)?)
}

/// Counts of one label, or of one pair of a label and a value.
#[derive(Clone, Copy, Debug, Default)]
struct LabelUsageCount {
    series: u64,
    /// Milliseconds of the block that its series do not reach over.
    uncovered: u64,
}

/// Label statistics of the selected series of a block.
struct BlockAnalysis {
    series: Vec<u32>,
    /// The times of the block.
    span_ms: u64,
    /// By `name=value`.
    pairs: HashMap<Vec<u8>, LabelUsageCount>,
    names: BTreeMap<String, LabelUsageCount>,
    /// Values by name.
    values: BTreeMap<String, BTreeSet<Vec<u8>>>,
    metrics: BTreeMap<Vec<u8>, u64>,
    entries: u64,
}

impl BlockAnalysis {
    fn from_block(
        block: &Block,
        selector: Option<&str>,
        progress: &CommandProgressLine,
    ) -> Result<Self, Error> {
        let matchers = match selector {
            Some(text) => parse_selector(text).map_err(|e| invalid(format!("--match: {e}")))?,
            None => Vec::new(),
        };
        let mut memory = Budget::new("analysis", usize::MAX).reserve(0)?;
        let series = block.lookup(&matchers, &CancelToken::new(), &mut memory)?;
        let (start, end) = times(block);
        let mut analysis = Self {
            series,
            span_ms: end.saturating_sub(start).unsigned_abs(),
            pairs: HashMap::new(),
            names: BTreeMap::new(),
            values: BTreeMap::new(),
            metrics: BTreeMap::new(),
            entries: 0,
        };
        progress.increase_total(analysis.series.len() as u64);
        let uncovered = analysis.count_uncovered(block, progress)?;
        let series = std::mem::take(&mut analysis.series);
        for (batch, uncovered) in series
            .chunks(BATCH_SERIES)
            .zip(uncovered.chunks(BATCH_SERIES))
        {
            block.read_labels(batch, &mut |i, labels| {
                for (name, value) in labels.iter() {
                    analysis.count(name, value, uncovered[i]);
                }
            })?;
        }
        analysis.series = series;
        Ok(analysis)
    }

    /// Returns the part of the block's time range that the series of each label do not cover.
    fn count_uncovered(
        &self,
        block: &Block,
        progress: &CommandProgressLine,
    ) -> Result<Vec<u64>, Error> {
        let mut reader = block.reader();
        let mut uncovered = Vec::with_capacity(self.series.len());
        for ordinal in &self.series {
            let mut covered: Option<TimeRange> = None;
            let mut next = reader.find_first_part(*ordinal, TimeRange::ALL)?;
            while let Some(column) = next {
                let range = column.range();
                let first = covered.map_or(range.min, |covered| covered.min);
                covered = Some(TimeRange::new(first, range.max));
                next = reader.find_next_part(&column, TimeRange::ALL)?;
            }
            let covered = covered.map_or(0, |range| range.max.saturating_sub(range.min));
            uncovered.push(self.span_ms.saturating_sub(covered.unsigned_abs()));
            progress.add(1);
        }
        Ok(uncovered)
    }

    fn count(&mut self, name: &str, value: &[u8], uncovered: u64) {
        let mut pair = name.as_bytes().to_vec();
        pair.push(b'=');
        pair.extend_from_slice(value);
        for count in [
            self.pairs.entry(pair).or_default(),
            self.names.entry(name.to_owned()).or_default(),
        ] {
            count.series += 1;
            count.uncovered = count.uncovered.saturating_add(uncovered);
        }
        let values = self.values.entry(name.to_owned()).or_default();
        if !values.contains(value) {
            values.insert(value.to_vec());
        }
        if name == METRIC_NAME {
            *self.metrics.entry(value.to_vec()).or_default() += 1;
        }
        self.entries += 1;
    }

    fn text(&self, block: &Block, selector: Option<&String>, limit: usize) -> String {
        let mut lines = vec![
            format!("Block ID: {}", block.meta().id),
            format!("Duration: {}", duration(self.span_ms)),
            format!("Total Series: {}", block.series_count()),
        ];
        lines.extend(selector.map(|selector| format!("Matcher: {selector}")));
        lines.push(format!("Label names: {}", self.names.len()));
        lines.extend(selector.map(|_| format!("Matched series: {}", self.series.len())));
        let (pairs, entries) = (self.pairs.len(), self.entries);
        lines.push(format!("Postings (unique label pairs): {pairs}"));
        lines.push(format!("Postings entries (total label pairs): {entries}"));
        let lists = self.lists().into_iter();
        lines.extend(lists.map(|(title, items)| list(title, items, limit)));
        lines.join("\n") + "\n"
    }

    /// The lists with their titles.
    fn lists(&self) -> [(&'static str, Vec<(u64, String)>); 6] {
        let blocks = |uncovered: u64| uncovered / self.span_ms.max(1);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let of_pairs = |number: &dyn Fn(&LabelUsageCount) -> u64| {
            let pairs = self.pairs.iter();
            let each = pairs.map(|(pair, count)| (number(count), text(pair)));
            each.collect()
        };
        let of_names = self.names.iter();
        let of_names = of_names.map(|(name, count)| (blocks(count.uncovered), name.clone()));
        let of_values = |number: &dyn Fn(&BTreeSet<Vec<u8>>) -> usize| {
            let values = self.values.iter();
            let each = values.map(|(name, values)| (number(values) as u64, name.clone()));
            each.collect()
        };
        let metrics = self.metrics.iter();
        [
            (
                "Label pairs most involved in churning",
                of_pairs(&|count| blocks(count.uncovered)),
            ),
            ("Label names most involved in churning", of_names.collect()),
            ("Most common label pairs", of_pairs(&|count| count.series)),
            (
                "Label names with highest cumulative label value length",
                of_values(&|values| values.iter().map(Vec::len).sum()),
            ),
            ("Highest cardinality labels", of_values(&BTreeSet::len)),
            (
                "Highest cardinality metric names",
                metrics.map(|(name, n)| (*n, text(name))).collect(),
            ),
        ]
    }
}

/// From its first millisecond to the one behind its last.
fn times(block: &Block) -> (i64, i64) {
    let meta = block.meta();
    let stated = meta.nominal.unwrap_or(meta.range);
    (stated.min, stated.max.saturating_add(1))
}

/// The largest of them, a line each; of equal ones in the order of their names.
fn list(title: &str, mut items: Vec<(u64, String)>, limit: usize) -> String {
    items.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let shown = items.iter().take(limit);
    let lines: String = shown.map(|(n, name)| format!("{n} {name}\n")).collect();
    format!("\n{title}:\n{}", lines.trim_end_matches('\n'))
}

/// A duration as Go prints it.
fn duration(ms: u64) -> String {
    let (hours, minutes) = (ms / 3_600_000, ms / 60_000 % 60);
    let seconds = format!("{}s", ms as f64 % 60_000.0 / 1e3);
    match (hours, minutes) {
        (0, 0) if ms > 0 && ms < 1_000 => format!("{ms}ms"),
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

/// Reports the number of samples per series, the sizes of histograms, and the size of the block.
fn sizes(block: &Block, series: &[u32], progress: &CommandProgressLine) -> Result<String, Error> {
    progress.increase_total(series.len() as u64);
    let mut reader = block.reader();
    let mut columns = SampleColumns::default();
    let (mut floats, mut histograms, mut buckets) = (Vec::new(), Vec::new(), Vec::new());
    let mut time_columns = BTreeSet::new();
    for ordinal in series {
        columns.clear();
        reader.read(*ordinal, TimeRange::ALL, &mut columns)?;
        if let Some(column) = reader.find_first_part(*ordinal, TimeRange::ALL)? {
            time_columns.insert(column.time_column());
        }
        let float_count = columns.times.len() - columns.histograms.len();
        floats.extend((float_count > 0).then_some(float_count as u64));
        if !columns.histograms.is_empty() {
            histograms.push(columns.histograms.len() as u64);
            let each = columns.histograms.iter();
            buckets.extend(each.map(|(_, histogram)| histogram.counts.bucket_count() as u64));
        }
        progress.add(1);
    }
    let mut out = "\nCompaction analysis:\n\n".to_owned();
    for (what, numbers) in [
        ("samples per float series", floats),
        ("samples per histogram series", histograms),
        ("buckets per histogram sample", buckets),
    ] {
        out += &distribution(what, numbers);
    }
    let meta = block.meta();
    let files = meta.files.iter();
    let index = files.filter(|file| file.name.starts_with("index"));
    let index: u64 = index.map(|file| file.bytes).sum();
    let data = meta.file_bytes() - index;
    let per = |bytes: u64, count: u64| bytes as f64 / count.max(1) as f64;
    let _ = writeln!(
        out,
        "samples: {}, {:.3} bytes per sample\nindex: {}, {:.1} bytes per series\n\
         distinct timestamp columns of the series: {}\n\
         metrics with type, help or unit: {}",
        rounded::format_bytes(data),
        per(data, meta.samples),
        rounded::format_bytes(index),
        per(index, u64::from(meta.series)),
        time_columns.len(),
        block.metadata_count()
    );
    Ok(out)
}

/// The least, the mean and the largest, and a line for each stretch of numbers: how many there are,
/// and a mark for each hundredth of all.
fn distribution(what: &str, mut numbers: Vec<u64>) -> String {
    numbers.sort_unstable();
    let (Some(least), Some(most)) = (numbers.first().copied(), numbers.last().copied()) else {
        return format!("{what}: N/A\n\n");
    };
    let total = numbers.len() as u64;
    let mean = numbers.iter().sum::<u64>() / total;
    let mut step = 10;
    while step < (most - least) / 10 && step <= 10_000 {
        step *= 10;
    }
    let mut stretches: BTreeMap<u64, u64> = BTreeMap::new();
    for number in numbers {
        *stretches.entry(number / step).or_default() += 1;
    }
    let mut out = format!("{what} (min/avg/max): {least}/{mean}/{most}\n");
    for stretch in least / step..=most / step {
        let count = stretches.get(&stretch).copied().unwrap_or(0);
        let marks = "#".repeat((count * 100 / total) as usize);
        let (from, to) = (stretch * step, (stretch + 1) * step - 1);
        let line = format!("[{from}, {to}]: {count} {marks}");
        out += line.trim_end();
        out.push('\n');
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_written_as_go_does() {
        let cases = [
            (0, "0s"),
            (7, "7ms"),
            (1_500, "1.5s"),
            (60_000, "1m0s"),
            (3_599_999, "59m59.999s"),
            (7_200_000, "2h0m0s"),
            (115_200_001, "32h0m0.001s"),
        ];
        for (ms, text) in cases {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn distribution_has_a_line_for_each_stretch() {
        let text = distribution("samples", vec![1, 5, 12, 31]);
        let wanted = format!(
            "samples (min/avg/max): 1/12/31\n[0, 9]: 2 {}\n[10, 19]: 1 {}\n[20, 29]: 0\n[30, 39]: \
             1 {}\n\n",
            "#".repeat(50),
            "#".repeat(25),
            "#".repeat(25)
        );
        assert_eq!(text, wanted);
        assert_eq!(distribution("buckets", Vec::new()), "buckets: N/A\n\n");
    }

    #[test]
    fn list_shows_the_largest_first_up_to_its_limit() {
        let items = [(1, "b"), (3, "c"), (1, "a")].map(|(n, name)| (n, name.to_owned()));
        assert_eq!(list("Title", items.to_vec(), 2), "\nTitle:\n3 c\n1 a");
    }
}
