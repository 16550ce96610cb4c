//! Renders the figures of a history as a Markdown table and as JSON.

use super::{Age, DAY_MS, HOUR_MS, Measured, PanelTime, Plan, Read, Started, YOUNG_MS};
use crate::system::{Kind, System};
use crate::table::{MIB, Row, draw, missing_lines};
use firn_mirror::quantiles::Quantiles;
use serde_json::{Value, json};

/// Length in milliseconds of the intervals into which each two hours of data time are divided.
const STRETCH_MS: i64 = 600_000;
const STRETCHES: usize = 12;

impl Age {
    /// Returns the 10th percentile of the recent query. Other activity on the machine makes single
    /// answers slower but none faster.
    fn recent_fast_ms(&self) -> f64 {
        let tenth = self.recent_ms.get(self.recent_ms.len() / 10);
        tenth.copied().unwrap_or(f64::NAN)
    }

    fn name(&self) -> String {
        match self.age_ms {
            age_ms if age_ms >= DAY_MS => format!("{} d", age_ms / DAY_MS),
            age_ms => format!("{} h", age_ms / HOUR_MS),
        }
    }

    /// Returns a progress line about this age for standard error.
    pub(super) fn line(&self) -> String {
        format!(
            "  {}: sent in {:.1} s, {:.1} MiB, recent query {:.2} ms, fastest tenth",
            self.name(),
            self.send_seconds,
            self.resident_bytes as f64 / MIB,
            self.recent_fast_ms()
        )
    }
}

impl PanelTime {
    /// Returns the entry of a panel that a system did not answer, in which all figures are NaN.
    pub(super) fn failed(name: &'static str, days: i64) -> Self {
        Self {
            days,
            name,
            elements: 0,
            cold_ms: f64::NAN,
            warm_ms: Vec::new(),
        }
    }

    /// Returns a progress line about this panel for standard error.
    pub(super) fn line(&self) -> String {
        format!(
            "{} of {} days: {:.1} ms cold, {:.1} ms warm, {} elements",
            self.name,
            self.days,
            self.cold_ms,
            median(&self.warm_ms),
            self.elements
        )
    }
}

impl Read {
    fn of_a_sample(bytes: u64, samples: f64) -> f64 {
        bytes as f64 / samples.max(1.0)
    }
}

impl Measured {
    fn samples(&self) -> f64 {
        (self.pushes.samples as f64).max(1.0)
    }

    fn last(&self) -> Option<&Age> {
        self.ages.last()
    }

    /// Returns a figure for the young and for the old system; NaN for an unmeasured age.
    fn young_and_old(&self, of: impl Fn(&Age) -> f64) -> (f64, f64) {
        let young = self.ages.iter().find(|age| age.age_ms == YOUNG_MS);
        let figure = |age: Option<&Age>| age.map_or(f64::NAN, &of);
        (figure(young), figure(self.last()))
    }

    fn push_ms(&self, share: f64) -> f64 {
        let all = Quantiles::new(self.pushes.latencies_us.clone());
        f64::from(all.quantile(share)) / 1000.0
    }

    /// Returns the p99.9 latency of writes in each ten-minute interval of two hours of data time,
    /// over all two-hour periods together.
    fn stretches_ms(&self) -> Vec<f64> {
        let mut stretches = vec![Vec::new(); STRETCHES];
        let pushes = &self.pushes;
        for (due_ms, us) in pushes.due_ms.iter().zip(&pushes.latencies_us) {
            let stretch = due_ms.rem_euclid(2 * HOUR_MS) / STRETCH_MS;
            stretches[stretch as usize].push(*us);
        }
        let p999 = |us: Vec<u32>| f64::from(Quantiles::new(us).quantile(0.999)) / 1000.0;
        let mut stretches: Vec<f64> = stretches.into_iter().map(p999).collect();
        stretches.sort_unstable_by(f64::total_cmp);
        stretches
    }
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.get(sorted.len() / 2);
    middle.copied().unwrap_or(f64::NAN)
}

