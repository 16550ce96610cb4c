//! `make bench`: compares Firn with Prometheus and VictoriaMetrics on one machine.
//!
//! The load is generated once in advance, and identical bodies are sent to one system after the
//! other over the same number of connections. Each system starts with an empty directory, and only
//! idle systems that have already ingested their load run beside it. Queries are sent to the
//! systems in turns. The table is written to standard output, progress to standard error, and all
//! figures to a file.
//!
//! Invariant: nothing is specific to Firn except the flags with which it is started, and the
//! benchmarks that compare Firn with itself.

mod ablation;
mod arguments;
mod churn;
mod cluster;
mod create;
mod dashboard;
mod doors;
mod history;
mod picture;
mod process;
mod reads;
mod record;
mod refresh;
mod rules;
mod scenario;
mod scrape;
mod stub;
mod system;
mod table;

use arguments::{Arguments, Mode, Size};
use clap::error::ErrorKind;
use firn_mirror::load::{self, options};
use scenario::{Load, Plan};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use system::{ALL, Kind, System};

/// Flags of the load of a churn run, which all systems receive.
const CHURN: &str = "--series 20000 --duration 6h --interval 15s --churn 0.6 --senders 4";

/// Flags of the load of an ablation, which all variants of Firn receive.
const ABLATION: &str = "--series 20000 --duration 3h --interval 15s --senders 4";

/// Length of a recording of a real sender, in real time.
const RECORD_FOR: Duration = Duration::from_secs(60);

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
    let arguments = match Arguments::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(e) if e.kind() == ErrorKind::DisplayHelp => return print(&e.render().to_string()),
        Err(e) => return Err(e.render().to_string()),
    };
    let scratch = format!("firn-bench-{}", std::process::id());
    let dir = arguments
        .dir
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(scratch));
    let result = match &arguments.mode {
        Mode::Dashboard => measure_all(&arguments, &dir),
        Mode::Churn => measure_churn(&arguments, &dir),
        Mode::History => measure_history(&arguments, &dir),
        Mode::Ablation => measure_ablation(&arguments, &dir),
        Mode::Doors => measure_doors(&arguments, &dir),
        Mode::Cluster => measure_cluster(&arguments, &dir),
        Mode::Scrape => measure_scrapes(&arguments, &dir),
        Mode::Rules => measure_rules(&arguments, &dir),
        Mode::Reads => measure_reads(&arguments, &dir),
        Mode::Refresh => measure_refreshes(&arguments, &dir),
        Mode::Create => measure_creation(&arguments, &dir),
        Mode::Record(recording) => record(recording),
        Mode::Replay(recording) => measure_replay(&arguments, &dir, recording),
    };
    if !arguments.keep && arguments.dir.is_none() {
        // An error is ignored, because the directory contains only temporary files.
        let _ = std::fs::remove_dir_all(&dir);
    }
    result
}

fn measure_all(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let (found, mut missing) = find_systems(arguments);
    say("make the loads");
    let plan = plan(&arguments.size, dir)?;
    let loaded = measure(&found, dir, &mut missing, &mut |system, dir| {
        scenario::take_fleet(system, dir, &plan)
    });
    say("ask for the dashboard in turns");
    let dashboards = scenario::ask(&loaded, &plan);
    let (mut asked, mut fleets) = (Vec::new(), Vec::new());
    for (loaded, dashboard) in loaded.into_iter().zip(dashboards) {
        let system = loaded.system.clone();
        say(&format!("kill and restart {}", system.kind.name()));
        match dashboard.and_then(|d| Ok((scenario::restart_fleet(loaded, &plan)?, d))) {
            Ok(fleet) => {
                asked.push(system);
                fleets.push(fleet);
            }
            Err(e) => missing.push((system.kind, e)),
        }
    }
    let mut fleets = fleets.into_iter();
    let measured = measure(&asked, dir, &mut missing, &mut |system, dir| {
        let fleet = fleets.next().ok_or("no fleet of this system")?;
        scenario::run_others(system, dir, &plan, fleet)
    });
    print(&table::markdown(&plan, &measured, &missing))?;
    let end_ms = plan.fleet.summary.end_ms;
    write_json(arguments, end_ms, &table::json(&plan, &measured))?;
    firn_was_measured(arguments, &missing)
}

