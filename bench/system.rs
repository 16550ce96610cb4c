//! The systems under test: how each is found, started, watched and stopped.
//!
//! Every system gets the settings that suit the comparison: remote write on, no scraping, no
//! self-monitoring, no cache of query results, data as old as the load kept. Nothing else differs
//! from its defaults.

use crate::process::{self, Usage};
use firn_mirror::tls::TlsFiles;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use ureq::tls::TlsConfig;

/// How long a system may take to become ready or to stop.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time between two looks at a system that starts or stops.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A system that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Firn,
    /// The reference.
    Prometheus,
    /// VictoriaMetrics, single node.
    VictoriaMetrics,
}

/// All of them, in the order of the table.
pub const ALL: [Kind; 3] = [Kind::Firn, Kind::Prometheus, Kind::VictoriaMetrics];

impl Kind {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Firn => "Firn",
            Kind::Prometheus => "Prometheus",
            Kind::VictoriaMetrics => "VictoriaMetrics",
        }
    }

    /// Its name on the command line and on PATH.
    pub fn program_name(self) -> &'static str {
        match self {
            Kind::Firn => "firn",
            Kind::Prometheus => "prometheus",
            Kind::VictoriaMetrics => "victoria-metrics",
        }
    }

    /// The environment variable that names its program.
    pub fn variable(self) -> &'static str {
        match self {
            Kind::Firn => "BENCH_FIRN",
            Kind::Prometheus => "BENCH_PROMETHEUS",
            Kind::VictoriaMetrics => "BENCH_VICTORIA_METRICS",
        }
    }

    /// How long it may take until it looks for work that it puts off and gives freed memory back:
    /// Prometheus compacts by a clock of a minute, Firn seals what is left of a replay and sweeps
    /// the head in rounds of eight seconds, and its allocator keeps pages for ten.
    pub fn looks_after_work_within(self) -> Duration {
        match self {
            Kind::VictoriaMetrics => Duration::from_secs(15),
            Kind::Firn | Kind::Prometheus => Duration::from_secs(65),
        }
    }

    fn flags(self, dir: &Path, port: u16, retention_days: u32) -> Vec<String> {
        let address = format!("127.0.0.1:{port}");
        let data = dir.join("data").display().to_string();
        let config = dir.join("prometheus.yml").display().to_string();
        match self {
            Kind::Firn => vec![
                "serve".to_owned(),
                format!("--config={config}"),
                format!("--data={data}"),
                format!("--listen={address}"),
                format!("--storage.tsdb.retention.time={retention_days}d"),
            ],
            Kind::Prometheus => vec![
                format!("--config.file={config}"),
                format!("--storage.tsdb.path={data}"),
                format!("--web.listen-address={address}"),
                format!("--storage.tsdb.retention.time={retention_days}d"),
                "--web.enable-remote-write-receiver".to_owned(),
                "--log.level=warn".to_owned(),
            ],
            Kind::VictoriaMetrics => vec![
                format!("-storageDataPath={data}"),
                format!("-httpListenAddr={address}"),
                format!("-retentionPeriod={retention_days}d"),
                "-search.disableCache".to_owned(),
                "-search.latencyOffset=1ms".to_owned(),
                "-loggerLevel=ERROR".to_owned(),
            ],
        }
    }
}

/// A certificate of this machine, made for a run.
#[derive(Clone, Debug)]
pub struct Locks {
    /// The web config that names certificate and key.
    config: PathBuf,
    certificate: PathBuf,
}

impl Locks {
    /// Makes a certificate of P-256 in `dir` with the program openssl.
    pub fn make(dir: &Path) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args([
                "-subj",
                "/CN=firn-bench",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args([&"-keyout".into(), &key, &"-out".into(), &certificate])
            .output()
            .map_err(|e| format!("openssl: {e}"))?;
        if !made.status.success() {
            return Err(format!(
                "openssl: {}",
                String::from_utf8_lossy(&made.stderr)
            ));
        }
        let config = dir.join("web.yml");
        let text = format!(
            "tls_server_config: {{cert_file: {}, key_file: {}}}\n",
            certificate.display(),
            key.display()
        );
        fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
        Ok(Self {
            config,
            certificate,
        })
    }

    fn tls(&self) -> Result<TlsConfig, String> {
        let files = TlsFiles {
            authorities: vec![self.certificate.clone()],
            client: None,
        };
        files.read().map_err(|e| e.to_string())
    }
}

/// A system whose program is there.
#[derive(Clone, Debug)]
pub struct System {
    /// Which.
    pub kind: Kind,
    /// The version that its program names.
    pub version: String,
    /// Where its program lies.
    pub program: PathBuf,
    /// What its config says beside that nothing is scraped.
    settings: &'static str,
    /// What it serves TLS with.
    locks: Option<Locks>,
    retention_days: u32,
}

/// A program on PATH, if it is there.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|dir| dir.join(name));
    programs.find(|program| program.is_file())
}

