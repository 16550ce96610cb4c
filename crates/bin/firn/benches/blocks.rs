//! Measures blocks: bytes per series and per sample, nanoseconds per sample to write and to read,
//! and microseconds per lookup.
//!
//! ```text
//! cargo bench -p firn-firn --bench blocks -- [pods] [samples]     100 pods of 376 series, 480 samples
//! ```
//!
//! The fleet is that of the benchmark (`firn_mirror::fleet`). Beside the block stand pages as the
//! store seals them: 512 neighbouring series over 128 samples. Times are CPU time of this thread,
//! the best of several; it prints figures and judges nothing.

use firn_mirror::fleet::{Fleet, FleetOptions, SERIES_PER_POD};
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::{Env, real};
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_storage::block::{
    Block, BlockCache, BlockId, BlockMeta, BlockSpec, BlockWriter, compare_block_order,
};
use firn_storage::ids::SeriesSlot;
use firn_storage::page::{
    HistogramFamilyHash, LogSpan, PageBuilder, PageDecodeScratch, PageReader, SampleColumns,
};
use std::convert::Infallible;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const START_MS: i64 = 1_763_000_000_000;
const INTERVAL_MS: i64 = 15_000;

/// Series and samples of a page as the store seals them.
const PAGE_SERIES: usize = 512;
const PAGE_SAMPLES: usize = 128;

/// Reading is timed so often, and the best counts.
const ROUNDS: usize = 5;

/// Bytes that blocks may keep in memory.
const CACHE_BYTES: usize = 1 << 30;

/// The samples of the fleet: series in order of creation, timestamps by pod.
struct Samples {
    labels: Vec<Labels>,
    values: Vec<Vec<f64>>,
    times: Vec<Vec<i64>>,
}

impl Samples {
    fn of(pods: usize, samples: usize) -> Self {
        let mut fleet = Fleet::new(FleetOptions {
            series: pods * SERIES_PER_POD,
            seed: 1,
            start_ms: START_MS,
            interval_ms: INTERVAL_MS,
            churn: None,
        });
        let series = fleet.series_count();
        let mut all = Self {
            labels: vec![Labels::empty(); series],
            values: vec![Vec::with_capacity(samples); series],
            times: vec![Vec::with_capacity(samples); pods],
        };
        for round in 0..samples {
            let scraped: Result<(), Infallible> = fleet.scrape_round(&mut |one| {
                let series = one.series as usize;
                if round == 0 {
                    all.labels[series] = one.labels.to_owned();
                }
                all.values[series].push(one.value);
                if series.is_multiple_of(SERIES_PER_POD) {
                    all.times[series / SERIES_PER_POD].push(one.time_ms);
                }
                Ok(())
            });
            let Ok(()) = scraped;
        }
        all
    }

    fn count(&self) -> usize {
        self.values.iter().map(Vec::len).sum()
    }

