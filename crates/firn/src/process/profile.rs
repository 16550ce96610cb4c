//! Profiles of the live process, for `/debug/pprof`: the heap from jemalloc's own sampling, the CPU
//! from timer signals.
//!
//! Heap sampling is switched on in the allocator's options (`.cargo/config.toml`), since it cannot
//! be later; CPU sampling runs only while a profile is taken. Stacks are read by the unwind tables
//! that compilers write for exceptions: the code that runs all the time keeps no frame pointers,
//! and the libraries in C, which have none either, are seen through.

use firn_model::error::{Error, ErrorKind};
use firn_server::parts::{FinishProfile, Profiler};
use nix::sys::signal::{Signal, raise};
use pprof::protos::{Function, Line, Location, Message, Profile, Sample, ValueType};
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Samples a second of CPU time: off from the round numbers at which other timers fire.
const CPU_HZ: i32 = 99;

/// Profiles this process.
#[derive(Debug)]
pub struct ProcessProfiler;

impl Profiler for ProcessProfiler {
    fn heap(&self) -> Result<Vec<u8>, Error> {
        let Some(control) = jemalloc_pprof::PROF_CTL.as_ref() else {
            return Err(Error::new(
                ErrorKind::NotFound,
                "heap profiling is off: start with _RJEM_MALLOC_CONF=prof:true",
            ));
        };
        control
            .blocking_lock()
            .dump_pprof()
            .map_err(|e| failed("dump the heap profile", &e))
    }

    fn start_cpu(&self) -> Result<FinishProfile, Error> {
        read_unwind_tables()?;
        let guard = sample_cpu(CPU_HZ)?;
        Ok(Box::new(move || {
            let report = guard.report().build();
            let profile = report.and_then(|report| report.pprof());
            let profile = profile.map_err(|e| failed("build the CPU profile", &e))?;
            profile
                .write_to_bytes()
                .map_err(|e| failed("encode the CPU profile", &e))
        }))
    }

    fn threads(&self, kind: &str) -> Result<Vec<u8>, Error> {
        let threads = threads().map_err(|e| failed("list the threads", &e))?;
        table(&[(kind, "count")], &threads)
    }

    fn nothing(&self, types: &[(&str, &str)]) -> Result<Vec<u8>, Error> {
        table(types, &BTreeMap::new())
    }

    fn command_line(&self) -> Vec<String> {
        let words = std::env::args_os();
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }
}

/// The names of this process's threads, and how many have each; pools number theirs, which tells
/// nothing here.
fn threads() -> std::io::Result<BTreeMap<String, i64>> {
    let mut names = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        // A thread may end meanwhile.
        let Ok(name) = std::fs::read_to_string(entry?.path().join("comm")) else {
            continue;
        };
        let name = name
            .trim_end()
            .trim_end_matches(|c: char| c.is_ascii_digit());
        let name = name.trim_end_matches('-').to_owned();
        *names.entry(name).or_insert(0) += 1;
    }
    Ok(names)
}

/// A profile of values of these types and units, with a value for each name.
fn table(types: &[(&str, &str)], values: &BTreeMap<String, i64>) -> Result<Vec<u8>, Error> {
    let mut profile = Profile::new();
    profile.string_table.push(String::new());
    let mut text = |text: &str| {
        profile.string_table.push(text.to_owned());
        profile.string_table.len() as i64 - 1
    };
    let mut pairs = Vec::new();
    for (kind, unit) in types {
        let mut pair = ValueType::new();
        (pair.ty, pair.unit) = (text(kind), text(unit));
        pairs.push(pair);
    }
    let names: Vec<i64> = values.keys().map(|name| text(name)).collect();
    for (id, (name, value)) in (1..).zip(names.into_iter().zip(values.values())) {
        let (mut function, mut line) = (Function::new(), Line::new());
        (function.id, function.name, line.function_id) = (id, name, id);
        let (mut location, mut sample) = (Location::new(), Sample::new());
        location.id = id;
        location.line.push(line);
        sample.location_id.push(id);
        sample.value = vec![*value; types.len()];
        profile.function.push(function);
        profile.location.push(location);
        profile.sample.push(sample);
    }
    profile.period = 1;
    profile.period_type = pairs.first().cloned().into();
    profile.sample_type = pairs;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    profile.time_nanos = since.map_or(0, |since| since.as_nanos() as i64);
    profile
        .write_to_bytes()
        .map_err(|e| failed("encode the profile", &e))
}

fn sample_cpu(hz: i32) -> Result<ProfilerGuard<'static>, Error> {
    ProfilerGuardBuilder::default()
        .frequency(hz)
        .build()
        .map_err(|e| failed("start the CPU profile", &e))
}

/// Has the unwinder read the program's tables. It does with the first signal, and allocates: a
/// thread that holds the allocator's lock when that comes would wait for itself for ever. This
/// thread holds none.
fn read_unwind_tables() -> Result<(), Error> {
    // The timer is as slow as can be: the signal below comes before its first one.
    let guard = sample_cpu(1)?;
    let raised = raise(Signal::SIGPROF);
    drop(guard);
    raised.map_err(|e| failed("start the CPU profile", &e))
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("{what}: {error}"))
}