/// Renders the table: one column per system, then the ratios of Firn to each other system.
pub fn markdown(plan: &Plan, measured: &[Measured], missing: &[(Kind, String)]) -> String {
    let mut out = format!(
        "History: 6 k series, a sample each {} s, 60 % replaced each half hour, {:.1} days, then \
         {} new series. Panels are of the days up to the newest sample; cold is a new process \
         whose files no cache holds.\n",
        plan.interval_ms as f64 / 1000.0,
        plan.span_ms as f64 / DAY_MS as f64,
        plan.crowd
    );
    out += &missing_lines(missing);
    for (i, panel) in measured.iter().flat_map(|m| m.panels.iter().enumerate()) {
        let first = &measured[0].panels[i];
        if panel.elements != 0 && panel.elements != first.elements {
            out += &format!(
                "Not comparable: {} of {} days: {} and {} elements\n",
                panel.name, panel.days, first.elements, panel.elements
            );
        }
    }
    let systems: Vec<&System> = measured.iter().map(|m| &m.system).collect();
    out + &draw(&systems, &rows(measured))
}

/// Creates a row with one figure of each system, without the spread of repetitions.
fn row(
    measured: &[Measured],
    name: String,
    unit: &'static str,
    of: &dyn Fn(&Measured) -> f64,
) -> Row {
    Row {
        name,
        unit,
        figures: measured.iter().map(of).collect(),
        spreads: Vec::new(),
    }
}

fn rows(measured: &[Measured]) -> Vec<Row> {
    let mut rows = memory_and_start(measured);
    rows.extend(ages(measured));
    rows.extend(bytes(measured));
    rows.extend(pushes(measured));
    let panels = measured.first().map_or(0, |m| m.panels.len());
    for i in 0..panels {
        let panel = &measured[0].panels[i];
        let name = |kind: &str| format!("{}, {} d, {kind}", panel.name, panel.days);
        rows.push(row(measured, name("cold"), "ms", &|m| m.panels[i].cold_ms));
        rows.push(row(measured, name("warm"), "ms", &|m| {
            median(&m.panels[i].warm_ms)
        }));
    }
    rows
}

type OfStart = fn(&(Started, Started)) -> Started;

fn memory_and_start(measured: &[Measured]) -> Vec<Row> {
    let resident = |age: &Age| age.resident_bytes as f64 / MIB;
    let after: [(&str, OfStart); 2] = [("a clean stop", |s| s.0), ("kill -9", |s| s.1)];
    let mut rows = Vec::new();
    let mut triple = |name: &str, unit, of: &dyn Fn(&Age) -> f64| {
        let mut push =
            |what: &str, unit, of: &dyn Fn((f64, f64)) -> f64, age: &dyn Fn(&Age) -> f64| {
                rows.push(row(measured, format!("{name}, {what}"), unit, &|m| {
                    of(m.young_and_old(age))
                }));
            };
        push("4 h", unit, &|(young, _)| young, of);
        push("all", unit, &|(_, old)| old, of);
        push("all / 4 h", "", &|(young, old)| old / young, of);
    };
    triple("idle memory", "MiB", &resident);
    for (name, start) in after {
        triple(&format!("idle memory after {name}"), "MiB", &|age| {
            let started = age.starts.as_ref().map(start);
            started.map_or(f64::NAN, |s| s.resident_bytes as f64 / MIB)
        });
        triple(&format!("ready after {name}"), "s", &|age| {
            let started = age.starts.as_ref().map(start);
            started.map_or(f64::NAN, |s| s.ready.as_secs_f64())
        });
    }
    let crowd = |m: &Measured, of: fn(&Started) -> f64| m.crowd.as_ref().map_or(f64::NAN, of);
    rows.push(row(
        measured,
        "ready after kill -9, many active series".to_owned(),
        "s",
        &|m| crowd(m, |s| s.ready.as_secs_f64()),
    ));
    rows.push(row(
        measured,
        "idle memory, many active series".to_owned(),
        "MiB",
        &|m| crowd(m, |s| s.resident_bytes as f64 / MIB),
    ));
    rows
}

fn ages(measured: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    let count = measured.first().map_or(0, |m| m.ages.len());
    for i in 0..count {
        let name = format!(
            "recent query at {}, fastest tenth",
            measured[0].ages[i].name()
        );
        rows.push(row(measured, name, "ms", &|m| m.ages[i].recent_fast_ms()));
    }
    rows.push(row(
        measured,
        "recent query, all / 4 h".to_owned(),
        "",
        &|m| {
            let (young, old) = m.young_and_old(Age::recent_fast_ms);
            old / young
        },
    ));
    rows
}

