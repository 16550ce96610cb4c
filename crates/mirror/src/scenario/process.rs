//! A process of a run: started with its output in a log, watched, signalled, ended with the run.

use crate::error::MirrorError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Pause between two looks at a condition.
const POLL: Duration = Duration::from_millis(50);

/// How long a process may take to end after SIGTERM: systems put their head on the disk.
const END_WITHIN: Duration = Duration::from_secs(120);

/// A running process; it ends with this value.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts `command`; what it writes goes behind what is in `log`.
    pub fn start(name: &str, command: &[String], log: &Path) -> Result<Self, MirrorError> {
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let output = open().map_err(MirrorError::file("open", log))?;
        let errors = output.try_clone().map_err(MirrorError::file("open", log))?;
        let (program, arguments) = command.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        let child = command
            .spawn()
            .map_err(MirrorError::file("run", Path::new(program)))?;
        Ok(Self {
            name: name.to_owned(),
            child,
        })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), MirrorError> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|e| MirrorError::file("signal", Path::new(&self.name))(e.into()))
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> Result<ExitStatus, MirrorError> {
        self.child
            .wait()
            .map_err(MirrorError::file("wait for", Path::new(&self.name)))
    }

    /// Whether it ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks the process to end and waits for it.
    pub fn stop(&mut self) -> Result<(), MirrorError> {
        self.signal(Signal::TERM)?;
        let what = format!("{} to end after SIGTERM", self.name);
        wait_for(&what, END_WITHIN, || self.ended().is_some())
    }

    /// Ends the process at this instant.
    pub fn kill(&mut self) -> Result<(), MirrorError> {
        self.signal(Signal::KILL)?;
        self.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, or be stopped, which a kill ends too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks at `condition` until it holds; fails when that takes longer than `within`.
pub fn wait_for(
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
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// The body of a GET that is answered with 200.
pub fn get(agent: &ureq::Agent, url: &str) -> Option<String> {
    let mut answer = agent.get(url).call().ok()?;
    let body = answer.body_mut().with_config().limit(16 << 20);
    let body = body.lossy_utf8(true).read_to_string().ok()?;
    (answer.status() == 200).then_some(body)
}
