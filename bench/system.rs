//! The systems under test: how each is found, started, observed and stopped.
//!
//! All systems get the settings that the comparison requires: remote write enabled, no scraping, no
//! self-monitoring, no cache of query results, and retention of all data of the load. Everything
//! else has its default.

use crate::process::{self, Usage};
use firn_mirror::tls::TlsFilePaths;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use ureq::tls::TlsConfig;

/// Maximum time until a system is ready or has stopped, which includes the replay of a WAL.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time between two checks of a system that starts or stops.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A kind of system that can be measured. It determines program, flags and config of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Firn, the system that the benchmarks are made for.
    Firn,
    /// Prometheus, the reference.
    Prometheus,
    /// VictoriaMetrics, single-node version.
    VictoriaMetrics,
}

/// All systems in the order of the table.
pub const ALL: [Kind; 3] = [Kind::Firn, Kind::Prometheus, Kind::VictoriaMetrics];

impl Kind {
    /// Returns the name of the system in the table and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Firn => "Firn",
            Kind::Prometheus => "Prometheus",
            Kind::VictoriaMetrics => "VictoriaMetrics",
        }
    }

    /// Returns the name of the program, on the command line and on PATH.
    pub fn program_name(self) -> &'static str {
        match self {
            Kind::Firn => "firn",
            Kind::Prometheus => "prometheus",
            Kind::VictoriaMetrics => "victoria-metrics",
        }
    }

    /// Returns the environment variable that may contain the path of its program.
    pub fn variable(self) -> &'static str {
        match self {
            Kind::Firn => "BENCH_FIRN",
            Kind::Prometheus => "BENCH_PROMETHEUS",
            Kind::VictoriaMetrics => "BENCH_VICTORIA_METRICS",
        }
    }

    /// Returns the maximum time until the system has begun deferred work and returned freed memory.
    /// Prometheus checks for compactions once a minute. Firn seals the remains of a replay and
    /// sweeps the head in rounds of eight seconds, and its allocator keeps pages for ten seconds.
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

/// A self-signed certificate for TLS, made for one run and trusted only by its clients.
#[derive(Clone, Debug)]
pub struct Locks {
    /// Web config file with the paths of certificate and key.
    config: PathBuf,
    certificate: PathBuf,
}

impl Locks {
    /// Creates a P-256 certificate in `dir` with the program openssl, and a web config file for it.
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
        let files = TlsFilePaths {
            authorities: vec![self.certificate.clone()],
            client: None,
        };
        files.read().map_err(|e| e.to_string())
    }
}

/// An installed system with the settings for a run. Copies with other settings are made by its
/// methods.
#[derive(Clone, Debug)]
pub struct System {
    /// Kind of the system, which determines its flags.
    pub kind: Kind,
    /// Version that its program reports, or `unknown`.
    pub version: String,
    /// Path of its executable file.
    pub program: PathBuf,
    /// Lines for the config file, in addition to an empty list of scrape configs.
    settings: &'static str,
    /// Certificate for serving TLS, if it is enabled for the run.
    locks: Option<Locks>,
    retention_days: u32,
}

/// Returns the path of a program on PATH, if it exists, without checking that it is executable.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|dir| dir.join(name));
    programs.find(|program| program.is_file())
}

impl System {
    /// Finds the program by its environment variable, beside this program, or on PATH, in this
    /// order.
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

    /// Returns this system with additional lines for its config file.
    pub fn with_settings(&self, settings: &'static str) -> System {
        System {
            settings,
            ..self.clone()
        }
    }

    /// Returns this system with TLS, which only Firn and Prometheus support.
    pub fn behind(&self, locks: Locks) -> System {
        System {
            locks: Some(locks),
            ..self.clone()
        }
    }

    /// Returns this system with another retention than the default of 15 days.
    pub fn with_retention(&self, retention_days: u32) -> System {
        System {
            retention_days,
            ..self.clone()
        }
    }

    /// Starts the system in `dir`, which may contain data, and waits until it is ready.
    pub fn start(&self, dir: &Path) -> Result<Running, String> {
        let text = format!("scrape_configs: []\n{}", self.settings);
        self.start_with(dir, &text)
    }

    /// Starts the system with a config file, which only Firn and Prometheus read.
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

/// Returns the version, such as 1.2.3, from the first line of `text`, without any prefix. Further
/// lines contain versions of other things, such as the compiler.
fn version_in(text: &str) -> Option<&str> {
    text.lines().next()?.split_whitespace().find_map(|word| {
        let start = word.find(|c: char| c.is_ascii_digit())?;
        let version = &word[start..];
        (version.matches('.').count() >= 2).then_some(version)
    })
}

/// Returns a free port of the loopback address.
pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A running system, which is killed when this value is dropped unless it was stopped before.
#[derive(Debug)]
pub struct Running {
    kind: Kind,
    child: Child,
    dir: PathBuf,
    /// `http://address:port` or `https://address:port`, without a trailing slash.
    pub url: String,
    /// TLS settings that trust its certificate.
    pub tls: TlsConfig,
    /// Time from the start of the process to the first successful readiness check.
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

    /// Returns the resource usage of the process so far. Fails if the process has exited.
    pub fn usage(&self) -> Result<Usage, String> {
        process::usage(self.child.id())
            .ok_or_else(|| format!("{} is gone from /proc", self.kind.name()))
    }

    /// Requests a full compaction, which only VictoriaMetrics supports; does nothing for others.
    pub fn compact(&self) -> Result<(), String> {
        if self.kind != Kind::VictoriaMetrics {
            return Ok(());
        }
        let url = format!("{}/internal/force_merge", self.url);
        let answer = ureq::get(&url).call();
        answer.map(drop).map_err(|e| format!("{url}: {e}"))
    }

    /// Returns the URL at which the process accepts remote write.
    pub fn write_url(&self) -> String {
        format!("{}/api/v1/write", self.url)
    }

    /// Kills the process with SIGKILL, as in a crash, and waits until it has exited.
    pub fn kill(mut self) -> Result<(), String> {
        let kill = self.child.kill().and_then(|()| self.child.wait());
        kill.map(drop)
            .map_err(|e| format!("kill {}: {e}", self.kind.name()))
    }

    /// Stops the system with SIGTERM and returns its last observed resource usage. Fails if it
    /// exits with an error.
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
        // This fails if the process has already exited.
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
