//! Profiles of the live process, for `/debug/pprof`: the heap from jemalloc's own sampling, the CPU
//! from timer signals.
//!
//! Heap sampling is switched on in the allocator's options (`.cargo/config.toml`), since it cannot
//! be later; CPU sampling runs only while a profile is taken.

use firn_model::error::{Error, ErrorKind};
use firn_server::parts::{FinishProfile, Profiler};
use pprof::protos::Message;

/// Samples a second: off from the round numbers at which other timers fire.
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
        let guard = pprof::ProfilerGuardBuilder::default()
            .frequency(CPU_HZ)
            .build()
            .map_err(|e| failed("start the CPU profile", &e))?;
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

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("{what}: {error}"))
}
