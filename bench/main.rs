//! `make bench`: Firn beside Prometheus and VictoriaMetrics on one machine.
//!
//! The load is made once, before anything is measured, and the identical bodies are sent to one
//! system after the other over as many connections; each starts on an empty folder and runs
//! alone. The table goes to the standard output, progress to the standard error, all figures to a
//! file.
//!
//! Invariant: nothing here is specific to Firn but the flags it is started with.

mod dashboard;
mod process;
mod scenario;
mod system;
mod table;

use firn_mirror::load::{self, options};
use lexopt::ValueExt;
use scenario::{Load, Measured, Plan};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use system::{ALL, Kind, System};

const HELP: &str = "\
usage: firn-bench [--short | --full] [--only SYSTEM]... [--json FILE] [--dir DIR] [--keep]

  --short         what three minutes on two cores allow [the default]
  --full          96 k series for an hour, and a million new series with 8 samples each
  --only SYSTEM   firn, prometheus or victoria-metrics; may be repeated
  --json FILE     where all figures go [bench-DATE.json in the folder for scratch files]
  --dir DIR       where loads and data go [a new folder for scratch files]
  --keep          leave them there

Programs are taken from BENCH_FIRN, BENCH_PROMETHEUS and BENCH_VICTORIA_METRICS, else from the
folder of this program, else from PATH.
";

/// How much is sent and asked.
#[derive(Clone, Copy, Debug)]
struct Size {
    fleet_series: usize,
    fleet_samples: u64,
    births_series: usize,
    births_samples: u64,
    settle: Duration,
    dashboard_ms: i64,
    repeats: usize,
}

const SHORT: Size = Size {
    fleet_series: 96_000,
    fleet_samples: 60,
    births_series: 200_000,
    births_samples: 2,
    settle: Duration::from_secs(2),
    dashboard_ms: 600_000,
    repeats: 7,
};

const FULL: Size = Size {
    fleet_series: 96_000,
    fleet_samples: 240,
    births_series: 1_000_000,
    births_samples: 8,
    settle: Duration::from_secs(10),
    dashboard_ms: 1_200_000,
    repeats: 11,
};

struct Arguments {
    size: Size,
    only: Vec<Kind>,
    json: Option<PathBuf>,
    dir: Option<PathBuf>,
    keep: bool,
    help: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&e);
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let arguments = parse().map_err(|e| format!("{e}\n\n{HELP}"))?;
    if arguments.help {
        return print(HELP);
    }
    let scratch = format!("firn-bench-{}", std::process::id());
    let dir = arguments
        .dir
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(scratch));
    let result = measure_all(&arguments, &dir);
    if !arguments.keep && arguments.dir.is_none() {
        // Nothing hangs on it: these are scratch files in the folder for them.
        let _ = std::fs::remove_dir_all(&dir);
    }
    result
}

fn measure_all(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for kind in ALL {
        if !arguments.only.is_empty() && !arguments.only.contains(&kind) {
            continue;
        }
        match System::find(kind) {
            Some(system) => found.push(system),
            None => {
                let why = format!(
                    "neither {} nor PATH names its program {}",
                    kind.variable(),
                    kind.program_name()
                );
                missing.push((kind, why));
            }
        }
    }
    say("make the loads");
    let plan = plan(&arguments.size, dir)?;
    let mut measured = Vec::new();
    let mut failed = Vec::new();
    for system in &found {
        say(&format!(
            "measure {} {}",
            system.kind.name(),
            system.version
        ));
        let system_dir = dir.join(system.kind.program_name());
        match scenario::run(system, &system_dir, &plan) {
            Ok(m) => measured.push(m),
            Err(e) => failed.push((system.kind, e)),
        }
    }
    missing.extend(failed.iter().cloned());
    print(&table::markdown(&plan, &measured, &missing))?;
    write_json(arguments, &plan, &measured)?;
    match failed.iter().find(|(kind, _)| *kind == Kind::Firn) {
        Some((_, why)) => Err(format!("Firn could not be measured: {why}")),
        None => Ok(()),
    }
}

fn write_json(arguments: &Arguments, plan: &Plan, measured: &[Measured]) -> Result<(), String> {
    let path = arguments.json.clone().unwrap_or_else(|| {
        let name = format!("firn-bench-{}.json", plan.fleet.summary.end_ms);
        std::env::temp_dir().join(name)
    });
    let text = format!("{:#}\n", table::json(plan, measured));
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    say(&format!("all figures: {}", path.display()));
    Ok(())
}

fn plan(size: &Size, dir: &Path) -> Result<Plan, String> {
    let make = |name: &str, series: usize, samples: u64| -> Result<Load, String> {
        let flags = format!("--series {series} --samples {samples} --interval 15s --senders 4");
        let args = flags.split_whitespace().map(OsString::from);
        let options = options::Options::parse(args).map_err(|e| e.to_string())?;
        let dir = dir.join("load").join(name);
        let summary = load::prepare(&options, &dir).map_err(|e| e.to_string())?;
        Ok(Load { dir, summary })
    };
    Ok(Plan {
        fleet: make("fleet", size.fleet_series, size.fleet_samples)?,
        births: make("births", size.births_series, size.births_samples)?,
        crash: make("crash", 10_000, 5)?,
        settle: size.settle,
        dashboard_ms: size.dashboard_ms,
        repeats: size.repeats,
    })
}

fn parse() -> Result<Arguments, lexopt::Error> {
    let mut arguments = Arguments {
        size: SHORT,
        only: Vec::new(),
        json: None,
        dir: None,
        keep: false,
        help: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("short") => arguments.size = SHORT,
            lexopt::Arg::Long("full") => arguments.size = FULL,
            lexopt::Arg::Long("only") => {
                let name = parser.value()?.string()?;
                let kind = ALL.into_iter().find(|k| k.program_name() == name);
                arguments
                    .only
                    .push(kind.ok_or(format!("unknown system: {name}"))?);
            }
            lexopt::Arg::Long("json") => arguments.json = Some(parser.value()?.into()),
            lexopt::Arg::Long("dir") => arguments.dir = Some(parser.value()?.into()),
            lexopt::Arg::Long("keep") => arguments.keep = true,
            lexopt::Arg::Long("help") => arguments.help = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(arguments)
}

fn print(text: &str) -> Result<(), String> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| format!("write the table: {e}"))
}

fn say(text: &str) {
    // Progress that cannot be written is not missed.
    let _ = writeln!(io::stderr(), "{text}");
}
