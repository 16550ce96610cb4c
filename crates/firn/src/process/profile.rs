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
use pprof::protos::Message;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

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
