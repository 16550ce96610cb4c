//! Profiles of the running process for `/debug/pprof`: the heap from jemalloc's sampling, the CPU
//! from timer signals.
//!
//! Heap sampling is switched on at build time in the allocator's options (`.cargo/config.toml`),
//! because it cannot be switched on later. CPU sampling runs only while a profile is taken. Stacks
//! are unwound with the tables that compilers write for exceptions, because neither the hot code
//! nor the C libraries have frame pointers.

mod encode;

use encode::{ProfileBuilder, ProfileTiming};
use firn_model::error::{Error, ErrorKind};
use firn_server::parts::{FinishProfile, ProfileSource};
use nix::sys::signal::{Signal, raise};
use pprof::{ProfilerGuard, ProfilerGuardBuilder, Report};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// CPU samples per second. The odd number avoids alignment with timers that fire at round
/// frequencies.
const CPU_HZ: i32 = 99;

/// Takes profiles of this process for the HTTP handlers of `/debug/pprof`. Heap profiles fail if
/// jemalloc was started without sampling.
#[derive(Debug)]
pub struct ProcessProfiler;

impl ProfileSource for ProcessProfiler {
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
            let report = report.map_err(|e| failed("build the CPU profile", &e))?;
            Ok(cpu_profile(&report))
        }))
    }

    fn threads(&self, kind: &str) -> Result<Vec<u8>, Error> {
        let threads = threads().map_err(|e| failed("list the threads", &e))?;
        Ok(table(&[(kind, "count")], &threads))
    }

    fn nothing(&self, types: &[(&str, &str)]) -> Result<Vec<u8>, Error> {
        Ok(table(types, &BTreeMap::new()))
    }

    fn command_line(&self) -> Vec<String> {
        let words = std::env::args_os();
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }
}

/// Returns the number of threads per thread name. Pools number their threads; the numbers are cut
/// off, so that the threads of one pool are counted together.
fn threads() -> std::io::Result<BTreeMap<String, i64>> {
    let mut names = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        // A thread may end between the listing of the folder and this read.
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

/// Encodes a profile with one sample per name, which has the same value for each of the sample
/// types.
fn table(types: &[(&str, &str)], values: &BTreeMap<String, i64>) -> Vec<u8> {
    let mut profile = ProfileBuilder::new(types);
    profile.set_timing(ProfileTiming {
        start: SystemTime::now(),
        duration: Duration::ZERO,
        period: 1,
        period_type: 0,
    });
    for (name, value) in values {
        let location = profile.location(name, "", "", 0);
        profile.add_sample(vec![location], vec![*value; types.len()], None);
    }
    profile.encode()
}

/// Encodes the sampled stacks, each with its thread name and the CPU time that its samples
/// represent.
fn cpu_profile(report: &Report) -> Vec<u8> {
    let mut profile = ProfileBuilder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let timing = &report.timing;
    let period = 1_000_000_000 / i64::from(timing.frequency);
    profile.set_timing(ProfileTiming {
        start: timing.start_time,
        duration: timing.duration,
        period,
        period_type: 1,
    });
    for (stack, count) in &report.data {
        let mut locations = Vec::new();
        for symbol in stack.frames.iter().flatten() {
            let (name, file) = (symbol.name(), symbol.filename());
            let line = i64::from(symbol.lineno());
            locations.push(profile.location(&name, &symbol.sys_name(), &file, line));
        }
        let count = *count as i64;
        let thread = stack.thread_name_or_id();
        profile.add_sample(
            locations,
            vec![count, count * period],
            Some(("thread", &thread)),
        );
    }
    profile.encode()
}

fn sample_cpu(hz: i32) -> Result<ProfilerGuard<'static>, Error> {
    ProfilerGuardBuilder::default()
        .frequency(hz)
        .build()
        .map_err(|e| failed("start the CPU profile", &e))
}

/// Makes the unwinder load the program's unwind tables. It loads them at the first signal and
/// allocates memory then: a thread that holds the allocator's lock at that moment would deadlock.
/// This thread holds no lock.
fn read_unwind_tables() -> Result<(), Error> {
    // The timer has the lowest frequency, so that the signal raised below arrives before the first
    // timer signal.
    let guard = sample_cpu(1)?;
    let raised = raise(Signal::SIGPROF);
    drop(guard);
    raised.map_err(|e| failed("start the CPU profile", &e))
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("{what}: {error}"))
}
