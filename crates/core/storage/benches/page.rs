//! Benchmark of pages: bytes per sample, and nanoseconds per sample to seal and to read.
//!
//! ```text
//! cargo bench -p firn-storage --bench page -- [class]     default: all classes
//! ```
//!
//! Each class has 60 series at 15 s, cut into pages of 120, 480 or 5,760 samples per series. Their
//! times jitter by milliseconds like those of real scrapes, and are shared by the series. `node`
//! resembles the exporter of one host: 507 series, two thirds of them constant. Bytes are those of
//! whole pages, including directory and times; durations are CPU time of this thread, the best of
//! several runs. A native histogram of 22 buckets counts as one sample. `dec` reads all samples,
//! `tenth` the newest tenth of each window. The benchmark prints figures without a verdict.

use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use firn_storage::ids::SeriesSlot;
use firn_storage::page::{
    HistogramFamilyHash, LogSpan, PageBuilder, PageDecodeScratch, PageReader, SampleColumns,
};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const SAMPLES: usize = 5_760;
const SERIES: usize = 60;
const WINDOWS: [usize; 3] = [120, 480, 5_760];
const INTERVAL_MS: i64 = 15_000;
const START_MS: i64 = 1_763_000_000_000;

/// Number of runs of sealing; the best one counts.
const SEAL_ROUNDS: usize = 3;

/// Number of runs of reading. Runs are short, and a busy machine disturbs most of them.
const READ_ROUNDS: usize = 60;

/// A series: its family if it is a bucket, and either its values or its histograms.
#[derive(Default)]
struct Series {
    family: Option<HistogramFamilyHash>,
    values: Vec<f64>,
    histograms: Vec<Arc<Histogram>>,
}

/// Random numbers with the distributions of typical metrics.
struct Dice(SimRng);

