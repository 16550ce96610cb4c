//! `firn tsdb bench write [FILE]`: how fast the store takes samples, in promtool's form.
//!
//! Every series gets a sample each 30 s of data time, all of a scrape before the next one, in
//! batches that are durable before they count. Series come from a file of promtool's kind, a line
//! of JSON with the labels of each, or from the fleet of the load generator.

use super::progress::Progress;
use super::watched::bytes_below;
use crate::console;
use clap::{Arg, ArgMatches, Command, value_parser};
use firn_mirror::fleet::{Fleet, FleetOptions};
use firn_model::batch::Batch;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsRef};
use firn_model::store::{Append, AppendBounds, Ticket};
use firn_model::tenant::TenantId;
use firn_storage::store::{Store, StoreOptions};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time between two scrapes, as in promtool.
const INTERVAL_MS: i64 = 30_000;

/// Series of a batch, as in promtool.
const BATCH_SERIES: usize = 1_000;

/// Batches that are on their way to the disk at a time.
const IN_FLIGHT_MAX: usize = 64;

/// The first value of a series of a file, and what each scrape adds to it; as in promtool.
const VALUE: (f64, f64) = (123_456_789.0, 1_000.0);

/// `firn tsdb bench`.
pub fn command() -> Command {
    let number = |name: &'static str, default: &'static str| {
        let arg = Arg::new(name).long(name).value_name("N");
        arg.value_parser(value_parser!(usize))
            .default_value(default)
    };
    let write = Command::new("write")
        .about("Run a write performance benchmark")
        .long_about(
            "Writes samples of many series into a new store in OUT/storage and prints the elapsed \
             time. OUT must not exist or must be empty; it is kept. Only durable samples are \
             counted.",
        )
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("OUT")
                .value_parser(value_parser!(PathBuf))
                .default_value("benchout")
                .help("Folder to write to"),
        )
        .arg(number("metrics", "10000").help("Number of series"))
        .arg(number("scrapes", "3000").help("Number of scrapes to simulate"))
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("File with one JSON object of labels per line [default: generated series]"),
        );
    Command::new("bench")
        .about("Run benchmarks")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([write])
}

/// Runs `firn tsdb bench write`; prints as it goes.
pub fn run(env: &Env, matches: &ArgMatches) -> Result<(), Error> {
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned();
    let number = |id: &str| matches.get_one::<usize>(id).copied().unwrap_or(0);
    let out = path("out").unwrap_or_default();
    let taken = env.disk.list(&out).unwrap_or_default();
    if !taken.is_empty() {
        let why = format!("folder {} is not empty", out.display());
        return Err(Error::new(ErrorKind::Invalid, why));
    }
    let (series, scrapes) = (number("metrics"), number("scrapes"));
    let file = path("file");
    let (mut load, _) = stage(env, "readData", || match &file {
        Some(file) => read(file, series),
        None => Ok(Load::Fleet(Box::new(Fleet::new(FleetOptions {
            series,
            seed: 1,
            start_ms: 0,
            interval_ms: INTERVAL_MS,
            churn: None,
        })))),
    })?;
    let options = StoreOptions::new(out.join("storage"));
    let store = Store::open(env.clone(), options)?;
    let (total, took) = stage(env, "ingestScrapes", || {
        let total = ingest(&store, &mut load, scrapes);
        console::out("ingestion completed\n");
        total
    })?;
    console::out(&format!(
        " > total samples: {total}\n > samples/sec: {}\n",
        total as f64 / took.as_secs_f64()
    ));
    stage(env, "stopStorage", || store.close())?;
    drop(store);
    let bytes = bytes_below(&*env.disk, &out.join("storage"));
    let per = bytes as f64 / total.max(1) as f64;
    console::out(&format!(
        " > bytes on disk: {bytes}\n > bytes/sample: {per:.3}\n"
    ));
    Ok(())
}

/// Does one stage, and says when it begins and how long it took.
fn stage<T>(
    env: &Env,
    name: &str,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<(T, Duration), Error> {
    console::out(&format!(">> start stage={name}\n"));
    let start = env.clock.monotonic();
    let done = work()?;
    let took = env.clock.monotonic().saturating_sub(start);
    console::out(&format!(
        ">> completed stage={name} duration={:.3}s\n",
        took.as_secs_f64()
    ));
    Ok((done, took))
}

/// What is written.
enum Load {
    /// Series of a file, and how often they were scraped.
    Series(Vec<Labels>, u64),
    Fleet(Box<Fleet>),
}

impl Load {
    /// Calls `each` with labels, time and value of every sample of the next scrape.
    fn scrape(
        &mut self,
        each: &mut dyn FnMut(LabelsRef<'_>, i64, f64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Load::Fleet(fleet) => fleet.scrape_round(&mut |o| each(o.labels, o.time_ms, o.value)),
            Load::Series(series, scrapes) => {
                *scrapes += 1;
                let time = INTERVAL_MS * *scrapes as i64;
                let value = VALUE.0 + VALUE.1 * *scrapes as f64;
                for labels in series {
                    each(labels.as_ref(), time, value)?;
                }
                Ok(())
            }
        }
    }
}

/// The first series of a file.
fn read(file: &Path, series_max: usize) -> Result<Load, Error> {
    let unreadable = |e: std::io::Error| Error::unavailable(format!("{}: {e}", file.display()));
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let series = lines.take(series_max).map(|(number, line)| {
        let pairs: BTreeMap<String, String> = serde_json::from_str(line).map_err(|e| {
            let why = format!("{}, line {}: {e}", file.display(), number + 1);
            Error::new(ErrorKind::Invalid, why)
        })?;
        Ok(Labels::from_pairs(pairs.iter().map(|(n, v)| (&**n, &**v))))
    });
    Ok(Load::Series(series.collect::<Result<_, Error>>()?, 0))
}

/// Writes so many scrapes; returns how many samples the store took.
fn ingest(store: &Arc<Store>, load: &mut Load, scrapes: usize) -> Result<u64, Error> {
    let progress = Progress::new(scrapes as u64, "scrapes");
    progress.turn_to("writing".to_owned());
    let mut writer = Writer {
        store: store.clone(),
        tenant: TenantId::anonymous(),
        batch: Batch::default(),
        in_flight: VecDeque::new(),
        stored: 0,
    };
    for _ in 0..scrapes {
        load.scrape(&mut |labels, time, value| {
            writer.batch.push_series(labels, &[(time, value)]);
            match writer.batch.series_count() < BATCH_SERIES {
                true => Ok(()),
                false => writer.send(),
            }
        })?;
        writer.send()?;
        progress.add(1);
    }
    writer.wait_down_to(0)?;
    Ok(writer.stored)
}

/// Hands batches to the store, and waits for them.
struct Writer {
    store: Arc<Store>,
    tenant: TenantId,
    batch: Batch,
    in_flight: VecDeque<Ticket>,
    stored: u64,
}

impl Writer {
    fn send(&mut self) -> Result<(), Error> {
        let bounds = AppendBounds::until(i64::MAX);
        self.in_flight
            .push_back(self.store.append(&self.tenant, &self.batch, bounds));
        self.batch.clear();
        self.wait_down_to(IN_FLIGHT_MAX)
    }

    fn wait_down_to(&mut self, tickets: usize) -> Result<(), Error> {
        while self.in_flight.len() > tickets {
            let Some(ticket) = self.in_flight.pop_front() else {
                break;
            };
            self.stored += ticket.wait()?.stored as u64;
        }
        Ok(())
    }
}
