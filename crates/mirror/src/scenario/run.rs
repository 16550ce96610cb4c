//! A run of a scenario, phase by phase.

use super::checks::{self, Check};
use super::plan::{Action, Plan, SystemPlan};
use super::process::{Process, get, wait_for};
use crate::compare;
use crate::error::MirrorError;
use crate::fleet::Fleet;
use crate::load;
use crate::push::now_ms;
use firn_model::sample::is_stale;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a system may take to be ready: it may replay a log after a kill.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// How long the mirror may take to empty its queues after the load.
const DRAIN_WITHIN: Duration = Duration::from_secs(600);

/// Data time before the load, in which both systems have the same: nothing. Questions may read it.
const HISTORY_MS: i64 = 1_200_000;

/// Steps of range questions: enough to see a gap, few enough for short intervals.
const STEPS: i64 = 1_000;

/// How long a look at a metric or a path may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// What is known once the load is done: what a run goes on with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loaded {
    /// The time of the first samples.
    pub start_ms: i64,
    /// The time of the last ones.
    pub end_ms: i64,
    /// Acknowledged samples.
    pub samples: u64,
    /// Those of them that queries see: all but staleness markers.
    pub visible: u64,
    /// Requests that were not acknowledged.
    pub failed: u64,
    /// The longest push, in milliseconds.
    pub push_max_ms: f64,
}

/// Something at a time of the load.
#[derive(Clone, Debug)]
enum Event {
    Kill,
    Start,
    Pause,
    Continue,
    Restart,
    Upgrade(Vec<String>),
}

/// A run.
pub struct Run {
    plan: Plan,
    dir: PathBuf,
    firn: PathBuf,
    agent: ureq::Agent,
    /// Baseline and candidate; none while one is down.
    systems: [Option<Process>; 2],
    /// The commands of both, which an upgrade changes.
    commands: [Vec<String>; 2],
}