fn measure_churn(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let (found, mut missing) = find_systems(arguments);
    say("make the load");
    let load = make_load(dir, "churn", CHURN)?;
    let measured = measure(&found, dir, &mut missing, &mut |system, dir| {
        churn::run(system, dir, &load)
    });
    print(&table::churn_markdown(&load, &measured, &missing))?;
    if let Some(path) = &arguments.svg {
        std::fs::write(path, picture::svg(&measured))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let figures = json!({
        "load": load.summary.to_json(),
        "systems": measured.iter().map(|m| m.to_json()).collect::<Vec<_>>(),
    });
    write_json(arguments, load.summary.end_ms, &figures)?;
    firn_was_measured(arguments, &missing)
}

fn measure_history(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let (found, mut missing) = find_systems(arguments);
    let plan = &arguments.history;
    let start_ms = firn_mirror::push::now_ms() - plan.span_ms;
    let mut filled = measure(&found, dir, &mut missing, &mut |system, dir| {
        history::fill(system, dir, plan, start_ms)
    });
    say("ask for the panels in turns");
    history::ask_panels(&mut filled)?;
    for one in &mut filled {
        say(&format!("many new series: {}", one.system.kind.name()));
        if let Err(e) = one.crowd(plan) {
            say(&format!("{}: {e}", one.system.kind.name()));
        }
    }
    print(&history::markdown(plan, &filled, &missing))?;
    let figures = history::json(plan, &filled);
    write_json(arguments, start_ms + plan.span_ms, &figures)?;
    firn_was_measured(arguments, &missing)
}

fn measure_ablation(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let firn = System::find(Kind::Firn).ok_or("the program firn is not there")?;
    say("make the load");
    let load = make_load(dir, "ablation", ABLATION)?;
    let measured = ablation::run(&firn, dir, &load)?;
    print(&ablation::markdown(&load, &measured))?;
    let figures = ablation::json(&load, &measured);
    write_json(arguments, load.summary.end_ms, &figures)
}

fn measure_doors(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let firn = System::find(Kind::Firn).ok_or("the program firn is not there")?;
    say("make the loads");
    let loads = doors::Loads {
        first: make_load(dir, "first", doors::LOAD)?,
        second: make_load(dir, "second", &format!("{} --protocol 2", doors::LOAD))?,
    };
    let measured = doors::run(&firn, dir, &loads)?;
    print(&doors::markdown(&loads, &measured))?;
    let end_ms = loads.first.summary.end_ms;
    write_json(arguments, end_ms, &doors::json(&loads, &measured))
}

fn measure_cluster(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let firn = System::find(Kind::Firn).ok_or("the program firn is not there")?;
    let compared = cluster::run(&firn, &arguments.size, dir)?;
    print(&cluster::markdown(&compared))?;
    write_json(
        arguments,
        firn_mirror::push::now_ms(),
        &cluster::json(&compared),
    )
}

fn measure_scrapes(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let (mut found, mut missing) = find_systems(arguments);
    // VictoriaMetrics has another configuration of targets.
    found.retain(|system| system.kind != Kind::VictoriaMetrics);
    let measured = measure(&found, dir, &mut missing, &mut scrape::run);
    let lines: String = measured.iter().map(scrape::Scraped::line).collect();
    print(&(scrape::head() + &lines))?;
    let figures = json!({
        "systems": measured.iter().map(|m| m.to_json()).collect::<Vec<_>>(),
    });
    write_json(arguments, firn_mirror::push::now_ms(), &figures)?;
    firn_was_measured(arguments, &missing)
}

fn measure_rules(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let (mut found, mut missing) = find_systems(arguments);
    // VictoriaMetrics evaluates rules in another program.
    found.retain(|system| system.kind != Kind::VictoriaMetrics);
    let measured = measure(&found, dir, &mut missing, &mut rules::run);
    let lines: String = measured.iter().map(rules::Evaluated::line).collect();
    print(&(rules::head() + &lines))?;
    let figures = json!({
        "systems": measured.iter().map(|m| m.to_json()).collect::<Vec<_>>(),
    });
    write_json(arguments, firn_mirror::push::now_ms(), &figures)?;
    firn_was_measured(arguments, &missing)
}

fn measure_reads(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let (mut found, mut missing) = find_systems(arguments);
    found.retain(|system| system.kind != Kind::VictoriaMetrics);
    say("make the load");
    let load = make_load(dir, "reads", reads::LOAD)?;
    let measured = measure(&found, dir, &mut missing, &mut |system, dir| {
        reads::run(system, dir, &load)
    });
    let lines: String = measured.iter().map(reads::Reads::line).collect();
    print(&(reads::head(&load) + &lines))?;
    let figures = json!({
        "load": load.summary.to_json(),
        "systems": measured.iter().map(|m| m.to_json()).collect::<Vec<_>>(),
    });
    write_json(arguments, load.summary.end_ms, &figures)?;
    firn_was_measured(arguments, &missing)
}

fn measure_refreshes(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let (mut found, mut missing) = find_systems(arguments);
    found.retain(|system| system.kind == Kind::Firn);
    say("make the load");
    let load = make_load(dir, "refresh", refresh::LOAD)?;
    let measured = measure(&found, dir, &mut missing, &mut |system, dir| {
        refresh::run(system, dir, &load)
    });
    let tables = measured.iter().map(|measured| measured.table(&load));
    print(&tables.collect::<String>())?;
    let figures = json!({
        "load": load.summary.to_json(),
        "systems": measured.iter().map(|m| m.to_json()).collect::<Vec<_>>(),
    });
    write_json(arguments, load.summary.end_ms, &figures)?;
    firn_was_measured(arguments, &missing)
}

fn measure_creation(arguments: &Arguments, dir: &Path) -> Result<(), String> {
    let error = |e: io::Error| format!("{}: {e}", dir.display());
    std::fs::create_dir_all(dir).map_err(error)?;
    say("make the text");
    let text = dir.join("samples.om");
    let text_bytes = create::write_text(&text).map_err(error)?;
    let firn = System::find(Kind::Firn).ok_or("the program firn is not there")?;
    let mut tools = vec![("firn", firn.program)];
    tools.extend(system::on_path("promtool").map(|program| ("promtool", program)));
    let mut created = Vec::new();
    for (name, program) in tools {
        let tool = create::Tool { name, program };
        say(&format!("make blocks: {}", tool.name));
        created.push(create::run(&tool, &text, dir).map_err(|e| format!("{}: {e}", tool.name))?);
    }
    let lines: String = created.iter().map(create::Created::line).collect();
    print(&(create::head(text_bytes) + &lines))?;
    let figures = json!({
        "tools": created.iter().map(|c| c.to_json()).collect::<Vec<_>>(),
    });
    write_json(arguments, firn_mirror::push::now_ms(), &figures)
}

fn record(dir: &Path) -> Result<(), String> {
    say(&format!("record for {RECORD_FOR:?}"));
    let summary = record::record(dir, RECORD_FOR)?;
    print(&format!("{:#}\n", summary.to_json()))
}

fn measure_replay(arguments: &Arguments, dir: &Path, recording: &Path) -> Result<(), String> {
    let (found, mut missing) = find_systems(arguments);
    let loads = record::loads(recording, |flags| make_load(dir, "generator", flags))?;
    let measured = measure(&found, dir, &mut missing, &mut |system, dir| {
        Ok((system.clone(), record::replay(system, dir, &loads)?))
    });
    let mut table = "| | load | CPU ns a sample | samples a request | body bytes a sample |\n\
                     |---|---|---:|---:|---:|\n"
        .to_owned();
    for (system, costs) in &measured {
        for ((name, _), cost) in loads.iter().zip(costs) {
            table += &format!(
                "| {} | {name} | {:.0} | {:.0} | {:.1} |\n",
                system.kind.name(),
                cost.cpu_ns,
                cost.samples_per_request,
                cost.body_bytes
            );
        }
    }
    print(&table)?;
    firn_was_measured(arguments, &missing)
}

/// Returns the installed systems that are to be measured, and the reasons why others cannot be.
fn find_systems(arguments: &Arguments) -> (Vec<System>, Vec<(Kind, String)>) {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for kind in ALL {
        if !arguments.wants(kind) {
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
    (found, missing)
}

/// Runs a benchmark on one system after the other. Systems that fail are added to `missing`.
fn measure<T>(
    found: &[System],
    dir: &Path,
    missing: &mut Vec<(Kind, String)>,
    run: &mut dyn FnMut(&System, &Path) -> Result<T, String>,
) -> Vec<T> {
    let mut measured = Vec::new();
    for system in found {
        let name = system.kind.name();
        // Otherwise the data of the previous system could be written to disk during this one's
        // syncs.
        rustix::fs::sync();
        say(&format!("measure {name} {}", system.version));
        match run(system, &dir.join(system.kind.program_name())) {
            Ok(m) => measured.push(m),
            Err(e) => missing.push((system.kind, e)),
        }
    }
    measured
}

fn firn_was_measured(arguments: &Arguments, missing: &[(Kind, String)]) -> Result<(), String> {
    match missing.iter().find(|(kind, _)| *kind == Kind::Firn) {
        Some((_, why)) if arguments.wants(Kind::Firn) => {
            Err(format!("Firn could not be measured: {why}"))
        }
        _ => Ok(()),
    }
}

fn write_json(arguments: &Arguments, end_ms: i64, figures: &Value) -> Result<(), String> {
    let path = arguments.json.clone().unwrap_or_else(|| {
        let name = format!("firn-bench-{end_ms}.json");
        std::env::temp_dir().join(name)
    });
    std::fs::write(&path, format!("{figures:#}\n"))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    say(&format!("all figures: {}", path.display()));
    Ok(())
}

fn plan(size: &Size, dir: &Path) -> Result<Plan, String> {
    let make = |name: &str, series: usize, samples: u64| -> Result<Load, String> {
        let flags = format!("--series {series} --samples {samples} --interval 15s --senders 4");
        make_load(dir, name, &flags)
    };
    Ok(Plan {
        fleet: make("fleet", size.fleet_series, size.fleet_samples)?,
        creation: make("creation", size.new_series, size.new_series_samples)?,
        crash: make("crash", 10_000, 5)?,
        settle: size.settle,
        dashboard_ms: size.dashboard_ms,
        turns: size.turns,
    })
}

/// Generates the load of `firn load` with these flags in a directory below `dir`.
pub fn make_load(dir: &Path, name: &str, flags: &str) -> Result<Load, String> {
    let args = flags.split_whitespace().map(OsString::from);
    let options = options::Options::parse(args).map_err(|e| e.to_string())?;
    let dir = dir.join("load").join(name);
    let summary = load::prepare(&options, &dir).map_err(|e| e.to_string())?;
    Ok(Load { dir, summary })
}

fn print(text: &str) -> Result<(), String> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| format!("write the table: {e}"))
}

fn say(text: &str) {
    // Progress is optional, so that errors are ignored.
    let _ = writeln!(io::stderr(), "{text}");
}
