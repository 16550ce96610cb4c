//! Executes a scenario phase by phase: load, comparison, checks, result.
//!
//! An interrupted run continues with the phase that it was in. An interrupted load is sent again
//! from its beginning with the original timestamps. Because systems store a sample only once, there
//! are neither duplicates nor gaps. Steps that have already been executed are not repeated.

mod commands;

use super::alerts;
use super::checks::{self, ScenarioCheckResult};
use super::plan::{FIRST, ScenarioPlan, SystemPlan};
use super::process::{ChildProcess, StopFlag, end_leftovers};
use super::running::{ScenarioEvent, ScenarioProcesses, timeline};
use super::state::{ScenarioLoadResults, ScenarioPhase, ScenarioReadResults, ScenarioState};
use crate::error::MirrorError;
use crate::fleet::Fleet;
use crate::push::now_ms;
use crate::{compare, load};
use firn_model::sample::is_stale;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Length of the time before the load in milliseconds, for which neither system has data. Queries
/// may read it.
const HISTORY_MS: i64 = 1_200_000;

/// Number of steps of range queries: enough to show gaps, few enough for short intervals.
const STEPS: i64 = 1_000;

/// Maximum time to wait for the clock to reach the end of the load.
const END_WITHIN: Duration = Duration::from_secs(120);

/// Maximum delay in milliseconds between scrape and sending of a sample: the request deadline plus
/// a margin.
const SENT_WITHIN_MS: i64 = 7_000;

/// A run of a scenario, new or continued, in its directory. [`ScenarioRun::finish`] executes the
/// rest of it.
pub struct ScenarioRun {
    plan: ScenarioPlan,
    dir: PathBuf,
    firn: PathBuf,
    state: ScenarioState,
    stop: StopFlag,
}

impl ScenarioRun {
    /// Opens the directory of a run and ends processes that a killed run left behind. Into a new
    /// run, the scenario and the files that it names are copied.
    pub fn open(
        plan: ScenarioPlan,
        dir: &Path,
        firn: &Path,
        stop: StopFlag,
    ) -> Result<Self, MirrorError> {
        fs::create_dir_all(dir).map_err(MirrorError::file("create", dir))?;
        end_leftovers(dir)?;
        let run = Self {
            state: ScenarioState::read(dir)?,
            plan,
            dir: dir.to_owned(),
            firn: firn.to_owned(),
            stop,
        };
        if run.state.start_ms.is_none() {
            ScenarioProcesses::check_fillable(&run.plan)?;
            run.clear()?;
            run.keep_files()?;
            run.check_flags()?;
        }
        Ok(run)
    }