impl Run {
    /// Opens the folder of a run. A new one gets the scenario and the files that it names; what a
    /// run left that did not end its load goes.
    pub fn open(plan: Plan, dir: &Path, firn: &Path) -> Result<Self, MirrorError> {
        fs::create_dir_all(dir).map_err(MirrorError::file("create", dir))?;
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(LOOK_TIMEOUT))
            .http_status_as_error(false)
            .build();
        let run = Self {
            commands: [
                plan.baseline.command.clone(),
                plan.candidate.command.clone(),
            ],
            plan,
            dir: dir.to_owned(),
            firn: firn.to_owned(),
            agent: config.into(),
            systems: [None, None],
        };
        if run.loaded()?.is_none() {
            run.clear()?;
            run.keep_files()?;
        }
        Ok(run)
    }

    fn clear(&self) -> Result<(), MirrorError> {
        for name in ["baseline", "candidate", "mirror", "report"] {
            let path = self.dir.join(name);
            if path.exists() {
                fs::remove_dir_all(&path).map_err(MirrorError::file("remove", &path))?;
            }
        }
        for name in [
            "baseline.log",
            "candidate.log",
            "mirror.log",
            "load.log",
            "events.log",
        ] {
            let path = self.dir.join(name);
            if path.exists() {
                fs::remove_file(&path).map_err(MirrorError::file("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Copies the scenario and its questions, so that the folder can be run again elsewhere.
    fn keep_files(&self) -> Result<(), MirrorError> {
        let beside = self.plan.file.parent().unwrap_or(Path::new(""));
        let questions = self.plan.compare.queries.iter();
        let pairs = questions.map(|path| (beside.join(path), self.dir.join(path)));
        let own = (self.plan.file.clone(), self.dir.join("scenario.yml"));
        for (from, to) in pairs.chain([own]) {
            let same = |path: &Path| fs::canonicalize(path).ok();
            if to.exists() && same(&from) == same(&to) {
                continue;
            }
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(MirrorError::file("create", folder))?;
            }
            let named = |e: MirrorError| MirrorError::Usage(e.to_string());
            let copied = fs::copy(&from, &to).map_err(MirrorError::file("copy", &from));
            copied.map_err(named)?;
        }
        Ok(())
    }

    /// Does what is left of the run. Says whether all checks hold.
    pub fn finish(mut self, out: &mut dyn Write) -> Result<bool, MirrorError> {
        let loaded = match self.loaded()? {
            Some(loaded) => {
                self.tell(out, "the load is done; going on with the comparison")?;
                self.start_systems(out)?;
                loaded
            }
            None => {
                self.start_systems(out)?;
                let loaded = self.load(out)?;
                self.keep_loaded(&loaded)?;
                loaded
            }
        };
        self.tell(out, "comparing")?;
        let report = self.compare(&loaded, out)?;
        let checks = checks::all(&self.plan, &loaded, &report)?;
        for number in [0, 1] {
            if let Some(mut process) = self.systems[number].take() {
                process.stop()?;
            }
        }
        self.result(&checks, out)
    }

    fn result(&self, checks: &[Check], out: &mut dyn Write) -> Result<bool, MirrorError> {
        let passed = checks.iter().all(|check| check.holds);
        for check in checks {
            let sign = if check.holds { "holds" } else { "FAILS" };
            self.tell(out, &format!("{} {sign}: {}", check.name, check.what))?;
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

    /// Writes a line to the terminal and to the log of events.
    fn tell(&self, out: &mut dyn Write, text: &str) -> Result<(), MirrorError> {
        let path = self.dir.join("events.log");
        let line = format!("{} {text}\n", crate::api::seconds(now_ms()));
        super::write(out, &line)?;
        let log = fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = log.and_then(|mut log| log.write_all(line.as_bytes()));
        written.map_err(MirrorError::file("write", &path))
    }

    fn plan_of(&self, number: usize) -> &SystemPlan {
        [&self.plan.baseline, &self.plan.candidate][number]
    }

    fn start(&mut self, number: usize) -> Result<(), MirrorError> {
        let name = self.plan_of(number).name;
        let log = self.dir.join(format!("{name}.log"));
        self.systems[number] = Some(Process::start(name, &self.commands[number], &log)?);
        Ok(())
    }

    fn start_systems(&mut self, out: &mut dyn Write) -> Result<(), MirrorError> {
        for number in [0, 1] {
            self.start(number)?;
        }
        self.wait_ready()?;
        self.tell(out, "both systems are ready")
    }

    fn wait_ready(&mut self) -> Result<(), MirrorError> {
        for number in [0, 1] {
            let plan = self.plan_of(number);
            let (name, url) = (plan.name, format!("http://{}{}", plan.address, plan.ready));
            let agent = self.agent.clone();
            let process = &mut self.systems[number];
            let mut ended = None;
            wait_for(
                &format!("{name} to be ready at {url}"),
                READY_WITHIN,
                || {
                    ended = process.as_mut().and_then(Process::ended);
                    ended.is_some() || get(&agent, &url).is_some()
                },
            )?;
            if let Some(status) = ended {
                let log = self.dir.join(format!("{name}.log"));
                let what = format!("{name} ended with {status}; see {}", log.display());
                return Err(MirrorError::Late(what));
            }
        }
        Ok(())
    }

    /// Sends the load through the mirror while the steps happen.
    fn load(&mut self, out: &mut dyn Write) -> Result<Loaded, MirrorError> {
        let _mirror = self.start_mirror()?;
        let step_ms = self.plan.load.interval.as_millis() as i64;
        // On a whole second, so that steps of questions and samples meet.
        let start_ms = (now_ms() / 1000 + 2) * 1000;
        let log = self.dir.join("load.log");
        let lead_ms = u64::try_from(start_ms - now_ms()).unwrap_or(0);
        let began = Instant::now() + Duration::from_millis(lead_ms);
        let command = self.load_command(start_ms);
        let mut load = Process::start("load", &command, &log)?;
        self.tell(out, "the load begins")?;
        for (at, number, event) in self.timeline() {
            std::thread::sleep((began + at).saturating_duration_since(Instant::now()));
            let name = self.plan_of(number).name;
            self.tell(out, &format!("{name}: {event:?}"))?;
            self.happen(number, event)?;
        }
        load.wait()?;
        self.wait_ready()?;
        self.tell(
            out,
            "the load is sent; waiting until the mirror has passed it on",
        )?;
        self.wait_drained()?;
        let text = fs::read_to_string(&log).map_err(MirrorError::file("read", &log))?;
        let json = text
            .find('{')
            .zip(text.rfind('}'))
            .map(|(from, to)| &text[from..=to]);
        let report: Value = json
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default();
        let samples = report["samples"].as_u64();
        let samples = samples
            .ok_or_else(|| MirrorError::Late(format!("the load failed; see {}", log.display())))?;
        let rounds = self.plan.load.duration.as_millis() as i64 / step_ms.max(1);
        // The samples of a round are spread over an interval.
        let end_ms = start_ms + rounds * step_ms;
        wait_for("the end of the load's data", READY_WITHIN, || {
            now_ms() > end_ms
        })?;
        Ok(Loaded {
            start_ms,
            end_ms,
            samples,
            visible: visible_count(&command[2..])?,
            failed: report["failed"].as_u64().unwrap_or(0),
            push_max_ms: report["push_ms"]["max"].as_f64().unwrap_or(f64::INFINITY),
        })
    }

    fn start_mirror(&self) -> Result<Process, MirrorError> {
        let address = &self.plan.mirror;
        let mut command = vec![self.firn.display().to_string(), "mirror".to_owned()];
        command.extend(["--listen".to_owned(), address.clone(), "--data".to_owned()]);
        command.push(self.dir.join("mirror").display().to_string());
        for number in [0, 1] {
            let plan = self.plan_of(number);
            command.push("--target".to_owned());
            command.push(format!("http://{}{}", plan.address, plan.write));
        }
        let mirror = Process::start("mirror", &command, &self.dir.join("mirror.log"))?;
        let url = format!("http://{address}/-/ready");
        let agent = &self.agent;
        wait_for(
            &format!("the mirror to be ready at {url}"),
            READY_WITHIN,
            || get(agent, &url).is_some(),
        )?;
        Ok(mirror)
    }

    fn load_command(&self, start_ms: i64) -> Vec<String> {
        let load = &self.plan.load;
        let span = |span: Duration| format!("{}ms", span.as_millis());
        let mut command = vec![self.firn.display().to_string(), "load".to_owned()];
        let url = format!("http://{}/api/v1/write", self.plan.mirror);
        for (flag, value) in [
            ("--url", url),
            ("--series", load.series.to_string()),
            ("--interval", span(load.interval)),
            ("--duration", span(load.duration)),
            ("--churn", load.churn.clone()),
            ("--churn-period", load.churn_period.clone()),
            ("--seed", load.seed.to_string()),
            ("--start", start_ms.to_string()),
        ] {
            command.extend([flag.to_owned(), value]);
        }
        command.push("--live".to_owned());
        command
    }

    /// What happens when and to which system.
    fn timeline(&self) -> Vec<(Duration, usize, Event)> {
        let mut events = Vec::new();
        for step in &self.plan.steps {
            let number = usize::from(step.system == self.plan.candidate.name);
            let mut then = |after: Duration, event| events.push((step.at + after, number, event));
            match &step.action {
                Action::Kill(down) => {
                    then(Duration::ZERO, Event::Kill);
                    then(*down, Event::Start);
                }
                Action::Pause(span) => {
                    then(Duration::ZERO, Event::Pause);
                    then(*span, Event::Continue);
                }
                Action::Restart => then(Duration::ZERO, Event::Restart),
                Action::Upgrade(command) => then(Duration::ZERO, Event::Upgrade(command.clone())),
            }
        }
        events.sort_by_key(|(at, ..)| *at);
        events
    }

    fn happen(&mut self, number: usize, event: Event) -> Result<(), MirrorError> {
        if let Event::Upgrade(command) = &event {
            self.commands[number].clone_from(command);
        }
        match (event, &mut self.systems[number]) {
            (Event::Start, None) => return self.start(number),
            (Event::Kill, system @ Some(_)) => {
                if let Some(mut process) = system.take() {
                    process.kill()?;
                }
            }
            (Event::Pause, Some(process)) => process.signal(Signal::STOP)?,
            (Event::Continue, Some(process)) => process.signal(Signal::CONT)?,
            (Event::Restart | Event::Upgrade(_), system) => {
                if let Some(mut process) = system.take() {
                    process.stop()?;
                }
                return self.start(number);
            }
            // A system that is down cannot be killed, and one that is up needs no start.
            _ => {}
        }
        Ok(())
    }

    /// Waits until nothing waits in the mirror for either system.
    fn wait_drained(&self) -> Result<(), MirrorError> {
        let url = format!("http://{}/metrics", self.plan.mirror);
        wait_for("the mirror to pass on what waits", DRAIN_WITHIN, || {
            let text = get(&self.agent, &url).unwrap_or_default();
            let queues = text
                .lines()
                .filter(|l| l.starts_with("firn_mirror_queue_bytes{"));
            let mut values = queues.map(|line| line.rsplit(' ').next().unwrap_or_default());
            let first = values.next();
            first.is_some_and(|first| first == "0") && values.all(|value| value == "0")
        })
    }

    /// Compares both systems over the load; returns the report.
    fn compare(&self, loaded: &Loaded, out: &mut dyn Write) -> Result<Value, MirrorError> {
        let url = |number: usize| format!("http://{}", self.plan_of(number).address);
        let interval_ms = self.plan.load.interval.as_millis() as i64;
        let length_ms = loaded.end_ms - loaded.start_ms + HISTORY_MS;
        let step_ms = interval_ms.max(length_ms / STEPS).max(1_000);
        let report = self.dir.join("report");
        let compare = &self.plan.compare;
        let mut args: Vec<OsString> = Vec::new();
        for (flag, value) in [
            ("--baseline", url(0)),
            ("--candidate", url(1)),
            ("--start", crate::api::seconds(loaded.start_ms - HISTORY_MS)),
            ("--end", crate::api::seconds(loaded.end_ms)),
            ("--step", format!("{step_ms}ms")),
            ("--generate", compare.generate.to_string()),
            ("--tolerance-relative", compare.tolerance_relative.clone()),
            ("--fail-below", self.plan.checks.match_rate.to_string()),
            ("--report", report.display().to_string()),
        ] {
            args.extend([flag.into(), value.into()]);
        }
        for file in &compare.queries {
            args.extend(["--queries".into(), self.dir.join(file).into()]);
        }
        compare::run(args, out)?;
        let path = report.join("report.json");
        let text = fs::read(&path).map_err(MirrorError::file("read", &path))?;
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }

    fn state_path(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// What an earlier run left, if its load was done.
    fn loaded(&self) -> Result<Option<Loaded>, MirrorError> {
        let path = self.state_path();
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read(&path).map_err(MirrorError::file("read", &path))?;
        let state: Value = serde_json::from_slice(&text).unwrap_or_default();
        let read = || {
            Some(Loaded {
                start_ms: state["start_ms"].as_i64()?,
                end_ms: state["end_ms"].as_i64()?,
                samples: state["samples"].as_u64()?,
                visible: state["visible"].as_u64()?,
                failed: state["failed"].as_u64()?,
                push_max_ms: state["push_max_ms"].as_f64()?,
            })
        };
        let wrong = || MirrorError::Usage(format!("{}: not the state of a run", path.display()));
        read().map(Some).ok_or_else(wrong)
    }

    fn keep_loaded(&self, loaded: &Loaded) -> Result<(), MirrorError> {
        let state = json!({
            "start_ms": loaded.start_ms,
            "end_ms": loaded.end_ms,
            "samples": loaded.samples,
            "visible": loaded.visible,
            "failed": loaded.failed,
            "push_max_ms": loaded.push_max_ms,
        });
        let path = self.state_path();
        let new = path.with_extension("new");
        fs::write(&new, state.to_string()).map_err(MirrorError::file("write", &new))?;
        fs::rename(&new, &path).map_err(MirrorError::file("replace", &path))
    }
}

/// Samples of a load that are no staleness markers, by the arguments of `firn load`.
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
