//! A process of a run: started with its output in a log, watched, signalled, ended with the run.
//!
//! Invariant: a process ends with the value that stands for it: asked first, killed if that does
//! not help. It has a process group of its own, so that a key pressed at the terminal reaches the
//! run alone. What a run left behind that was killed is known by a file and ended by the next one.

use crate::error::MirrorError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two looks at a condition.
const POLL: Duration = Duration::from_millis(50);

/// How long a process may take to end after SIGTERM: systems put their head on the disk.
const END_WITHIN: Duration = Duration::from_secs(120);

/// The same where nothing is made of its data any more.
const DROP_WITHIN: Duration = Duration::from_secs(10);

/// The ending of files that name a running process.
const PID_ENDING: &str = "pid";

/// Whether a run is to stop: set from outside, looked at wherever the run waits.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Lets the run stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails once the run is to stop.
    pub fn check(&self) -> Result<(), MirrorError> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(MirrorError::Stopped),
            false => Ok(()),
        }
    }

    /// Waits until `time`.
    pub fn sleep_until(&self, time: Instant) -> Result<(), MirrorError> {
        loop {
            self.check()?;
            let left = time.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    /// Looks at `condition` until it holds; fails when that takes longer than `within`.
    pub fn wait_for(
        &self,
        what: &str,
        within: Duration,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), MirrorError> {
        let end = Instant::now() + within;
        while !condition() {
            if Instant::now() > end {
                let seconds = within.as_secs();
                return Err(MirrorError::Late(format!("waited {seconds} s for {what}")));
            }
            self.sleep_until(Instant::now() + POLL)?;
        }
        Ok(())
    }
}

/// A running process; it ends with this value.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Names the process while it runs.
    pid_file: PathBuf,
}

impl Process {
    /// Starts `command`; what it writes goes behind what is in the log `name` of `dir`.
    pub fn start(name: &str, command: &[String], dir: &Path) -> Result<Self, MirrorError> {
        let log = dir.join(format!("{name}.log"));
        let open = || OpenOptions::new().create(true).append(true).open(&log);
        let output = open().map_err(MirrorError::file("open", &log))?;
        let errors = output
            .try_clone()
            .map_err(MirrorError::file("open", &log))?;
        let (program, arguments) = command.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
        let mut starting = Command::new(program);
        starting
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        let child = starting
            .spawn()
            .map_err(MirrorError::file("run", Path::new(program)))?;
        let process = Self {
            name: name.to_owned(),
            pid_file: dir.join(name).with_extension(PID_ENDING),
            child,
        };
        let text = format!("{}\n{}", process.child.id(), command.join("\0"));
        let written = fs::write(&process.pid_file, text);
        written.map_err(MirrorError::file("write", &process.pid_file))?;
        Ok(process)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), MirrorError> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|e| MirrorError::file("signal", Path::new(&self.name))(e.into()))
    }

    /// Waits for the end.
    pub fn wait(&mut self, stop: &Stop) -> Result<ExitStatus, MirrorError> {
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            stop.sleep_until(Instant::now() + POLL)?;
        }
    }

    /// Whether it ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks the process to end and waits for it.
    pub fn stop(&mut self, stop: &Stop) -> Result<(), MirrorError> {
        self.signal(Signal::TERM)?;
        let what = format!("{} to end after SIGTERM", self.name);
        stop.wait_for(&what, END_WITHIN, || self.ended().is_some())
    }

    /// Ends the process at this instant.
    pub fn kill(&mut self) -> Result<(), MirrorError> {
        self.signal(Signal::KILL)?;
        let waited = self.child.wait();
        waited.map_err(MirrorError::file("wait for", Path::new(&self.name)))?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // One that is stopped hears SIGTERM only when it goes on.
            let _ = self.signal(Signal::TERM);
            let _ = self.signal(Signal::CONT);
            let asked = Stop::default();
            let _ = asked.wait_for("the end", DROP_WITHIN, || self.ended().is_some());
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.pid_file);
    }
}

/// Ends what a run in `dir` left behind that was killed: processes with the number and the command
/// that it wrote down.
pub fn end_leftovers(dir: &Path) -> Result<(), MirrorError> {
    let listed = fs::read_dir(dir).map_err(MirrorError::file("read", dir))?;
    for path in listed.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|ending| ending != PID_ENDING) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(MirrorError::file("read", &path))?;
        if let Some((pid, command)) = text.split_once('\n') {
            end_leftover(pid, command);
        }
        fs::remove_file(&path).map_err(MirrorError::file("remove", &path))?;
    }
    Ok(())
}

fn end_leftover(pid: &str, command: &str) {
    let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) else {
        return;
    };
    // The number may be another process's by now.
    let is_it = || {
        let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
        let running = fs::read(path).unwrap_or_default();
        running.strip_suffix(b"\0").unwrap_or(&running) == command.as_bytes()
    };
    if is_it() {
        let _ = kill_process(pid, Signal::KILL);
        let asked = Stop::default();
        let _ = asked.wait_for("the end", DROP_WITHIN, || has_let_go(pid));
    }
}

/// Whether a process has no files and sockets any more. Its command line is gone before those are.
fn has_let_go(pid: Pid) -> bool {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let Ok(stat) = fs::read_to_string(format!("{folder}/stat")) else {
        return true;
    };
    // Behind the name, which may hold anything.
    let state = stat.rsplit(')').next().map(str::trim_start);
    let is_over = state.is_some_and(|state| state.starts_with(['Z', 'X']));
    let threads = fs::read_dir(format!("{folder}/task")).map_or(0, Iterator::count);
    is_over && threads <= 1
}

/// The body of a GET that is answered with 200.
pub fn get(agent: &ureq::Agent, url: &str) -> Option<String> {
    let mut answer = agent.get(url).call().ok()?;
    let body = answer.body_mut().with_config().limit(16 << 20);
    let body = body.lossy_utf8(true).read_to_string().ok()?;
    (answer.status() == 200).then_some(body)
}