impl System {
    /// Finds the program by its environment variable, else beside this one, else on PATH.
    pub fn find(kind: Kind) -> Option<System> {
        let named = std::env::var_os(kind.variable()).map(PathBuf::from);
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| Some(exe.parent()?.join(kind.program_name())));
        let beside = beside.filter(|program| program.is_file());
        let program = named.or(beside).or_else(|| on_path(kind.program_name()))?;
        let output = Command::new(&program).arg("--version").output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        Some(System {
            kind,
            version: version_in(&text).unwrap_or("unknown").to_owned(),
            program,
            settings: "",
            locks: None,
            retention_days: 15,
        })
    }

    /// This system with lines for its config.
    pub fn with_settings(&self, settings: &'static str) -> System {
        System {
            settings,
            ..self.clone()
        }
    }

    /// This system behind TLS; only Firn and Prometheus can.
    pub fn behind(&self, locks: Locks) -> System {
        System {
            locks: Some(locks),
            ..self.clone()
        }
    }

    /// This system with another retention than 15 days.
    pub fn with_retention(&self, retention_days: u32) -> System {
        System {
            retention_days,
            ..self.clone()
        }
    }

    /// Starts the system on `dir`, which may hold data, and waits until it says that it is ready.
    pub fn start(&self, dir: &Path) -> Result<Running, String> {
        let text = format!("scrape_configs: []\n{}", self.settings);
        self.start_with(dir, &text)
    }

    /// The same with a config; only Firn and Prometheus read it.
    pub fn start_with(&self, dir: &Path, text: &str) -> Result<Running, String> {
        fs::create_dir_all(dir.join("data")).map_err(|e| format!("{}: {e}", dir.display()))?;
        let config = dir.join("prometheus.yml");
        fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
        let port = free_port().map_err(|e| format!("free port: {e}"))?;
        let log = |name: &str| {
            let path = dir.join(name);
            File::create(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let start = Instant::now();
        let locks = self.locks.as_ref();
        let (scheme, tls) = match locks {
            Some(locks) => ("https", locks.tls()?),
            None => ("http", TlsConfig::default()),
        };
        let child = Command::new(&self.program)
            .args(self.kind.flags(dir, port, self.retention_days))
            .args(locks.map(|locks| format!("--web.config.file={}", locks.config.display())))
            .stdin(Stdio::null())
            .stdout(log("stdout.log")?)
            .stderr(log("stderr.log")?)
            .spawn()
            .map_err(|e| format!("start {}: {e}", self.program.display()))?;
        let mut running = Running {
            kind: self.kind,
            child,
            dir: dir.to_path_buf(),
            url: format!("{scheme}://127.0.0.1:{port}"),
            tls,
            ready_after: Duration::ZERO,
        };
        running.wait_until_ready(start)?;
        Ok(running)
    }
}

/// The first word of the first line of `text` that holds a version such as 1.2.3, without what stands
/// before it. Further lines name versions of other things, such as the compiler.
fn version_in(text: &str) -> Option<&str> {
    text.lines().next()?.split_whitespace().find_map(|word| {
        let start = word.find(|c: char| c.is_ascii_digit())?;
        let version = &word[start..];
        (version.matches('.').count() >= 2).then_some(version)
    })
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A system that runs. Dropped it is killed.
#[derive(Debug)]
pub struct Running {
    kind: Kind,
    child: Child,
    dir: PathBuf,
    /// `http://address:port`, without a slash at the end.
    pub url: String,
    /// Which certificate it has.
    pub tls: TlsConfig,
    /// From the start of the process to the first 200 of its readiness check.
    pub ready_after: Duration,
}

impl Running {
    fn wait_until_ready(&mut self, start: Instant) -> Result<(), String> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .tls_config(self.tls.clone())
            .build();
        let agent: ureq::Agent = config.into();
        let url = format!("{}/-/ready", self.url);
        while start.elapsed() < PATIENCE {
            if agent.get(&url).call().is_ok() {
                self.ready_after = start.elapsed();
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "{} ended while starting: {status}; its log is {}",
                    self.kind.name(),
                    self.dir.join("stderr.log").display()
                ));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(format!(
            "{} is not ready after {PATIENCE:?}",
            self.kind.name()
        ))
    }

    /// What the process used up to now.
    pub fn usage(&self) -> Result<Usage, String> {
        process::usage(self.child.id())
            .ok_or_else(|| format!("{} is gone from /proc", self.kind.name()))
    }

    /// Asks for the compaction of everything, where that can be asked for.
    pub fn compact(&self) -> Result<(), String> {
        if self.kind != Kind::VictoriaMetrics {
            return Ok(());
        }
        let url = format!("{}/internal/force_merge", self.url);
        let answer = ureq::get(&url).call();
        answer.map(drop).map_err(|e| format!("{url}: {e}"))
    }

    /// The remote write receiver's address.
    pub fn write_url(&self) -> String {
        format!("{}/api/v1/write", self.url)
    }

    /// Ends the process at once, as a crash would.
    pub fn kill(mut self) -> Result<(), String> {
        let kill = self.child.kill().and_then(|()| self.child.wait());
        kill.map(drop)
            .map_err(|e| format!("kill {}: {e}", self.kind.name()))
    }

    /// Stops the system as its users would and says what it had used in the end.
    pub fn stop(mut self) -> Result<Usage, String> {
        let mut last = self.usage()?;
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|e| format!("stop {}: {e}", self.kind.name()))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(last),
                Ok(Some(status)) => {
                    return Err(format!("{} stopped with {status}", self.kind.name()));
                }
                Ok(None) => {}
                Err(e) => return Err(format!("wait for {}: {e}", self.kind.name())),
            }
            if let Some(usage) = process::usage(self.child.id()) {
                last = usage;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(format!(
            "{} does not stop within {PATIENCE:?}",
            self.kind.name()
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the process has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_first_line_or_none() {
        let cases = [
            (
                "prometheus, version 3.14.0 (branch: HEAD)\n  go version:  go1.26.8",
                Some("3.14.0"),
            ),
            (
                "prometheus, version  (branch: , revision: unknown)\n  go version:  go1.26.8",
                None,
            ),
            ("victoria-metrics-v1.150.0\n", Some("1.150.0")),
            (
                "firn 0.1.0 (compatible with Prometheus 3.14.0)",
                Some("0.1.0"),
            ),
            ("", None),
        ];
        for (text, version) in cases {
            assert_eq!(version_in(text), version, "{text}");
        }
    }
}