fn bytes(measured: &[Measured]) -> Vec<Row> {
    let row =
        |name: &str, unit, of: &dyn Fn(&Measured) -> f64| row(measured, name.to_owned(), unit, of);
    vec![
        row("bytes on disk per sample", "B", &|m| {
            m.disk_bytes as f64 / m.samples()
        }),
        row("index bytes a series and block", "B", &|m| {
            m.indexes.0 as f64 / m.indexes.1 as f64
        }),
        row("bytes written per sample", "B", &|m| {
            m.written_bytes as f64 / m.samples()
        }),
        row("CPU per million samples", "s", &|m| {
            m.cpu_seconds * 1e6 / m.samples()
        }),
        row("all of `up`: bytes from disk a sample", "B", &|m| {
            Read::of_a_sample(m.read.from_disk_bytes, m.read.samples)
        }),
        row("all of `up`: bytes asked for a sample", "B", &|m| {
            Read::of_a_sample(m.read.asked_bytes, m.read.samples)
        }),
        row("all of `up`: time", "ms", &|m| m.read.ms),
    ]
}

fn pushes(measured: &[Measured]) -> Vec<Row> {
    let row =
        |name: &str, unit, of: &dyn Fn(&Measured) -> f64| row(measured, name.to_owned(), unit, of);
    let worst = |m: &Measured| m.stretches_ms().last().copied().unwrap_or(f64::NAN);
    vec![
        row("push p50", "ms", &|m| m.push_ms(0.5)),
        row("push p99.9", "ms", &|m| m.push_ms(0.999)),
        row("push max", "ms", &|m| m.push_ms(1.0)),
        row("push p99.9, worst ten minutes of two hours", "ms", &worst),
        row("push p99.9, worst / middle ten minutes", "", &|m| {
            worst(m) / median(&m.stretches_ms())
        }),
    ]
}

/// Returns all figures as JSON, including those that the table leaves out.
pub fn json(plan: &Plan, measured: &[Measured]) -> Value {
    let systems: Vec<Value> = measured.iter().map(system_json).collect();
    json!({
        "span_ms": plan.span_ms,
        "interval_ms": plan.interval_ms,
        "crowd": plan.crowd,
        "systems": systems,
    })
}

fn system_json(m: &Measured) -> Value {
    let started = |s: &Started| json!([s.ready.as_secs_f64(), s.resident_bytes]);
    let ages = m.ages.iter().map(|age| {
        json!({
            "age_ms": age.age_ms,
            "resident_bytes": age.resident_bytes,
            "recent_ms": age.recent_ms,
            "send_seconds": age.send_seconds,
            "clean_start_ready_resident": age.starts.as_ref().map(|s| started(&s.0)),
            "killed_start_ready_resident": age.starts.as_ref().map(|s| started(&s.1)),
        })
    });
    let panels = m.panels.iter().map(|panel| {
        json!({
            "name": panel.name,
            "days": panel.days,
            "elements": panel.elements,
            "cold_ms": panel.cold_ms,
            "warm_ms": panel.warm_ms,
        })
    });
    json!({
        "system": m.system.kind.name(),
        "version": m.system.version,
        "samples": m.pushes.samples,
        "requests": m.pushes.requests,
        "cpu_seconds": m.cpu_seconds,
        "written_bytes": m.written_bytes,
        "disk_bytes": m.disk_bytes,
        "index_bytes": m.indexes.0,
        "index_series": m.indexes.1,
        "up_samples": m.read.samples,
        "up_from_disk_bytes": m.read.from_disk_bytes,
        "up_asked_bytes": m.read.asked_bytes,
        "up_ms": m.read.ms,
        "push_ms_p50_p999_max": [m.push_ms(0.5), m.push_ms(0.999), m.push_ms(1.0)],
        "push_p999_ms_of_ten_minutes_sorted": m.stretches_ms(),
        "ages": ages.collect::<Vec<_>>(),
        "panels": panels.collect::<Vec<_>>(),
        "crowd_ready_resident": m.crowd.as_ref().map(started),
    })
}