    /// The samples of a series.
    fn fill(&self, series: usize, part: std::ops::Range<usize>, columns: &mut SampleColumns) {
        columns.clear();
        let times = &self.times[series / SERIES_PER_POD];
        columns.times.extend_from_slice(&times[part.clone()]);
        columns.values.extend_from_slice(&self.values[series][part]);
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `work` several times. Returns the shortest CPU time and the last result.
fn best<T>(rounds: usize, mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut least = (Duration::MAX, None);
    for _ in 0..rounds {
        let before = cpu_time();
        let made = std::hint::black_box(work());
        least = (least.0.min(cpu_time() - before), Some(made));
    }
    (least.0, least.1.expect("there is a round"))
}

fn nanos(time: Duration, samples: usize) -> f64 {
    time.as_nanos() as f64 / samples as f64
}

fn write(env: &Env, dir: &Path, samples: &Samples) -> BlockMeta {
    let id = BlockId::new(START_MS, 1);
    let source = BlockSpec {
        id,
        is_late: false,
        level: 1,
        sources: vec![id],
        range: None,
    };
    let mut order: Vec<usize> = (0..samples.labels.len()).collect();
    let labels = |series: usize| samples.labels[series].as_ref();
    order.sort_by(|a, b| compare_block_order(labels(*a), labels(*b)));
    let mut writer = BlockWriter::create(env, dir, source).expect("the folder can be made");
    let mut columns = SampleColumns::default();
    for series in order {
        samples.fill(series, 0..samples.values[series].len(), &mut columns);
        writer
            .push(labels(series), &columns)
            .expect("the disk has room");
    }
    writer.finish().expect("the disk has room")
}

/// Pages as the store seals them.
fn seal(samples: &Samples) -> Vec<Vec<u8>> {
    let mut pages = Vec::new();
    let mut columns = SampleColumns::default();
    let all: Vec<usize> = (0..samples.labels.len()).collect();
    let length = samples.times[0].len();
    for start in (0..length).step_by(PAGE_SAMPLES) {
        for group in all.chunks(PAGE_SERIES) {
            let mut builder = PageBuilder::new(LogSpan::default());
            for series in group {
                let end = length.min(start + PAGE_SAMPLES);
                samples.fill(*series, start..end, &mut columns);
                let family = family(&samples.labels[*series]);
                let pushed = builder.push(SeriesSlot(*series as u64), family, &columns);
                pushed.expect("no series is too long");
            }
            pages.extend(builder.finish());
        }
    }
    pages
}

fn family(labels: &Labels) -> Option<HistogramFamilyHash> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let others = labels.iter().filter(|(name, _)| *name != "le");
    others.for_each(|pair| pair.hash(&mut hasher));
    (!labels.get("le").is_empty()).then(|| HistogramFamilyHash(hasher.finish()))
}

fn read_pages(pages: &[PageReader]) -> usize {
    let (mut scratch, mut columns) = (PageDecodeScratch::default(), SampleColumns::default());
    let mut samples = 0;
    for page in pages {
        for index in 0..page.column_count() {
            let column = page.column(index).expect("the page is sound");
            columns.clear();
            let decoded = page.decode(&column, TimeRange::ALL, &mut scratch, &mut columns);
            decoded.expect("the page is sound");
            samples += std::hint::black_box(&columns.values).len();
        }
    }
    samples
}

fn read_block(block: &Block) -> usize {
    let (mut reader, mut columns) = (block.reader(), SampleColumns::default());
    let mut samples = 0;
    for ordinal in 0..block.series_count() {
        columns.clear();
        let read = reader.read(ordinal, TimeRange::ALL, &mut columns);
        read.expect("the block is sound");
        samples += std::hint::black_box(&columns.values).len();
    }
    samples
}

/// As wide queries read: values straight into one column, times shared.
fn read_plain(block: &Block) -> usize {
    let (mut reader, mut values) = (block.reader(), Vec::new());
    let mut samples = 0;
    for ordinal in 0..block.series_count() {
        values.clear();
        let mut next = reader
            .find_first_part(ordinal, TimeRange::ALL)
            .expect("the block is sound");
        while let Some(column) = next {
            let times = reader.times(&column).expect("the block is sound");
            let wanted = TimeRange::ALL.indexes(&times);
            reader
                .read_plain(&column, wanted, &mut values)
                .expect("the block is sound");
            next = reader
                .find_next_part(&column, TimeRange::ALL)
                .expect("the block is sound");
        }
        samples += std::hint::black_box(&values).len();
    }
    samples
}

fn report_sizes(out: &mut dyn Write, samples: &Samples, meta: &BlockMeta) -> std::io::Result<()> {
    let count = samples.count() as f64;
    let of = |index: bool| -> u64 {
        let files = meta.files.iter();
        let files = files.filter(|f| f.name.starts_with("index") == index);
        files.map(|f| f.bytes).sum()
    };
    let (index, data) = (of(true) as f64, of(false) as f64);
    writeln!(
        out,
        "block data          {:>8.3} bytes a sample",
        data / count
    )?;
    writeln!(
        out,
        "block index         {:>8.3} bytes a sample",
        index / count
    )?;
    writeln!(
        out,
        "block index         {:>8.1} bytes a series",
        index / f64::from(meta.series)
    )?;
    writeln!(
        out,
        "block               {:>8.3} bytes a sample",
        (index + data) / count
    )
}

fn matcher(name: &str, op: MatchOp, value: &str) -> Matcher {
    Matcher::new(name, op, value.as_bytes()).expect("the pattern is sound")
}

fn report_lookups(out: &mut dyn Write, block: &Block) -> std::io::Result<()> {
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    let name = |value| matcher("__name__", Equal, value);
    let cases = [
        ("up", vec![name("up")]),
        ("requests", vec![name("http_requests_total")]),
        (
            "requests, namespace",
            vec![
                name("http_requests_total"),
                matcher("namespace", Equal, "shop-3"),
            ],
        ),
        (
            "requests, namespace, code=~5..",
            vec![
                name("http_requests_total"),
                matcher("namespace", Equal, "shop-3"),
                matcher("code", Regex, "5.."),
            ],
        ),
        (
            "up, job, pod=~.+, cluster!=",
            vec![
                name("up"),
                matcher("job", Equal, "kubernetes-pods"),
                matcher("pod", Regex, ".+"),
                matcher("cluster", NotEqual, "none"),
            ],
        ),
        (
            "up, pod=~.*-b.*",
            vec![name("up"), matcher("pod", Regex, ".*-b.*")],
        ),
        (
            "pod=~checkout-.*",
            vec![matcher("pod", Regex, "checkout-.*")],
        ),
        ("pod=~.*-b.*", vec![matcher("pod", Regex, ".*-b.*")]),
        ("deployment", vec![matcher("deployment", Equal, "search-5")]),
        ("job (all)", vec![matcher("job", Equal, "kubernetes-pods")]),
        (
            "job, instance!~10.*",
            vec![
                matcher("job", Equal, "kubernetes-pods"),
                matcher("instance", NotRegex, "10\\.1.*"),
            ],
        ),
    ];
    let budget = Budget::new("bench", usize::MAX);
    let cancel = CancelToken::new();
    for (what, matchers) in cases {
        let mut memory = budget.create_reservation();
        let look = || {
            block
                .lookup(&matchers, &cancel, &mut memory)
                .expect("sound")
        };
        let (time, found) = best(40, look);
        writeln!(
            out,
            "{what:<32} {:>8} series {:>9.1} us",
            found.len(),
            micros(time)
        )?;
    }
    let mut memory = budget.create_reservation();
    let narrow = [name("up"), matcher("namespace", Equal, "shop-3")];
    for (what, matchers) in [("all", &[][..]), ("up of a namespace", &narrow)] {
        let values = || {
            block
                .label_values("pod", matchers, &cancel, &mut memory)
                .expect("sound")
        };
        let (time, values) = best(20, values);
        writeln!(
            out,
            "values of pod, {what:<17} {:>8} values {:>9.1} us",
            values.len(),
            micros(time)
        )?;
        let names = || {
            block
                .label_names(matchers, &cancel, &mut memory)
                .expect("sound")
        };
        let (time, names) = best(20, names);
        writeln!(
            out,
            "names, {what:<25} {:>8} names  {:>9.1} us",
            names.len(),
            micros(time)
        )?;
    }
    let all: Vec<u32> = (0..block.series_count()).collect();
    let mut bytes = 0;
    let labels = || block.read_labels(&all, &mut |_, labels| bytes += labels.as_bytes().len());
    let (time, labels) = best(3, labels);
    labels.expect("sound");
    writeln!(out, "labels {:>43.0} ns a series", nanos(time, all.len()))
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Reports the bytes that a query reads with an empty cache: one series of a metric, and all of it.
fn report_cold(out: &mut dyn Write, env: &Env, dir: &Path) -> std::io::Result<()> {
    let budget = Budget::new("bench", usize::MAX);
    let one = vec![
        matcher("__name__", MatchOp::Equal, "container_memory_rss"),
        matcher("deployment", MatchOp::Equal, "search-5"),
    ];
    let all = vec![matcher("__name__", MatchOp::Equal, "up")];
    for (what, matchers) in [("some series", one), ("up of all", all)] {
        let cache = Arc::new(BlockCache::new(CACHE_BYTES));
        let block = Block::open(env, dir, &cache).expect("the block is sound");
        let opened = cache.read_bytes.get();
        let mut memory = budget.create_reservation();
        let found = block
            .lookup(&matchers, &CancelToken::new(), &mut memory)
            .expect("sound");
        let looked = cache.read_bytes.get() - opened;
        let (mut reader, mut columns) = (block.reader(), SampleColumns::default());
        for ordinal in &found {
            reader
                .read(*ordinal, TimeRange::ALL, &mut columns)
                .expect("sound");
            columns.times.clear();
            columns.values.clear();
        }
        let samples: u64 =
            found.len() as u64 * block.meta().samples / u64::from(block.series_count());
        let read = cache.read_bytes.get() - opened - looked;
        let per_sample = (read + looked) as f64 / samples as f64;
        writeln!(
            out,
            "cold: {what}: {} series; {opened} bytes to open, {looked} to look up, {read} to read, \
             {per_sample:.2} a sample",
            found.len()
        )?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse::<usize>().ok());
    let pods = numbers.next().unwrap_or(100);
    let length = numbers.next().unwrap_or(480);
    let mut out = std::io::stdout().lock();
    let samples = Samples::of(pods, length);
    let count = samples.count();
    writeln!(out, "{} series, {count} samples", samples.labels.len())?;
    let env = real::system_env()?;
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("block");
    let (encode, meta) = best(3, || write(&env, &dir, &samples));
    report_sizes(&mut out, &samples, &meta)?;
    let (seal_time, sealed) = best(3, || seal(&samples));
    let bytes: usize = sealed.iter().map(Vec::len).sum();
    writeln!(
        out,
        "pages               {:>8.3} bytes a sample",
        bytes as f64 / count as f64
    )?;
    writeln!(
        out,
        "write block         {:>8.1} ns a sample",
        nanos(encode, count)
    )?;
    writeln!(
        out,
        "seal pages          {:>8.1} ns a sample",
        nanos(seal_time, count)
    )?;
    let cache = Arc::new(BlockCache::new(CACHE_BYTES));
    let block = Block::open(&env, &dir, &cache).expect("the block is sound");
    let (time, _) = best(ROUNDS, || read_block(&block));
    writeln!(
        out,
        "read block          {:>8.2} ns a sample",
        nanos(time, count)
    )?;
    let (time, _) = best(ROUNDS, || read_plain(&block));
    writeln!(
        out,
        "read block, plain   {:>8.2} ns a sample",
        nanos(time, count)
    )?;
    let open = |bytes: &Vec<u8>| PageReader::open(bytes.as_slice().into()).expect("sound");
    let pages: Vec<PageReader> = sealed.iter().map(open).collect();
    let (time, _) = best(ROUNDS, || read_pages(&pages));
    writeln!(
        out,
        "read pages          {:>8.2} ns a sample",
        nanos(time, count)
    )?;
    report_lookups(&mut out, &block)?;
    report_cold(&mut out, &env, &dir)
}
