//! The processes of a run: the systems, the mirror in front of them, and the disturbances of
//! systems.
//!
//! ```text
//! steps -> events ordered by time -> signals, starts, stops, new configurations of the mirror
//! ```
//!
//! Invariant: the mirror sends to all members of the run, whether they are up or not, and to no
//! other system. The members are determined by the plan and the number of events that have
//! happened.

use super::filler::{self, DiskFiller};
use super::plan::{FIRST, ScenarioAction, ScenarioPlan, SystemPlan};
use super::process::{ChildProcess, StopFlag, get};
use crate::error::MirrorError;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time that a system may take to become ready, for example while it replays its WAL after a kill.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Time that the mirror may take to deliver its queues after the load.
const DRAIN_WITHIN: Duration = Duration::from_secs(600);

/// Timeout of a request for metrics or readiness.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// An event during the load. A step consists of one or two events, for example kill and start.
#[derive(Clone, Debug, PartialEq)]
pub enum ScenarioEvent {
    Kill,
    Start,
    Pause,
    Continue,
    Restart,
    Upgrade(Vec<String>),
    Fill,
    Empty,
    Add,
    Remove,
}

/// Returns the events of all steps with their times and systems, ordered by time.
pub fn timeline(plan: &ScenarioPlan) -> Vec<(Duration, String, ScenarioEvent)> {
    let mut events = Vec::new();
    for step in &plan.steps {
        let name = &step.system;
        let mut then = |after: Duration, event| events.push((step.at + after, name.clone(), event));
        match &step.action {
            ScenarioAction::Kill(down) => {
                then(Duration::ZERO, ScenarioEvent::Kill);
                then(*down, ScenarioEvent::Start);
            }
            ScenarioAction::Pause(span) => {
                then(Duration::ZERO, ScenarioEvent::Pause);
                then(*span, ScenarioEvent::Continue);
            }
            ScenarioAction::Fill(span) => {
                then(Duration::ZERO, ScenarioEvent::Fill);
                then(*span, ScenarioEvent::Empty);
            }
            ScenarioAction::Restart => then(Duration::ZERO, ScenarioEvent::Restart),
            ScenarioAction::Upgrade(command) => {
                then(Duration::ZERO, ScenarioEvent::Upgrade(command.clone()))
            }
            ScenarioAction::Add => then(Duration::ZERO, ScenarioEvent::Add),
            ScenarioAction::Remove => then(Duration::ZERO, ScenarioEvent::Remove),
        }
    }
    events.sort_by_key(|(at, ..)| *at);
    events
}

/// A system that is currently part of the run, with its process if it is up.
#[derive(Debug)]
struct RunningSystem {
    plan: SystemPlan,
    /// Command that starts the system; an upgrade replaces it.
    command: Vec<String>,
    /// Whether the system is up or must be started.
    is_wanted: bool,
    process: Option<ChildProcess>,
    filler: Option<DiskFiller>,
}

impl RunningSystem {
    fn new(plan: &SystemPlan) -> Self {
        Self {
            command: plan.command.clone(),
            plan: plan.clone(),
            is_wanted: true,
            process: None,
            filler: None,
        }
    }
}

/// The processes of a run, which are ended when this value is dropped, in whatever state the run
/// is.
#[derive(Debug)]
pub struct ScenarioProcesses {
    dir: PathBuf,
    firn: PathBuf,
    /// Host and port on which the mirror listens.
    address: String,
    agent: ureq::Agent,
    members: BTreeMap<String, RunningSystem>,
    mirror: Option<ChildProcess>,
    stop: StopFlag,
}

