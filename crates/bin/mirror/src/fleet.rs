//! A simulated Kubernetes fleet whose scrapes are fully determined by a seed.
//!
//! ```text
//! fleet = pods; a pod is a target with 376 series: 12 handlers x 6 codes of request counters,
//!         12 duration histograms of 14 buckets, and 112 series about container, runtime and state
//! round = each pod is scraped once, in the order of the pods' offsets within the interval
//! ```
//!
//! With [`ExtraPodSeries`], pods export additional series of workers, and native histograms beside
//! the classic ones.
//!
//! Each series has eleven labels, about 280 bytes in the encoding of remote write. Eight pods form
//! a deployment, deployments belong to namespaces, and namespaces to three clusters.
//!
//! Invariant: equal options give bit-identical observations on every platform; the timestamps of a
//! series strictly increase; a series that ends receives a staleness marker. The module sends
//! nothing and reads no clock.

mod catalog;
mod native;
pub(crate) mod random;
mod templates;
mod traffic;

pub use templates::SERIES_PER_POD;

use catalog::SeriesModel;
use firn_model::histogram::Histogram;
use firn_model::labels::{Labels, LabelsRef};
use firn_model::sample::{TimestampMs, stale_nan};
use random::{FleetRandom, mix_parts};
use templates::{PodSeriesTemplate, native_template, target_labels, templates, worker_template};
use traffic::HANDLERS;

/// Factors by which the traffic of a pod deviates from that of an average pod.
const POPULARITIES: [f64; 6] = [0.05, 0.3, 0.7, 1.0, 1.6, 3.0];
/// Percentage of scrapes that are late, and the maximum delay.
const LATE_PERCENT: u64 = 20;
const LATE_MS_MAX: u64 = 15;

/// Rate at which pods are replaced by new ones, whose series replace those of the old ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PodChurn {
    /// Share of the pods that is replaced in each period, from 0 to 1.
    pub fraction: f64,
    /// Length of the period in milliseconds of data time.
    pub period_ms: i64,
}

/// Size, seed and timing of a fleet, which determine all its observations. `firn load` fills them
/// from its flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetOptions {
    /// Number of series at any one time; rounded up to whole pods.
    pub series: usize,
    /// Seed of all random choices; equal seeds give equal fleets.
    pub seed: u64,
    /// Time of the first round in milliseconds since the epoch.
    pub start_ms: TimestampMs,
    /// Time between two scrapes of a pod in milliseconds.
    pub interval_ms: i64,
    /// Replacement of pods, if there is any; `None` keeps all pods for ever.
    pub churn: Option<PodChurn>,
}

/// A scraped sample, borrowed from the fleet during [`Fleet::scrape_round`]. It is either a float
/// or a native histogram, depending on the series.
#[derive(Clone, Copy, Debug)]
pub struct FleetSample<'a> {
    /// Number of the series; series are numbered in the order of their creation.
    pub series: u64,
    /// Complete label set of the series, including the metric name.
    pub labels: LabelsRef<'a>,
    /// Time of the scrape in milliseconds since the epoch.
    pub time_ms: TimestampMs,
    /// Value of the sample, which is a staleness marker in the last observation of a series whose
    /// pod was replaced. For native histograms it is the count of observations.
    pub value: f64,
    /// The native histogram, for series of native histograms; `None` for floats.
    pub histogram: Option<&'a Histogram>,
}

/// Series that a pod exports in addition to its [`SERIES_PER_POD`] series; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraPodSeries {
    /// Number of worker series per pod; each worker has three.
    pub worker_series: usize,
    /// Whether the durations of each handler are also exported as one native histogram series.
    pub native_histograms: bool,
}

/// The pods of a fleet and the current values of their series. Each call of [`Fleet::scrape_round`]
/// advances them by one interval.
#[derive(Debug)]
pub struct Fleet {
    options: FleetOptions,
    templates: Vec<PodSeriesTemplate>,
    /// Templates of the native histograms, whose series follow the other series of a pod.
    natives: Vec<PodSeriesTemplate>,
    pods: Vec<FleetPod>,
    /// Indices of the pods, sorted by scrape offset within the interval.
    order: Vec<usize>,
    round: u64,
    created: u64,
    /// Data time in milliseconds during which the pods start one after the other.
    ramp_ms: i64,
}

#[derive(Debug)]
struct FleetPod {
    number: u64,
    generation: u64,
    first_series: u64,
    created_ms: TimestampMs,
    offset_ms: i64,
    popularity: f64,
    decimal_cpu: bool,
    /// Labels of all series of the pod; the native histograms are last.
    labels: Vec<Labels>,
    /// Current values of the float series, in the order of the templates.
    values: Vec<f64>,
}

impl Fleet {
    /// Creates a fleet before its first round, whose pods export only the usual series.
    pub fn new(options: FleetOptions) -> Self {
        Self::with_extra_series(options, ExtraPodSeries::default())
    }

