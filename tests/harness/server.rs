//! A `firn serve` process for a test, at any free port, with a data folder that the test chooses.

use super::http::Http;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum wait for conditions that usually take well under a second, because CI machines may
/// stall.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(2);

/// A running server.
pub struct Server {
    child: Child,
    /// Address as `127.0.0.1:port`.
    pub address: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server on `data` and waits until it is ready.
    pub fn start(data: &Path, flags: &[&str]) -> Server {
        let server = Self::start_unready(data, flags);
        server.wait_ready();
        server
    }

    /// Starts a server on `data` and waits until it listens.
    pub fn start_unready(data: &Path, flags: &[&str]) -> Server {
        let child = spawn(command(data, flags));
        Self::from_child(child)
    }

    /// Waits until `child`, whose standard error is a pipe, listens.
    pub fn from_child(mut child: Child) -> Server {
        let log = Arc::new(Mutex::new(Vec::new()));
        let stderr = child.stderr.take().expect("standard error is a pipe");
        let listening = follow_log(BufReader::new(stderr), log.clone());
        let Ok(address) = listening.recv_timeout(DEADLINE) else {
            let log = log.lock().unwrap().join("\n");
            panic!("the server does not listen; its log:\n{log}");
        };
        Server {
            child,
            address,
            log,
        }
    }

    /// Returns a client with its own connection pool.
    pub fn http(&self) -> Http {
        Http::new(&self.address)
    }

    /// Waits until the server is ready according to its API and its log, and therefore sees every
    /// acknowledged sample.
    pub fn wait_ready(&self) {
        let http = self.http();
        wait_for("the server to be ready", || {
            http.get("/-/ready").status == 200
        });
        self.wait_log(" msg=ready");
    }

    /// Waits until the log has a line with `text`; earlier lines are available then too. The
    /// effects of an action may be visible before its log line has passed the pipe.
    pub fn wait_log(&self, text: &str) {
        wait_for(text, || self.log().iter().any(|line| line.contains(text)));
    }

    /// Returns the process id.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Returns the log lines so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Kills the process at once, like a crash.
    pub fn kill(mut self) {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("the process is ours");
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.wait_end()
    }

    /// Waits for the process to end.
    pub fn wait_end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the process to end", || {
            status = self.try_end();
            status.is_some()
        });
        status.expect("the wait ended")
    }

    /// Returns the exit status if the process has ended.
    pub fn try_end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the process is ours")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("log of {}:\n{}", self.address, self.log().join("\n"));
        }
    }
}

/// Returns the command line of a server on `data` at any free port.
pub fn command(data: &Path, flags: &[&str]) -> Command {
    let mut command = firn();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(data).args(flags);
    command
}

/// Returns a command for the built binary.
pub fn firn() -> Command {
    Command::new(env!("CARGO_BIN_EXE_firn"))
}

/// Starts a command with standard error in a pipe.
pub fn spawn(mut command: Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// Polls `condition` until it is true; panics after [`DEADLINE`].
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(POLL);
    }
}

/// Collects log lines, and sends the address once the server listens.
fn follow_log(
    lines: impl BufRead + Send + 'static,
    log: Arc<Mutex<Vec<String>>>,
) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            if line.contains(" msg=listening ")
                && let Some((_, address)) = line.rsplit_once(" address=")
            {
                // The test may have stopped waiting.
                let _ = sender.send(address.to_owned());
            }
            log.lock().unwrap().push(line);
        }
    });
    receiver
}