impl ScenarioProcesses {
    /// Determines the members after the first `happened` events of `plan`, without starting them.
    pub fn from_past_events(
        plan: &ScenarioPlan,
        happened: usize,
        dir: &Path,
        firn: &Path,
        stop: StopFlag,
    ) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(LOOK_TIMEOUT))
            .http_status_as_error(false)
            .build();
        let first = plan.systems().filter(|s| FIRST.contains(&s.name.as_str()));
        let mut running = Self {
            dir: dir.to_owned(),
            firn: firn.to_owned(),
            address: plan.mirror.clone(),
            agent: config.into(),
            members: first
                .map(|s| (s.name.clone(), RunningSystem::new(s)))
                .collect(),
            mirror: None,
            stop,
        };
        for (_, name, event) in timeline(plan).into_iter().take(happened) {
            running.replay(plan, &name, event);
        }
        running
    }

    /// Applies the lasting effect of an event from before the run was continued, without starting a
    /// process.
    fn replay(&mut self, plan: &ScenarioPlan, name: &str, event: ScenarioEvent) {
        match (event, plan.system(name)) {
            (ScenarioEvent::Add, Some(system)) => {
                self.members
                    .insert(name.to_owned(), RunningSystem::new(system));
            }
            (ScenarioEvent::Remove, _) => {
                self.members.remove(name);
            }
            (event, _) => {
                let Some(member) = self.members.get_mut(name) else {
                    return;
                };
                match event {
                    ScenarioEvent::Kill => member.is_wanted = false,
                    ScenarioEvent::Start => member.is_wanted = true,
                    ScenarioEvent::Upgrade(command) => member.command = command,
                    _ => {}
                }
            }
        }
    }

    /// Returns the systems that are currently part of the run.
    pub fn systems(&self) -> impl Iterator<Item = &SystemPlan> {
        self.members.values().map(|member| &member.plan)
    }

    /// Fails if a step fills a file system that is too large for it. Creates the data directories
    /// of these systems, on which users mount small file systems before the run.
    pub fn check_fillable(plan: &ScenarioPlan) -> Result<(), MirrorError> {
        for step in &plan.steps {
            if let (ScenarioAction::Fill(_), Some(system)) =
                (&step.action, plan.system(&step.system))
            {
                make_folder(&system.data)?;
                filler::check_is_small(&system.data)?;
            }
        }
        Ok(())
    }

    /// Starts all members that should be up and waits until they are ready. Fails if one exits.
    pub fn start_systems(&mut self) -> Result<(), MirrorError> {
        let wanted = self.members.iter().filter(|(_, m)| m.is_wanted);
        let wanted: Vec<String> = wanted.map(|(name, _)| name.clone()).collect();
        for name in &wanted {
            self.start(name)?;
        }
        self.wait_ready()
    }

    fn start(&mut self, name: &str) -> Result<(), MirrorError> {
        let Some(member) = self.members.get_mut(name) else {
            return Ok(());
        };
        member.process = Some(ChildProcess::start(name, &member.command, &self.dir)?);
        member.is_wanted = true;
        Ok(())
    }

    /// Waits until all members that are up are ready. Fails if one exits or takes too long.
    pub fn wait_ready(&mut self) -> Result<(), MirrorError> {
        let names: Vec<String> = self.members.keys().cloned().collect();
        names.iter().try_for_each(|name| self.wait_ready_of(name))
    }

    /// Waits until a member is ready, if it is up. Others may be paused at that time.
    fn wait_ready_of(&mut self, name: &str) -> Result<(), MirrorError> {
        let Some(member) = self.members.get_mut(name) else {
            return Ok(());
        };
        let Some(process) = &mut member.process else {
            return Ok(());
        };
        let url = format!("http://{}{}", member.plan.address, member.plan.ready);
        let mut ended = None;
        self.stop.wait_for(
            &format!("{name} to be ready at {url}"),
            READY_WITHIN,
            || {
                ended = process.ended();
                ended.is_some() || get(&self.agent, &url).is_some()
            },
        )?;
        match ended {
            None => Ok(()),
            Some(status) => {
                let log = self.dir.join(format!("{name}.log"));
                let what = format!("{name} exited with {status}; see {}", log.display());
                Err(MirrorError::Late(what))
            }
        }
    }

    /// Starts the mirror with the current members as targets and waits until it is ready.
    pub fn start_mirror(&mut self) -> Result<(), MirrorError> {
        self.write_targets()?;
        let mut command = vec![self.firn.display().to_string(), "mirror".to_owned()];
        for (flag, value) in [
            ("--listen", self.address.clone()),
            ("--data", self.dir.join("mirror").display().to_string()),
            ("--config", self.targets_path().display().to_string()),
        ] {
            command.extend([flag.to_owned(), value]);
        }
        self.mirror = Some(ChildProcess::start("mirror", &command, &self.dir)?);
        let url = format!("http://{}/-/ready", self.address);
        let what = format!("the mirror to be ready at {url}");
        let looked = || get(&self.agent, &url).is_some();
        self.stop.wait_for(&what, READY_WITHIN, looked)
    }

    /// Stops the mirror with SIGTERM and waits until it exits; does nothing if it is not running.
    pub fn stop_mirror(&mut self) -> Result<(), MirrorError> {
        match self.mirror.take() {
            None => Ok(()),
            Some(mut mirror) => mirror.stop(&self.stop),
        }
    }

    fn targets_path(&self) -> PathBuf {
        self.dir.join("targets.yml")
    }

    fn write_targets(&self) -> Result<(), MirrorError> {
        let mut text = "targets:\n".to_owned();
        for system in self.systems() {
            let SystemPlan {
                name,
                address,
                write,
                ..
            } = system;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- {{name: {name}, url: \"http://{address}{write}\"}}");
        }
        let path = self.targets_path();
        fs::write(&path, text).map_err(MirrorError::file("write", &path))
    }

    /// Returns the queued bytes of each target from the metrics of the mirror; empty if it does not
    /// respond.
    fn queues(&self) -> BTreeMap<String, String> {
        let url = format!("http://{}/metrics", self.address);
        let text = get(&self.agent, &url).unwrap_or_default();
        let lines = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("firn_mirror_queue_bytes{target=\"")?;
            rest.split_once("\"} ")
        });
        lines
            .map(|(name, bytes)| (name.to_owned(), bytes.to_owned()))
            .collect()
    }

    /// Reconfigures the mirror to send to the current members and waits until it does.
    fn reload_mirror(&self) -> Result<(), MirrorError> {
        self.write_targets()?;
        let Some(mirror) = &self.mirror else {
            return Ok(());
        };
        mirror.signal(Signal::HUP)?;
        let wanted: Vec<&String> = self.members.keys().collect();
        let what = "the mirror to apply its targets";
        self.stop.wait_for(what, READY_WITHIN, || {
            self.queues().keys().collect::<Vec<_>>() == wanted
        })
    }

    /// Waits until the queues of all targets are empty, according to the mirror's metrics.
    pub fn wait_drained(&self) -> Result<(), MirrorError> {
        let what = "the mirror to deliver its backlog";
        self.stop.wait_for(what, DRAIN_WITHIN, || {
            let queues = self.queues();
            !queues.is_empty() && queues.values().all(|bytes| bytes == "0")
        })
    }

    /// Applies an event to a system. Killing a system that is down and starting one that is up do
    /// nothing.
    pub fn apply_event(
        &mut self,
        plan: &ScenarioPlan,
        name: &str,
        event: ScenarioEvent,
    ) -> Result<(), MirrorError> {
        match (event, plan.system(name)) {
            (ScenarioEvent::Add, Some(system)) => {
                self.members
                    .insert(name.to_owned(), RunningSystem::new(system));
                self.start(name)?;
                self.wait_ready_of(name)?;
                self.reload_mirror()
            }
            (ScenarioEvent::Remove, _) => {
                let removed = self.members.remove(name);
                self.reload_mirror()?;
                let process = removed.and_then(|member| member.process);
                process.map_or(Ok(()), |mut process| process.stop(&self.stop))
            }
            (event, _) => self.apply_to_member(name, event),
        }
    }

    fn apply_to_member(&mut self, name: &str, event: ScenarioEvent) -> Result<(), MirrorError> {
        let Some(member) = self.members.get_mut(name) else {
            return Ok(());
        };
        if let ScenarioEvent::Upgrade(command) = &event {
            member.command.clone_from(command);
        }
        match (event, &mut member.process) {
            (ScenarioEvent::Start, None) => return self.start(name),
            (ScenarioEvent::Kill, process @ Some(_)) => {
                member.is_wanted = false;
                if let Some(mut process) = process.take() {
                    process.kill()?;
                }
            }
            (ScenarioEvent::Pause, Some(process)) => process.signal(Signal::STOP)?,
            (ScenarioEvent::Continue, Some(process)) => process.signal(Signal::CONT)?,
            (ScenarioEvent::Restart | ScenarioEvent::Upgrade(_), process) => {
                if let Some(mut process) = process.take() {
                    process.stop(&self.stop)?;
                }
                return self.start(name);
            }
            (ScenarioEvent::Fill, _) => member.filler = Some(DiskFiller::start(&member.plan.data)?),
            (ScenarioEvent::Empty, _) => member.filler = None,
            _ => {}
        }
        Ok(())
    }

    /// Stops all systems with SIGTERM, one after the other, and waits until they exit.
    pub fn stop_systems(&mut self) -> Result<(), MirrorError> {
        for member in self.members.values_mut() {
            if let Some(mut process) = member.process.take() {
                process.stop(&self.stop)?;
            }
        }
        Ok(())
    }
}

/// Creates the data directory of a system, which may become a mount point.
fn make_folder(path: &Path) -> Result<(), MirrorError> {
    let made = fs::create_dir_all(path).map_err(MirrorError::file("create", path));
    made.map_err(|e| MirrorError::Usage(e.to_string()))
}