    /// Creates a fleet like [`Fleet::new`], whose pods export additional series of workers or
    /// native histograms.
    pub fn with_extra_series(options: FleetOptions, more: ExtraPodSeries) -> Self {
        let mut templates = templates();
        templates.extend((0..more.worker_series).map(worker_template));
        let mut fleet = Self {
            options,
            natives: if more.native_histograms {
                HANDLERS.iter().map(|h| native_template(h.route)).collect()
            } else {
                Vec::new()
            },
            templates,
            pods: Vec::new(),
            order: Vec::new(),
            round: 0,
            created: 0,
            ramp_ms: 0,
        };
        for number in 0..options.series.div_ceil(fleet.series_per_pod()) as u64 {
            let pod = fleet.create_pod(number, 0);
            fleet.pods.push(pod);
        }
        fleet.order = (0..fleet.pods.len()).collect();
        fleet.order.sort_by_key(|i| (fleet.pods[*i].offset_ms, *i));
        fleet
    }

    /// Starts the pods one after the other instead of all at once, so that all have started after
    /// `ramp_ms` of data time.
    pub fn with_ramp(self, ramp_ms: i64) -> Self {
        Self { ramp_ms, ..self }
    }

    /// Returns whether the pod at `index` has not started yet in this round. Always false without a
    /// ramp.
    fn is_waiting(&self, index: usize) -> bool {
        let elapsed_ms = (self.round as i64 + 1).saturating_mul(self.options.interval_ms);
        let begun = self.pods.len() as f64 * (elapsed_ms as f64 / self.ramp_ms.max(1) as f64);
        (index as f64) >= begun
    }

    /// Returns the number of series of each pod, including those of [`ExtraPodSeries`].
    pub fn series_per_pod(&self) -> usize {
        self.templates.len() + self.natives.len()
    }

    /// Returns the number of pods at any one time, which replacement does not change.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// Returns the number of series at any one time, which replacement does not change.
    pub fn series_count(&self) -> usize {
        self.pods.len() * self.series_per_pod()
    }

    /// Returns the number of series that have been created so far.
    pub fn created_count(&self) -> u64 {
        self.created
    }

    /// Scrapes each pod once and passes its observations to `sink`, pod by pod in the order of
    /// time. Stops at the first error of `sink`.
    pub fn scrape_round<E>(
        &mut self,
        sink: &mut impl FnMut(FleetSample<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let replaced_before = self.period(self.round.saturating_sub(1));
        let period = self.period(self.round);
        for place in 0..self.order.len() {
            let index = self.order[place];
            if self.is_waiting(index) {
                continue;
            }
            let time_ms = self.scrape_time(&self.pods[index]);
            if period != replaced_before && self.is_replaced(self.pods[index].number, period) {
                self.pods[index].end(time_ms, sink)?;
                let (number, generation) =
                    (self.pods[index].number, self.pods[index].generation + 1);
                self.pods[index] = self.create_pod(number, generation);
                continue;
            }
            self.advance(index, time_ms);
            self.pods[index].expose(time_ms, sink)?;
        }
        self.round += 1;
        Ok(())
    }

    fn period(&self, round: u64) -> i64 {
        let elapsed_ms = round as i64 * self.options.interval_ms;
        self.options.churn.map_or(0, |c| elapsed_ms / c.period_ms)
    }

    fn is_replaced(&self, pod: u64, period: i64) -> bool {
        let chance =
            FleetRandom::new(mix_parts(&[self.options.seed, 3, pod, period as u64])).unit();
        self.options.churn.is_some_and(|c| chance < c.fraction)
    }

    fn scrape_time(&self, pod: &FleetPod) -> TimestampMs {
        let mut random =
            FleetRandom::new(mix_parts(&[self.options.seed, 2, pod.number, self.round]));
        let late = if random.below(100) < LATE_PERCENT {
            1 + random.below(LATE_MS_MAX) as i64
        } else {
            0
        };
        let round_ms = self.round as i64 * self.options.interval_ms;
        // The delay is at most half of the interval, so that timestamps increase for short
        // intervals too.
        self.options.start_ms + round_ms + pod.offset_ms + late.min(self.options.interval_ms / 2)
    }

    fn create_pod(&mut self, number: u64, generation: u64) -> FleetPod {
        let interval_ms = self.options.interval_ms;
        let mut random = FleetRandom::new(mix_parts(&[self.options.seed, 1, number, generation]));
        let round_ms = self.round as i64 * interval_ms;
        let uptime_ms = if generation == 0 {
            random.below(3_000_000_000) as i64
        } else {
            0
        };
        let target = target_labels(number, &mut random);
        let first_series = self.created;
        self.created += self.series_per_pod() as u64;
        let all = self.templates.iter().chain(&self.natives);
        let mut pod = FleetPod {
            number,
            generation,
            first_series,
            created_ms: self.options.start_ms + round_ms - uptime_ms,
            // The offset depends only on the target, so that a replaced pod is not scraped early.
            offset_ms: (mix_parts(&[self.options.seed, 4, number]) % interval_ms.max(1) as u64)
                as i64
                / 2,
            popularity: POPULARITIES[random.below(POPULARITIES.len() as u64) as usize],
            decimal_cpu: random.below(2) == 0,
            labels: all.map(|t| t.labels(&target)).collect(),
            values: vec![0.0; self.templates.len()],
        };
        pod.start(&self.templates, uptime_ms as f64 / 1000.0, &mut random);
        pod
    }

    fn advance(&mut self, index: usize, time_ms: TimestampMs) {
        let seconds = self.options.interval_ms as f64 / 1000.0;
        let pod = &mut self.pods[index];
        let parts = [self.options.seed, 5, pod.number, pod.generation, self.round];
        pod.advance(
            &self.templates,
            time_ms,
            seconds,
            &mut FleetRandom::new(mix_parts(&parts)),
        );
    }
}

impl FleetPod {
    /// Sets counters to their values after `uptime` seconds, and gauges to their initial levels.
    fn start(&mut self, templates: &[PodSeriesTemplate], uptime: f64, random: &mut FleetRandom) {
        traffic::advance(
            &mut self.values[..traffic::SERIES],
            self.popularity,
            uptime,
            random,
        );
        for (value, template) in self.values.iter_mut().zip(templates).skip(traffic::SERIES) {
            *value = match template.model {
                SeriesModel::Constant(v) => v,
                SeriesModel::Walk { around, grain } => {
                    (around * (0.6 + 0.8 * random.unit()) / grain).round() * grain
                }
                SeriesModel::Noise(around) => around,
                SeriesModel::Cpu(share) => share * uptime,
                SeriesModel::Traffic(rate) => (rate * self.popularity * uptime).floor(),
                SeriesModel::Rare(chance) => (chance * uptime / 15.0).floor(),
                SeriesModel::NoiseSum(around) => around * uptime,
                SeriesModel::Now | SeriesModel::Created => self.created_ms as f64 / 1000.0,
            };
        }
    }