impl Dice {
    /// Returns a number in (0, 1].
    fn unit(&self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn chance(&self, of: f64) -> bool {
        self.unit() <= of
    }

    fn exponential(&self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    fn normal(&self) -> f64 {
        let angle = self.unit() * std::f64::consts::TAU;
        (-2.0 * self.unit().ln()).sqrt() * angle.cos()
    }

    /// Returns the number of events in an interval in which `mean` events are expected.
    fn poisson(&self, mean: f64) -> f64 {
        if mean > 50.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0.0);
        while product > limit {
            product *= self.unit();
            count += 1.0;
        }
        count
    }
}

/// Returns the load at a time of day, from half to three halves of the mean.
fn load(i: usize) -> f64 {
    1.0 + 0.5 * (i as f64 / SAMPLES as f64 * std::f64::consts::TAU).sin()
}

/// The name of a class, and the function from the previous value and the time to the next value.
type Class = (&'static str, fn(&Dice, f64, usize) -> f64);

const CLASSES: [Class; 10] = [
    ("constant", |_, v, _| v),
    ("slow int gauge", |d, v, _| {
        if d.chance(0.04) {
            v + if d.chance(0.5) { 1.0 } else { -1.0 }
        } else {
            v
        }
    }),
    ("counter low rate", |d, v, i| v + d.poisson(0.4 * load(i))),
    ("counter high rate", |d, v, i| {
        v + d.poisson(1_500.0 * load(i))
    }),
    ("counter bytes", |d, v, i| {
        v + (d.poisson(400.0 * load(i)) * (400.0 + 900.0 * d.unit())).round()
    }),
    ("cpu seconds", |d, v, i| {
        let busy = (15.0 * 0.3 * load(i) + 0.4 * d.normal()).clamp(0.0, 15.0);
        ((v + busy) * 100.0).round() / 100.0
    }),
    ("sum of seconds", |d, v, i| {
        let observed = d.poisson(20.0 * load(i)) as usize;
        (0..observed).fold(v, |v, _| v + d.exponential(0.05))
    }),
    ("memory gauge", |d, v, _| {
        if d.chance(0.3) {
            v
        } else {
            (v + (d.normal() * 60.0).round() * 4_096.0).max(0.0)
        }
    }),
    ("ratio", |d, _, _| d.unit()),
    ("gauge 3 decimals", |d, v, _| {
        let next = v * 0.95 + 0.05 * 50.0 + d.normal() * 0.2;
        (next * 1_000.0).round() / 1_000.0
    }),
];

fn series_of(class: &Class, seed: u64) -> Series {
    let dice = Dice(SimRng::new(seed));
    let mut value = match class.0 {
        "gauge 3 decimals" => 50.0,
        "memory gauge" => (dice.unit() * 1e5).round() * 4_096.0,
        _ => (dice.unit() * 1e5).round(),
    };
    let values = (0..SAMPLES).map(|i| {
        value = class.1(&dice, value, i);
        value
    });
    Series {
        family: Some(HistogramFamilyHash(seed)),
        values: values.collect(),
        ..Series::default()
    }
}

/// Returns the cumulative buckets, sum and count of latencies.
fn histogram(seed: u64) -> Vec<Series> {
    const BUCKETS: usize = 12;
    let dice = Dice(SimRng::new(seed));
    let rate = 3.0 * dice.unit();
    let mut totals = [0.0; BUCKETS];
    let mut series: Vec<Series> = (0..BUCKETS)
        .map(|_| Series {
            family: Some(HistogramFamilyHash(seed)),
            ..Series::default()
        })
        .collect();
    for i in 0..SAMPLES {
        for _ in 0..dice.poisson(rate * load(i)) as usize {
            let bucket = (5.0 + 1.8 * dice.normal()).clamp(0.0, 11.0) as usize;
            totals[bucket..].iter_mut().for_each(|n| *n += 1.0);
        }
        for (series, total) in series.iter_mut().zip(totals) {
            series.values.push(total);
        }
    }
    series
}

/// Returns latencies as one native histogram with integer counts.
fn native_histogram(seed: u64) -> Series {
    const BUCKETS: usize = 22;
    let dice = Dice(SimRng::new(seed));
    let (rate, mut sum, mut buckets) = (20.0 * dice.unit(), 0.0, [0i64; BUCKETS]);
    let sample = |i: usize| {
        for _ in 0..dice.poisson(rate * load(i)) as usize {
            buckets[(11.0 + 3.0 * dice.normal()).clamp(0.0, 21.0) as usize] += 1;
            sum += dice.exponential(0.05);
        }
        let before = [&[0], &buckets[..BUCKETS - 1]].concat();
        let deltas = buckets.iter().zip(before).map(|(n, before)| n - before);
        Arc::new(Histogram {
            reset_hint: ResetHint::NotReset,
            schema: 3,
            zero_threshold: 2.938735877055719e-39,
            sum,
            counts: HistogramCounts::Integer {
                count: buckets.iter().sum::<i64>() as u64,
                zero_count: 0,
                positive: deltas.collect(),
                negative: Vec::new(),
            },
            positive_spans: vec![BucketSpan {
                offset: -20,
                length: BUCKETS as u32,
            }],
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        })
    };
    Series {
        family: None,
        values: vec![0.0; SAMPLES],
        histograms: (0..SAMPLES).map(sample).collect(),
    }
}

/// Returns the exporter of one host: counters and gauges of the classes above among constants.
fn node() -> Vec<Series> {
    let class_of = |i: usize| match i % 30 {
        0 | 1 => 3,
        2 => 4,
        3..6 => 5,
        6 => 7,
        7 => 2,
        8 => 9,
        9 => 1,
        _ => 0,
    };
    let mut series: Vec<Series> = (0..507)
        .map(|i| series_of(&CLASSES[class_of(i)], 1_000 + i as u64))
        .collect();
    for (i, series) in series.iter_mut().enumerate() {
        if class_of(i) == 0 {
            series.values.fill((i % 7) as f64);
        }
    }
    series
}

fn times() -> Vec<i64> {
    let dice = Dice(SimRng::new(9));
    let jitter = |i: i64| START_MS + i * INTERVAL_MS + dice.exponential(3.0) as i64;
    (0..SAMPLES as i64).map(jitter).collect()
}

/// Cuts every series into windows of `samples` samples.
fn windows(
    series: &[Series],
    samples: usize,
) -> Vec<Vec<(Option<HistogramFamilyHash>, SampleColumns)>> {
    let times = times();
    let starts = (0..SAMPLES).step_by(samples);
    starts
        .map(|start| {
            let part = start..start + samples;
            let columns = |s: &Series| SampleColumns {
                times: times[part.clone()].to_vec(),
                values: s.values[part.clone()].to_vec(),
                histograms: histograms(s, part.clone()),
                ..SampleColumns::default()
            };
            series.iter().map(|s| (s.family, columns(s))).collect()
        })
        .collect()
}

fn histograms(series: &Series, part: Range<usize>) -> Vec<(u32, Arc<Histogram>)> {
    let part = series.histograms.get(part).unwrap_or(&[]);
    (0..).zip(part.iter().cloned()).collect()
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the minimum time of `work`, in nanoseconds per sample, and its result.
fn best<T>(rounds: usize, samples: usize, mut work: impl FnMut() -> T) -> (f64, T) {
    let mut least = (f64::MAX, None);
    for _ in 0..rounds {
        let before = cpu_time();
        let made = std::hint::black_box(work());
        let nanos = (cpu_time() - before).as_nanos() as f64 / samples as f64;
        least = (least.0.min(nanos), Some(made));
    }
    (least.0, least.1.expect("there is a round"))
}

fn seal(windows: &[Vec<(Option<HistogramFamilyHash>, SampleColumns)>]) -> Vec<Vec<u8>> {
    let meta = LogSpan {
        log_from: LogPosition(1),
        log_to: LogPosition(2),
    };
    let sealed = windows.iter().map(|window| {
        let mut builder = PageBuilder::new(meta);
        for (slot, (family, columns)) in window.iter().enumerate() {
            let pushed = builder.push(SeriesSlot(slot as u64), *family, columns);
            pushed.expect("no series is too long");
        }
        builder.finish().expect("there are series")
    });
    sealed.collect()
}

/// Reads the samples in the last part `of` each page's time range, for every series.
fn read(pages: &[PageReader], of: f64) -> usize {
    let (mut scratch, mut columns) = (PageDecodeScratch::default(), SampleColumns::default());
    let mut samples = 0;
    for page in pages {
        let whole = page.range();
        let span = ((whole.max - whole.min) as f64 * of) as i64;
        let range = TimeRange::new(whole.max - span, whole.max);
        for slot in 0..page.column_count() as u64 {
            let column = page
                .find_column(SeriesSlot(slot))
                .expect("sound")
                .expect("pushed");
            columns.clear();
            let decoded = page.decode(&column, range, &mut scratch, &mut columns);
            decoded.expect("the page is sound");
            samples += std::hint::black_box(&columns.values).len();
        }
    }
    samples
}

fn report(out: &mut dyn Write, name: &str, series: &[Series]) -> std::io::Result<()> {
    write!(out, "{name:<18}")?;
    for samples in WINDOWS {
        let windows = windows(series, samples);
        let all = series.len() * SAMPLES;
        let (encode, sealed) = best(SEAL_ROUNDS, all, || seal(&windows));
        let bytes: usize = sealed.iter().map(Vec::len).sum();
        let open = |bytes: &Vec<u8>| PageReader::open(bytes.as_slice().into()).expect("sound");
        let pages: Vec<PageReader> = sealed.iter().map(open).collect();
        let (decode, _) = best(READ_ROUNDS, all, || read(&pages, 1.0));
        let part = read(&pages, 0.1);
        let (tenth, _) = best(READ_ROUNDS, part, || read(&pages, 0.1));
        let per_sample = bytes as f64 / all as f64;
        write!(
            out,
            " | {per_sample:>6.3} {encode:>5.1} {decode:>5.2} {tenth:>5.1}"
        )?;
    }
    writeln!(out)
}

fn main() -> std::io::Result<()> {
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|w| name.starts_with(w));
    let mut out = std::io::stdout().lock();
    let window = |n: usize| format!("{n} samples");
    let [a, b, c] = WINDOWS.map(window);
    writeln!(out, "{:<18} | {a:<24} | {b:<24} | {c}", "")?;
    let heads = " |   B/S   enc   dec tenth".repeat(WINDOWS.len());
    writeln!(out, "{:<18}{heads}", "class (ns/sample)")?;
    for (i, class) in CLASSES.iter().enumerate().filter(|(_, c)| is_wanted(c.0)) {
        let seeds = (0..SERIES as u64).map(|s| s + 100 * i as u64);
        let series: Vec<Series> = seeds.map(|seed| series_of(class, seed)).collect();
        report(&mut out, class.0, &series)?;
    }
    if is_wanted("histogram buckets") {
        let series: Vec<Series> = (0..5).flat_map(|i| histogram(5_000 + i)).collect();
        report(&mut out, "histogram buckets", &series)?;
    }
    if is_wanted("native histogram") {
        let series: Vec<Series> = (0..10).map(|i| native_histogram(6_000 + i)).collect();
        report(&mut out, "native histogram", &series)?;
    }
    if is_wanted("node") {
        report(&mut out, "node", &node())?;
    }
    Ok(())
}