    /// Removes the files of an earlier run that did not begin its load, including the data of its
    /// systems.
    fn clear(&self) -> Result<(), MirrorError> {
        let own = ["mirror", "report"].map(|name| self.dir.join(name));
        let data = self.plan.systems().map(|system| system.data.clone());
        for path in own.into_iter().chain(data).filter(|path| path.exists()) {
            // The directory itself may be a mount point and is therefore kept.
            let listed = fs::read_dir(&path).map_err(MirrorError::file("read", &path))?;
            for inner in listed.flatten().map(|entry| entry.path()) {
                let removed = if inner.is_dir() {
                    fs::remove_dir_all(&inner)
                } else {
                    fs::remove_file(&inner)
                };
                removed.map_err(MirrorError::file("remove", &inner))?;
            }
        }
        let listed = fs::read_dir(&self.dir).map_err(MirrorError::file("read", &self.dir))?;
        for path in listed.flatten().map(|entry| entry.path()) {
            let is_left = |ending: &OsStr| ending == "log" || ending == "jsonl";
            if path.extension().is_some_and(is_left) {
                fs::remove_file(&path).map_err(MirrorError::file("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Copies the scenario and its query files, so that the directory can be run again elsewhere.
    fn keep_files(&self) -> Result<(), MirrorError> {
        let beside = self.plan.file.parent().unwrap_or(Path::new(""));
        let pairs = self.plan.files();
        let pairs = pairs.map(|path| (beside.join(path), self.dir.join(path)));
        let own = (self.plan.file.clone(), self.dir.join("scenario.yml"));
        for (from, to) in pairs.chain([own]) {
            copy(&from, &to)?;
        }
        Ok(())
    }

    /// Rejects invalid flags of the load and the comparison at the start instead of after the load.
    fn check_flags(&self) -> Result<(), MirrorError> {
        let named = |e: MirrorError| MirrorError::Usage(e.to_string());
        let arguments = |command: Vec<String>| command.into_iter().skip(2).map(OsString::from);
        let load = arguments(self.load_command(0));
        load::options::Options::parse(load).map_err(named)?;
        let none = ScenarioLoadResults {
            start_ms: 0,
            end_ms: 0,
            samples: 0,
            visible: 0,
            failed: 0,
            push_max_ms: 0.0,
            reads: None,
        };
        let report = self.report_dir(&self.plan.candidate);
        let compare = self.compare_command(&self.plan.candidate, 0, &none, &report);
        compare::options::Options::parse(arguments(compare)).map_err(named)?;
        Ok(())
    }

    /// Executes the remaining phases of the run. Returns whether all checks pass, and writes
    /// progress to `out`.
    pub fn finish(mut self, out: &mut dyn Write) -> Result<bool, MirrorError> {
        match (self.state.phase, self.state.start_ms) {
            (ScenarioPhase::Load, None) => {}
            (ScenarioPhase::Load, Some(_)) => {
                self.log_event(out, "the load was interrupted; sending it again")?
            }
            (ScenarioPhase::Compare, _) => {
                self.log_event(out, "the load is complete; continuing with the comparison")?;
            }
            (ScenarioPhase::Check, _) => self.log_event(
                out,
                "the comparison is complete; continuing with the checks",
            )?,
            (ScenarioPhase::Done, _) => {
                self.log_event(out, "the run is complete; repeating its checks")?;
                self.state.phase = ScenarioPhase::Check;
            }
        }
        for system in self.plan.receivers() {
            if let Some(address) = &system.alerts {
                alerts::listen(address, &self.alerts_path(system))?;
            }
        }
        let happened = self.state.events;
        let stop = self.stop.clone();
        let mut running =
            ScenarioProcesses::from_past_events(&self.plan, happened, &self.dir, &self.firn, stop);
        running.start_systems()?;
        self.log_event(out, "the systems are ready")?;
        if self.state.phase == ScenarioPhase::Load {
            let loaded = self.load(&mut running, out)?;
            self.state.loaded = Some(loaded);
            self.save_phase(ScenarioPhase::Compare)?;
        }
        let loaded = self.state.loaded;
        let loaded =
            loaded.ok_or_else(|| MirrorError::Usage("the state contains no load".to_owned()))?;
        if self.state.phase == ScenarioPhase::Compare {
            self.log_event(out, "comparing")?;
            for system in running.systems() {
                self.compare(system, &loaded, out)?;
            }
            self.save_phase(ScenarioPhase::Check)?;
        }
        let checks = self.checks(&running, &loaded)?;
        running.stop_systems()?;
        let passed = self.result(&checks, out)?;
        self.save_phase(ScenarioPhase::Done)?;
        Ok(passed)
    }

    fn save_phase(&mut self, phase: ScenarioPhase) -> Result<(), MirrorError> {
        self.state.phase = phase;
        self.state.store_in(&self.dir)
    }

    fn result(
        &self,
        checks: &[ScenarioCheckResult],
        out: &mut dyn Write,
    ) -> Result<bool, MirrorError> {
        let passed = checks.iter().all(|check| check.holds);
        for check in checks {
            let sign = if check.holds { "holds" } else { "FAILS" };
            self.log_event(out, &format!("{} {sign}: {}", check.name, check.what))?;
        }
        let list: Vec<Value> = checks
            .iter()
            .map(|c| json!({"check": c.name, "holds": c.holds, "what": c.what}))
            .collect();
        let result = json!({"passed": passed, "checks": list});
        let path = self.dir.join("result.json");
        fs::write(&path, format!("{result:#}\n")).map_err(MirrorError::file("write", &path))?;
        Ok(passed)
    }

    /// Writes a line with a timestamp to `out` and to the event log of the run.
    fn log_event(&self, out: &mut dyn Write, text: &str) -> Result<(), MirrorError> {
        let path = self.dir.join("events.log");
        let line = format!("{} {text}\n", crate::api::seconds(now_ms()));
        super::write(out, &line)?;
        let log = fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = log.and_then(|mut log| log.write_all(line.as_bytes()));
        written.map_err(MirrorError::file("write", &path))
    }

    /// Sends the load through the mirror and executes the remaining steps at their times.
    fn load(
        &mut self,
        running: &mut ScenarioProcesses,
        out: &mut dyn Write,
    ) -> Result<ScenarioLoadResults, MirrorError> {
        running.start_mirror()?;
        // The load starts at a whole second, so that the steps of queries coincide with samples.
        let start_ms = self.state.start_ms.unwrap_or((now_ms() / 1000 + 2) * 1000);
        self.state.start_ms = Some(start_ms);
        self.state.store_in(&self.dir)?;
        let log = self.dir.join("load.log");
        if log.exists() {
            fs::remove_file(&log).map_err(MirrorError::file("remove", &log))?;
        }
        let command = self.load_command(start_ms);
        let mut load = ChildProcess::start("load", &command, &self.dir)?;
        self.log_event(out, "start of the load")?;
        for (at, name, event) in timeline(&self.plan).into_iter().skip(self.state.events) {
            let due_ms = start_ms.saturating_add(at.as_millis() as i64);
            let wait = Duration::from_millis((due_ms - now_ms()).max(0).unsigned_abs());
            self.stop.sleep_until(Instant::now() + wait)?;
            self.log_event(out, &format!("{name}: {event:?}"))?;
            let is_joining = event == ScenarioEvent::Add;
            running.apply_event(&self.plan, &name, event)?;
            if is_joining {
                self.state.joined_ms.insert(name, now_ms());
            }
            self.state.events += 1;
            self.state.store_in(&self.dir)?;
        }
        load.wait(&self.stop)?;
        running.wait_ready()?;
        self.log_event(
            out,
            "the load is sent; waiting until the mirror has delivered it",
        )?;
        running.wait_drained()?;
        running.stop_mirror()?;
        self.loaded(start_ms, &log, &command[2..])
    }

    /// Derives the result of the load from the report in its log.
    fn loaded(
        &self,
        start_ms: i64,
        log: &Path,
        arguments: &[String],
    ) -> Result<ScenarioLoadResults, MirrorError> {
        let text = fs::read_to_string(log).map_err(MirrorError::file("read", log))?;
        // The log may contain other output with braces after the report.
        let json = text.find('{').map_or("", |from| &text[from..]);
        let mut documents = serde_json::Deserializer::from_str(json).into_iter::<Value>();
        let report = documents.next().and_then(Result::ok).unwrap_or_default();
        let samples = report["samples"].as_u64();
        let samples = samples
            .ok_or_else(|| MirrorError::Late(format!("the load failed; see {}", log.display())))?;
        let step_ms = self.plan.load.interval.as_millis() as i64;
        let rounds = self.plan.load.duration.as_millis() as i64 / step_ms.max(1);
        // The samples of a round are distributed over an interval.
        let end_ms = start_ms + rounds * step_ms;
        let ended = || now_ms() > end_ms;
        self.stop
            .wait_for("end of the load's data", END_WITHIN, ended)?;
        Ok(ScenarioLoadResults {
            start_ms,
            end_ms,
            samples,
            visible: visible_count(arguments)?,
            failed: report["failed"].as_u64().unwrap_or(0),
            push_max_ms: report["push_ms"]["max"].as_f64().unwrap_or(f64::INFINITY),
            reads: self.plan.load.reads.as_ref().map(|_| ScenarioReadResults {
                due: report["reads"]["due"].as_u64().unwrap_or(0),
                failed: report["reads"]["failed"].as_u64().unwrap_or(0),
                average_ms: report["reads"]["average_ms"].as_f64().unwrap_or(0.0),
                fairness: report["reads"]["fairness"].as_f64(),
            }),
        })
    }

    /// Returns the time from which a system has the data of the baseline. Before the load, none has
    /// any.
    fn complete_from_ms(&self, system: &SystemPlan, loaded: &ScenarioLoadResults) -> i64 {
        let interval_ms = self.plan.load.interval.as_millis() as i64;
        match self.state.joined_ms.get(&system.name) {
            None => loaded.start_ms - HISTORY_MS,
            Some(joined_ms) => joined_ms + interval_ms + SENT_WITHIN_MS,
        }
    }

    /// Returns the directory of the report about a system.
    fn report_dir(&self, system: &SystemPlan) -> PathBuf {
        if FIRST.contains(&system.name.as_str()) {
            self.dir.join("report")
        } else {
            self.dir.join(format!("report-{}", system.name))
        }
    }

    /// Compares a system with the baseline over the time of the load.
    fn compare(
        &self,
        system: &SystemPlan,
        loaded: &ScenarioLoadResults,
        out: &mut dyn Write,
    ) -> Result<(), MirrorError> {
        let from_ms = self.complete_from_ms(system, loaded);
        if system.name == self.plan.baseline.name || from_ms >= loaded.end_ms {
            return Ok(());
        }
        let report = self.report_dir(system);
        let command = self.compare_command(system, from_ms, loaded, &report);
        let name = format!("compare-{}", system.name);
        let log = self.dir.join(format!("{name}.log"));
        let mut comparing = ChildProcess::start(&name, &command, &self.dir)?;
        comparing.wait(&self.stop)?;
        let text = fs::read(&log).map_err(MirrorError::file("read", &log))?;
        super::write(out, &String::from_utf8_lossy(&text))?;
        if report.join("report.json").is_file() {
            Ok(())
        } else {
            Err(MirrorError::Late(format!(
                "the comparison failed; see {}",
                log.display()
            )))
        }
    }

    fn checks(
        &self,
        running: &ScenarioProcesses,
        loaded: &ScenarioLoadResults,
    ) -> Result<Vec<ScenarioCheckResult>, MirrorError> {
        let mut all = vec![checks::push_max(&self.plan, loaded)];
        all.extend(checks::reads(&self.plan, loaded));
        for system in running.systems() {
            if system.name != self.plan.baseline.name {
                let path = self.report_dir(system).join("report.json");
                let text = fs::read(&path).unwrap_or_default();
                let report: Value = serde_json::from_slice(&text).unwrap_or_default();
                all.push(checks::match_rate(&self.plan, system, &report));
            }
        }
        if self.plan.checks.acked {
            for system in running.systems() {
                let from_ms = self.complete_from_ms(system, loaded);
                all.push(if FIRST.contains(&system.name.as_str()) {
                    checks::acked(system, loaded)?
                } else {
                    checks::acked_since(&self.plan.baseline, system, from_ms, loaded)?
                });
            }
        }
        if self.plan.checks.alerts {
            let sent = |system| alerts::history(&self.alerts_path(system), loaded.end_ms);
            let wanted = sent(&self.plan.baseline)?;
            let names = running.systems().map(|system| system.name.as_str());
            let names: Vec<&str> = names.collect();
            let others = self
                .plan
                .receivers()
                .filter(|s| names.contains(&s.name.as_str()));
            for system in others.filter(|s| s.name != self.plan.baseline.name) {
                all.push(checks::alerts(system, &wanted, &sent(system)?));
            }
        }
        Ok(all)
    }

    /// Returns the file with the alerts of a system.
    fn alerts_path(&self, system: &SystemPlan) -> PathBuf {
        self.dir.join(format!("{}-alerts.jsonl", system.name))
    }
}

/// Copies a file, or a directory recursively. Does nothing if source and target are the same.
fn copy(from: &Path, to: &Path) -> Result<(), MirrorError> {
    let named = |e: MirrorError| MirrorError::Usage(e.to_string());
    let same = |path: &Path| fs::canonicalize(path).ok();
    if to.exists() && same(from) == same(to) {
        return Ok(());
    }
    if from.is_dir() {
        let listed = fs::read_dir(from).map_err(MirrorError::file("read", from));
        for entry in listed.map_err(named)?.flatten() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(MirrorError::file("create", folder))?;
    }
    let copied = fs::copy(from, to).map_err(MirrorError::file("copy", from));
    copied.map(|_| ()).map_err(named)
}

/// Returns the number of samples of a load that are not staleness markers. `arguments` are those of
/// `firn load`.
fn visible_count(arguments: &[String]) -> Result<u64, MirrorError> {
    let options = load::options::Options::parse(arguments.iter().map(OsString::from))?;
    let mut fleet = Fleet::new(options.fleet);
    let mut visible = 0;
    for _ in 0..options.rounds {
        fleet.scrape_round(&mut |sample| {
            visible += u64::from(!is_stale(sample.value));
            Ok::<(), MirrorError>(())
        })?;
    }
    Ok(visible)
}