    fn advance(
        &mut self,
        templates: &[PodSeriesTemplate],
        time_ms: TimestampMs,
        seconds: f64,
        random: &mut FleetRandom,
    ) {
        let http = &mut self.values[..traffic::SERIES];
        traffic::advance(http, self.popularity, seconds, random);
        for (value, template) in self.values.iter_mut().zip(templates).skip(traffic::SERIES) {
            match template.model {
                SeriesModel::Constant(_) | SeriesModel::Created => {}
                SeriesModel::Cpu(share) => {
                    let used = share * self.popularity * seconds * (0.5 + random.unit());
                    *value += used;
                    if self.decimal_cpu {
                        *value = (*value * 100.0).round() / 100.0;
                    }
                }
                SeriesModel::Traffic(rate) => {
                    *value += random.count(rate * self.popularity * seconds) as f64;
                }
                SeriesModel::Rare(chance) => *value += f64::from(random.unit() < chance),
                SeriesModel::Walk { around, grain } => {
                    let step = (around - *value) * 0.02 + around * 0.01 * random.next_normal();
                    *value = (((*value + step) / grain).round() * grain).max(0.0);
                }
                SeriesModel::Noise(around) => *value = around * (0.8 + 0.4 * random.unit()),
                SeriesModel::NoiseSum(around) => *value += around * random.unit(),
                SeriesModel::Now => *value = time_ms as f64 / 1000.0,
            }
        }
    }

    fn expose<E>(
        &self,
        time_ms: TimestampMs,
        sink: &mut impl FnMut(FleetSample<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (i, (labels, value)) in self.labels.iter().zip(&self.values).enumerate() {
            sink(FleetSample {
                series: self.first_series + i as u64,
                labels: labels.as_ref(),
                time_ms,
                value: *value,
                histogram: None,
            })?;
        }
        let natives = self.labels.iter().enumerate().skip(self.values.len());
        for (handler, (i, labels)) in natives.enumerate() {
            let classic = traffic::histogram_of(&self.values, handler);
            let histogram = native::from_classic(classic);
            sink(FleetSample {
                series: self.first_series + i as u64,
                labels: labels.as_ref(),
                time_ms,
                value: classic[traffic::HISTOGRAM_SERIES - 1],
                histogram: Some(&histogram),
            })?;
        }
        Ok(())
    }

    fn end<E>(
        &self,
        time_ms: TimestampMs,
        sink: &mut impl FnMut(FleetSample<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (i, labels) in self.labels.iter().enumerate() {
            sink(FleetSample {
                series: self.first_series + i as u64,
                labels: labels.as_ref(),
                time_ms,
                value: stale_nan(),
                histogram: None,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
