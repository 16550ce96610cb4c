//! A child process of a run: started with its output in a log file, signalled, and ended with the
//! run.
//!
//! Invariant: a process ends when its value is dropped, first by SIGTERM, then by SIGKILL. It has
//! its own process group, so that Ctrl-C at the terminal reaches only the run itself. Processes
//! that a killed run left behind are found by their PID files and ended by the next run.

use crate::error::MirrorError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(50);

/// Time that a process may take to exit after SIGTERM; systems write their head to disk then.
const END_WITHIN: Duration = Duration::from_secs(120);

/// Time that a process may take to exit when it is dropped and its data is no longer needed.
const DROP_WITHIN: Duration = Duration::from_secs(10);

/// Extension of the files that contain the ID of a running process.
const PID_ENDING: &str = "pid";

/// A flag that cancels the run. It is set from outside and checked at all waits of the run.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Cancels the run; it ends with an error at its next check.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails with [`MirrorError::Stopped`] if the run has been cancelled.
    pub fn check(&self) -> Result<(), MirrorError> {
        if self.0.load(Ordering::Relaxed) {
            Err(MirrorError::Stopped)
        } else {
            Ok(())
        }
    }

    /// Waits until `time`. Fails early with [`MirrorError::Stopped`] if the run is cancelled.
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

    /// Checks `condition` repeatedly until it is true. Fails after `within`, or if the run is
    /// cancelled.
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

/// A running child process with its log and PID file. It is ended when this value is dropped.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    child: Child,
    /// File with ID and command of the process, which exists while it runs.
    pid_file: PathBuf,
}

impl ChildProcess {
    /// Starts `command`, appends its output to the log `name` in `dir`, and writes its PID file.
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

    /// Sends a signal to the process. Fails if it has exited and was collected.
    pub fn signal(&self, signal: Signal) -> Result<(), MirrorError> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|e| MirrorError::file("signal", Path::new(&self.name))(e.into()))
    }

    /// Waits until the process exits and returns its status. Fails early if the run is cancelled.
    pub fn wait(&mut self, stop: &StopFlag) -> Result<ExitStatus, MirrorError> {
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            stop.sleep_until(Instant::now() + POLL)?;
        }
    }

    /// Returns the exit status if the process has exited, without waiting for it.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM and waits until the process exits; fails after [`END_WITHIN`].
    pub fn stop(&mut self, stop: &StopFlag) -> Result<(), MirrorError> {
        self.signal(Signal::TERM)?;
        let what = format!("{} to end after SIGTERM", self.name);
        stop.wait_for(&what, END_WITHIN, || self.ended().is_some())
    }

    /// Kills the process with SIGKILL and waits until it has exited, as in a crash.
    pub fn kill(&mut self) -> Result<(), MirrorError> {
        self.signal(Signal::KILL)?;
        let waited = self.child.wait();
        waited.map_err(MirrorError::file("wait for", Path::new(&self.name)))?;
        Ok(())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // A process stopped by SIGSTOP handles SIGTERM only after SIGCONT.
            let _ = self.signal(Signal::TERM);
            let _ = self.signal(Signal::CONT);
            let asked = StopFlag::default();
            let _ = asked.wait_for("the end", DROP_WITHIN, || self.ended().is_some());
        }
        // This fails if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.pid_file);
    }
}

/// Ends processes that a killed run in `dir` left behind. They are identified by process ID and
/// command.
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
    // Another process may have received the ID in the meantime.
    let is_it = || {
        let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
        let running = fs::read(path).unwrap_or_default();
        running.strip_suffix(b"\0").unwrap_or(&running) == command.as_bytes()
    };
    if is_it() {
        let _ = kill_process(pid, Signal::KILL);
        let asked = StopFlag::default();
        let _ = asked.wait_for("the end", DROP_WITHIN, || has_let_go(pid));
    }
}

/// Returns whether a process has closed its files and sockets. Its command line disappears before
/// that.
fn has_let_go(pid: Pid) -> bool {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let Ok(stat) = fs::read_to_string(format!("{folder}/stat")) else {
        return true;
    };
    // The state follows the name in parentheses, which may contain any character.
    let state = stat.rsplit(')').next().map(str::trim_start);
    let is_over = state.is_some_and(|state| state.starts_with(['Z', 'X']));
    let threads = fs::read_dir(format!("{folder}/task")).map_or(0, Iterator::count);
    is_over && threads <= 1
}

/// Sends a GET request and returns the body of the response if its status is 200.
pub fn get(agent: &ureq::Agent, url: &str) -> Option<String> {
    let mut answer = agent.get(url).call().ok()?;
    let body = answer.body_mut().with_config().limit(16 << 20);
    let body = body.lossy_utf8(true).read_to_string().ok()?;
    (answer.status() == 200).then_some(body)
}
