//! Plays the steps of the page against one system.

use super::page::{Block, Entry, Side, Step, Want};
use crate::harness::server::{DEADLINE, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use crate::raw::{Ask, Reply};
use firn_mirror::target::{ExpositionServer, expose};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(10);

/// Plays entries, on a shared server unless they need their own.
pub struct Player {
    side: Side,
    binary: PathBuf,
    shared: Option<Program>,
}

/// The process of the system under test.
struct Program {
    child: Child,
    address: String,
    log: Arc<Mutex<Vec<String>>>,
    _dir: tempfile::TempDir,
}

impl Player {
    /// Creates a player for `side`, whose program is `binary`.
    pub fn new(side: Side, binary: PathBuf) -> Self {
        Self {
            side,
            binary,
            shared: None,
        }
    }

    /// Plays all blocks of an entry; panics if the page is wrong.
    pub fn play(&mut self, entry: &Entry) {
        println!("{:?}: {}", self.side, entry.title);
        for block in &entry.blocks {
            let (flags, mut config) = block.settings(self.side);
            let target = block.target();
            if let Some(target) = &target {
                config.push(job_of(&target.address));
            }
            if block.is_held() {
                continue;
            }
            if block.starts_itself() {
                self.play_start(block, &config);
            } else if flags.is_empty() && config.is_empty() {
                let program = self.shared.take();
                let program = program.unwrap_or_else(|| self.serve(&[], &[]));
                self.play_requests(block, &program);
                self.shared = Some(program);
            } else {
                let program = self.serve(&flags, &config);
                self.play_requests(block, &program);
                program.end();
            }
        }
    }

    /// Stops the shared server.
    pub fn end(self) {
        if let Some(program) = self.shared {
            program.end();
        }
    }

    fn serve(&self, flags: &[String], config: &[String]) -> Program {
        let mut program = Program::start(self, flags, config, true);
        assert!(
            program.is_ready(),
            "{flags:?} does not serve: {}",
            program.text()
        );
        program
    }

    fn play_start(&self, block: &Block, config: &[String]) {
        let mut program = None;
        for (at, step) in &block.steps {
            match step {
                Step::Start(args) => program = Some(Program::start(self, args, config, false)),
                Step::Want(side, want) if *side == self.side => {
                    let program = program.as_mut().expect("the program was started");
                    program.check_start(*at, want);
                }
                _ => {}
            }
        }
        if let Some(program) = program {
            program.end();
        }
    }

    fn play_requests(&self, block: &Block, program: &Program) {
        let now = now_ms();
        let end = Instant::now() + DEADLINE;
        let mut headers = Vec::new();
        let mut reply = Reply::default();
        for (at, step) in &block.steps {
            match step {
                Step::Header(header) => headers.push(header.clone()),
                Step::Request(..) | Step::Write(_) | Step::Query(_) => {
                    let headers = std::mem::take(&mut headers);
                    let ask = ask(step, headers, now);
                    reply = ask.send(&program.address);
                    while block.scrapes() && !is_scraped(&reply) {
                        assert!(Instant::now() < end, "no scrape: {reply:?}");
                        std::thread::sleep(POLL);
                        reply = ask.send(&program.address);
                    }
                }
                Step::Want(side, want) if *side == self.side => {
                    check(*at, want, &reply, program);
                }
                _ => {}
            }
        }
    }
}

impl Block {
    fn settings(&self, side: Side) -> (Vec<String>, Vec<String>) {
        let (mut flags, mut config) = (Vec::new(), Vec::new());
        for (_, step) in &self.steps {
            match step {
                Step::Flags(words) => flags.extend(words.iter().cloned()),
                Step::Config(line) => config.push(line.clone()),
                Step::FirnConfig(line) if side == Side::Firn => config.push(line.clone()),
                _ => {}
            }
        }
        (flags, config)
    }

    /// Starts a target, if the block has one.
    fn target(&self) -> Option<ExpositionServer> {
        let mut text = String::new();
        for (_, step) in &self.steps {
            if let Step::Scrape(line) = step {
                text += &format!("{line}\n");
            }
        }
        let answer = move |_: &_, stream: &mut _| expose(stream, &text);
        self.scrapes()
            .then(|| ExpositionServer::start("127.0.0.1:0", answer).unwrap())
    }

    /// Returns whether there is nothing to play.
    fn is_held(&self) -> bool {
        let held = |step: &Step| matches!(step, Step::Held(..));
        self.steps.iter().all(|(_, step)| held(step))
    }

    fn scrapes(&self) -> bool {
        let scrapes = |step: &Step| matches!(step, Step::Scrape(_));
        self.steps.iter().any(|(_, step)| scrapes(step))
    }

    fn starts_itself(&self) -> bool {
        let starts = |step: &Step| matches!(step, Step::Start(_));
        self.steps.iter().any(|(_, step)| starts(step))
    }
}

impl Program {
    fn start(player: &Player, flags: &[String], config: &[String], serves: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(&player.binary);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        command
            .current_dir(dir.path())
            .args((player.side == Side::Firn).then_some("serve"))
            .args(["--web.listen-address", &address])
            .args(["--storage.tsdb.path", "data"])
            .args(flags);
        // Prometheus needs a config to serve, Firn does not.
        if !config.is_empty() || (serves && player.side == Side::Prometheus) {
            write(&dir.path().join("config.yml"), config);
            command.args(["--config.file", "config.yml"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        follow(out, log.clone());
        follow(err, log.clone());
        Self {
            child,
            address,
            log,
            _dir: dir,
        }
    }

    /// Waits until the program is ready or has ended. Returns whether it is ready.
    fn is_ready(&mut self) -> bool {
        let end = Instant::now() + DEADLINE;
        loop {
            let log = self.text();
            if log.contains("msg=ready") || log.contains("ready to receive web requests") {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < end, "neither ready nor over: {log}");
            std::thread::sleep(POLL);
        }
    }

    fn check_start(&mut self, at: usize, want: &Want) {
        let is_ready = self.is_ready();
        let has = |program: &Self, text: &str| {
            let what = format!("line {at} of the page: {text:?}");
            wait_for(&what, || program.text().contains(text));
        };
        match want {
            Want::Starts(text) => {
                assert!(is_ready, "line {at} of the page: {}", self.text());
                has(self, text);
            }
            Want::Exit(code, text) => {
                let log = self.text();
                assert!(!is_ready, "line {at} of the page: it serves: {log}");
                let status = self.child.wait().unwrap();
                assert_eq!(status.code(), Some(*code), "line {at} of the page");
                has(self, text);
            }
            other => panic!("line {at} of the page: {other:?} of a start"),
        }
    }

    /// Returns the output so far.
    fn text(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    fn end(mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a list of targets contains their health.
fn is_scraped(reply: &Reply) -> bool {
    let text = String::from_utf8_lossy(&reply.body);
    !text.contains("\"activeTargets\":[]") && !text.contains("\"health\":\"unknown\"")
}

/// Returns a config with a job that scrapes one target every second.
fn job_of(address: &str) -> String {
    format!(
        "scrape_configs: [{{job_name: page, scrape_interval: 1s, scrape_timeout: 1s, \
         static_configs: [{{targets: ['{address}']}}]}}]"
    )
}

fn write(file: &Path, lines: &[String]) {
    std::fs::write(file, lines.join("\n") + "\n").unwrap();
}

fn follow(pipe: impl std::io::Read + Send + 'static, log: Arc<Mutex<Vec<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            log.lock().unwrap().push(line);
        }
    });
}

/// Returns the HTTP request of a step.
fn ask(step: &Step, mut headers: Vec<String>, now: i64) -> Ask {
    let (method, path, body) = match step {
        Step::Request(method, path, body) => {
            let now = (now / 1000).to_string();
            let path = path.replace("{now}", &now);
            (method.clone(), path, body.clone().into_bytes())
        }
        Step::Query(expr) => {
            let path = format!("/api/v1/query?query={}", encoded(expr));
            ("GET".into(), path, Vec::new())
        }
        Step::Write(series) => {
            headers.push("Content-Encoding: snappy".into());
            let written = series.split(" | ").filter(|one| *one != "-");
            let series: Vec<Series> = written.map(|one| read(one, now)).collect();
            ("POST".into(), "/api/v1/write".into(), body(&series))
        }
        other => panic!("{other:?} is no request"),
    };
    let is_typed = |line: &String| line.to_lowercase().starts_with("content-type:");
    if method == "POST" && !headers.iter().any(is_typed) {
        let kind = match step {
            Step::Write(_) => "application/x-protobuf",
            _ => "application/x-www-form-urlencoded",
        };
        headers.push(format!("Content-Type: {kind}"));
    }
    Ask {
        method,
        path,
        headers,
        body,
    }
}

fn encoded(text: &str) -> String {
    let byte = |b: u8| {
        if b.is_ascii_alphanumeric() {
            char::from(b).to_string()
        } else {
            format!("%{b:02x}")
        }
    };
    text.bytes().map(byte).collect()
}

/// Parses a series of the page: `__name__=m l{3}=v long=x*20 1@0s 2@-1h`.
fn read(text: &str, now: i64) -> Series {
    let mut series = Series::default();
    for word in text.split_whitespace() {
        if let Some((value, age)) = word.split_once('@') {
            let time = now + millis(age);
            series.samples.push((time, value.parse().unwrap()));
            continue;
        }
        let (name, value) = word.split_once('=').expect("a label");
        let value = match value.split_once('*') {
            Some((text, count)) => text.repeat(count.parse().unwrap()),
            None => value.to_owned(),
        };
        let names = match name.split_once('{') {
            Some((name, count)) => {
                let count: usize = count.trim_end_matches('}').parse().unwrap();
                (0..count).map(|i| format!("{name}{i:03}")).collect()
            }
            None => vec![name.to_owned()],
        };
        for name in names {
            let label = (name.into_bytes(), value.clone().into_bytes());
            series.labels.push(label);
        }
    }
    series.labels.sort();
    series
}

fn millis(age: &str) -> i64 {
    let (number, unit) = age.split_at(age.len() - 1);
    let unit = match unit {
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => panic!("{age} is no time"),
    };
    number.parse::<i64>().unwrap() * unit
}

fn check(at: usize, want: &Want, reply: &Reply, program: &Program) {
    let text = format!(
        "{}{}",
        reply.head.to_lowercase(),
        String::from_utf8_lossy(&reply.body)
    );
    let shown: String = text.chars().take(2_000).collect();
    match want {
        Want::Status(status, part) => {
            assert_eq!(reply.status, *status, "line {at} of the page: {shown}");
            assert!(text.contains(part), "line {at} of the page: {shown}");
        }
        Want::Has(part) => assert!(text.contains(part), "line {at} of the page: {shown}"),
        Want::Lacks(part) => assert!(!text.contains(part), "line {at} of the page: {shown}"),
        Want::Logs(part) => {
            let what = format!("line {at} of the page: {part:?} in the log");
            wait_for(&what, || program.text().contains(part));
        }
        other => panic!("line {at} of the page: {other:?} of a request"),
    }
}
