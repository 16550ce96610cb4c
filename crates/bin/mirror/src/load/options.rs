//! Command line of `firn load`: its flags, their help and their validation.

use super::arguments::{duration_ms, value};
use super::receiver_url::write_url;
use super::trial::{self, LoadTest};
use super::watch::WatchedSystem;
use crate::error::MirrorError;
use crate::fleet::{ExtraPodSeries, FleetOptions, PodChurn, SERIES_PER_POD};
use crate::headers::CommandLineHeader;
use crate::push::{PushAccess, PushDestination, PushFailurePolicy, PushPace, now_ms};
use crate::request::RemoteWriteProtocol;
use crate::tls::TlsFilePaths;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Names of the two systems of a load in flags, metrics and reports.
pub(super) const NAMES: [&str; 2] = ["queried", "unqueried"];

/// Number of handlers of a pod, each of which can have a native histogram.
const HANDLERS: usize = 12;

/// Returns the command `firn load` with its flags, for parsing, help, completions and man pages.
pub fn command() -> Command {
    let text = |name: &'static str, value: &'static str| {
        let arg = Arg::new(name).long(name).value_name(value);
        // As in other tools, the word after a flag is its value even if it begins with a hyphen.
        arg.allow_hyphen_values(true)
    };
    let number = |name: &'static str, default: &'static str| text(name, "N").default_value(default);
    let span =
        |name: &'static str, default: &'static str| text(name, "DURATION").default_value(default);
    Command::new("load")
        .bin_name("firn load")
        .about("Send the samples of a simulated Kubernetes fleet by remote write")
        .long_about(
            "Sends the samples of a simulated Kubernetes fleet (376 series per pod) by remote \
             write and prints a report. The same flags with the same --start produce the \
             same requests, byte for byte.",
        )
        .args_override_self(true)
        .args([
            text("url", "URL")
                .default_value("http://127.0.0.1:9090")
                .help("Receiver; Firn appends /api/v1/write to a URL without a path"),
            number("series", "10000")
                .value_parser(value_parser!(usize))
                .help("Number of active series, rounded up to whole pods"),
            span("interval", "15s").help("Interval between two samples of a series"),
            span("duration", "5m").help("Length of the data to send, in data time"),
            text("samples", "N")
                .value_parser(value_parser!(u64))
                .help("Number of samples per series; replaces --duration"),
            number("senders", "4")
                .value_parser(value_parser!(usize))
                .help("Number of connections; all samples of a series use the same connection"),
            text("start", "MS").value_parser(value_parser!(i64)).help(
                "Timestamp of the first sample, in milliseconds since the epoch [default: now \
                 with --live, otherwise now minus the duration]",
            ),
            number("seed", "1")
                .value_parser(value_parser!(u64))
                .help("Seed of the random generator; a different seed produces a different fleet"),
            text("churn", "SHARE")
                .default_value("0")
                .value_parser(value_parser!(f64))
                .help("Fraction of the pods replaced in each period, from 0 to 1"),
            span("churn-period", "15m").help("Interval between replacements of pods, in data time"),
            span("deadline", "5s")
                .help("Maximum time that a sample waits until its request is full, in data time"),
        ])
        .args(request_arguments())
        .args(observed())
        .args(trial::arguments())
}

/// Returns the flags that determine how requests are generated and sent.
fn request_arguments() -> [Arg; 10] {
    let text = |name: &'static str, value: &'static str| {
        let arg = Arg::new(name).long(name).value_name(value);
        arg.allow_hyphen_values(true)
    };
    let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let folder = |name: &'static str| text(name, "DIR").value_parser(value_parser!(PathBuf));
    [
        switch("live")
            .overrides_with("fast")
            .help("Send each request at the time of its samples"),
        switch("fast")
            .overrides_with("live")
            .help("Send each request as soon as the previous one is answered [default]"),
        folder("prepare")
            .overrides_with("replay")
            .help("Write the requests to files instead of sending them"),
        folder("replay")
            .overrides_with("prepare")
            .help("Send the requests written by --prepare or --record"),
        folder("record")
            .conflicts_with_all(["prepare", "replay"])
            .help(
                "Accept remote write requests at --listen for --duration and write them to files",
            ),
        switch("shift").requires("replay").help(
            "Shift the timestamps of replayed samples: with --live they begin now, otherwise they \
             end now",
        ),
        text("protocol", "VERSION")
            .value_parser(["1", "2"])
            .default_value("1")
            .help("Remote write version"),
        text("targets", "N")
            .value_parser(value_parser!(usize))
            .help(
                "Number of targets that share the series: each has 376 series, plus series of \
                 worker threads",
            ),
        switch("keep-going")
            .help("Continue after a failed request [default with --slo and --preset]"),
        switch("native-histograms")
            .help("Also send the request durations of each handler as a native histogram"),
    ]
}

/// Returns the flags of the second receiver, of access, metrics and reports.
fn observed() -> [Arg; 7] {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name(value).help(help);
        arg.allow_hyphen_values(true)
    };
    [
        text(
            "unqueried-url",
            "URL",
            "URL of a second receiver, which receives the same writes but no queries",
        ),
        text(
            "header",
            "[SYSTEM:]NAME=VALUE",
            "Header to add to every write and query, or only to those of the system `queried` or \
             `unqueried`; may be repeated",
        )
        .action(ArgAction::Append),
        text(
            "ca",
            "FILE",
            "Trust the certificate authorities in this PEM file instead of Mozilla's",
        )
        .value_parser(value_parser!(PathBuf)),
        text(
            "listen",
            "ADDRESS",
            "Address at which to serve metrics of the load, under /metrics; with --record, the \
             address at which to accept remote write requests",
        ),
        text(
            "report",
            "DIR",
            "Folder for the report, with memory, CPU and written bytes of the systems over time",
        )
        .value_parser(value_parser!(PathBuf)),
        text(
            "pid",
            "N",
            "Process ID of the system, if it runs on this machine; used to measure its disk writes",
        )
        .value_parser(value_parser!(u32)),
        text("unqueried-pid", "N", "Process ID of the second system")
            .value_parser(value_parser!(u32)),
    ]
}

/// Source and destination of the requests, which `--prepare`, `--replay` and `--record` determine.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadAction {
    /// Generates requests and sends them at the same time.
    Send,
    /// Generates requests and writes them to this directory.
    Prepare(PathBuf),
    /// Sends the requests of this directory, which `--prepare` or `--record` has written.
    Replay(PathBuf),
    /// Receives requests of a real sender and writes them to a directory.
    Record(PathBuf),
}

/// The validated options of a run of `firn load`, after presets and defaults have been applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Source and destination of the requests of this run.
    pub action: LoadAction,
    /// `--url`: complete remote-write URL of the receiver.
    pub url: String,
    /// Remote-write URL of a second receiver, if there is one.
    pub unqueried_url: Option<String>,
    /// `--header`: headers that are added to requests of one or both systems.
    pub headers: Vec<CommandLineHeader>,
    /// `--ca`: certificate authorities of the receivers that are trusted.
    pub tls: TlsFilePaths,
    /// Size, seed and timing of the simulated fleet, from several flags.
    pub fleet: FleetOptions,
    /// Additional series that its pods export, from `--targets` and `--native-histograms`.
    pub more: ExtraPodSeries,
    /// `--protocol`: version of remote write in which requests are encoded.
    pub protocol: RemoteWriteProtocol,
    /// Whether the timestamps of replayed samples are shifted to the present.
    pub shifts: bool,
    /// Number of samples per series, from `--samples` or `--duration`.
    pub rounds: u64,
    /// `--senders`: number of connections, between which the series are divided.
    pub senders: usize,
    /// Time that a sample waits for its request to fill up, in milliseconds of data time.
    pub deadline_ms: i64,
    /// Whether requests are sent at the time of their samples or as fast as possible.
    pub pace: PushPace,
    /// Whether sending continues after a failed request, as `--keep-going` and goals demand.
    pub keeps_going: bool,
    /// Queries, goals, extras and output format of a load test.
    pub trial: LoadTest,
    /// Length of the data to send or to record, in milliseconds.
    pub duration_ms: i64,
    /// Address at which metrics are served or, for recording, writes are received.
    pub listen: Option<String>,
    /// Directory for the report with figures over time, in addition to the printed one.
    pub report: Option<PathBuf>,
    /// Process IDs of the queried and the unqueried system, if they run on this machine.
    pub pids: [Option<u32>; 2],
}

/// The values of the flags before they are validated and combined into [`Options`].
#[derive(Debug)]
struct LoadFlags {
    action: LoadAction,
    url: String,
    unqueried_url: Option<String>,
    headers: Vec<CommandLineHeader>,
    authorities: Vec<PathBuf>,
    series: usize,
    targets: Option<usize>,
    native_histograms: bool,
    protocol: RemoteWriteProtocol,
    shifts: bool,
    listen: Option<String>,
    report: Option<PathBuf>,
    pids: [Option<u32>; 2],
    interval_ms: i64,
    duration_ms: i64,
    samples: Option<u64>,
    senders: usize,
    start_ms: Option<i64>,
    seed: u64,
    churn: f64,
    churn_period_ms: i64,
    deadline_ms: i64,
    pace: PushPace,
    keeps_going: bool,
    trial: LoadTest,
}

impl Options {
    /// Parses and validates the arguments that follow `firn load`. Fails with a usage error.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, MirrorError> {
        Self::from_matches(&matches(args)?)
    }

    /// Returns how requests are sent to `url`. `stopped` is the flag that a failed request sets to
    /// stop all senders, unless `--keep-going` is set.
    pub fn push_destination<'a>(
        &self,
        url: &'a str,
        access: PushAccess<'a>,
        stopped: &'a AtomicBool,
    ) -> PushDestination<'a> {
        PushDestination {
            url,
            pace: self.pace,
            access,
            on_failure: if self.keeps_going {
                PushFailurePolicy::GoOn
            } else {
                PushFailurePolicy::Stop(stopped)
            },
        }
    }

    /// Converts parsed arguments into options and validates them, including their combination.
    pub(super) fn from_matches(matches: &ArgMatches) -> Result<Self, MirrorError> {
        let flags = LoadFlags::from_matches(matches)?;
        flags.check()?;
        Ok(flags.into_options())
    }
}

/// Parses the arguments that follow `firn load`. The arguments of a preset are inserted before
/// them.
pub(super) fn matches(args: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, clap::Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let parse = |preset: Vec<String>| {
        let preset = preset.into_iter().map(OsString::from);
        let name = std::iter::once("load".into());
        command().try_get_matches_from(name.chain(preset).chain(args.clone()))
    };
    let plain = parse(Vec::new())?;
    match trial::preset(&plain) {
        preset if preset.is_empty() => Ok(plain),
        preset => parse(preset),
    }
}

impl LoadFlags {
    fn from_matches(matches: &ArgMatches) -> Result<Self, MirrorError> {
        let folder = |id| matches.get_one::<PathBuf>(id).cloned();
        let action = match (folder("prepare"), folder("replay"), folder("record")) {
            (Some(dir), ..) => LoadAction::Prepare(dir),
            (_, Some(dir), _) => LoadAction::Replay(dir),
            (.., Some(dir)) => LoadAction::Record(dir),
            _ => LoadAction::Send,
        };
        let given = |id| matches.get_one::<String>(id).cloned();
        let pid = |id| matches.get_one::<u32>(id).copied();
        let headers = matches.get_many::<String>("header").into_iter().flatten();
        let url = write_url(&value::<String>(matches, "url")?);
        let trial = LoadTest::from_matches(matches, &url)?;
        Ok(Self {
            action,
            url,
            unqueried_url: given("unqueried-url").as_deref().map(write_url),
            headers: headers
                .map(|text| CommandLineHeader::parse(text, NAMES))
                .collect::<Result<_, _>>()?,
            authorities: folder("ca").into_iter().collect(),
            series: value(matches, "series")?,
            targets: matches.get_one("targets").copied(),
            native_histograms: matches.get_flag("native-histograms"),
            protocol: match value::<String>(matches, "protocol")?.as_str() {
                "2" => RemoteWriteProtocol::Two,
                _ => RemoteWriteProtocol::One,
            },
            shifts: matches.get_flag("shift"),
            listen: given("listen"),
            report: folder("report"),
            pids: [pid("pid"), pid("unqueried-pid")],
            interval_ms: duration_ms(matches, "interval")?,
            duration_ms: duration_ms(matches, "duration")?,
            samples: matches.get_one("samples").copied(),
            senders: value(matches, "senders")?,
            start_ms: matches.get_one("start").copied(),
            seed: value(matches, "seed")?,
            churn: value(matches, "churn")?,
            churn_period_ms: duration_ms(matches, "churn-period")?,
            deadline_ms: duration_ms(matches, "deadline")?,
            pace: if matches.get_flag("live") {
                PushPace::Live
            } else {
                PushPace::Fast
            },
            // With goals, a failed request must not end the load: the goals decide how many may
            // fail.
            keeps_going: matches.get_flag("keep-going") || trial.goals.is_some(),
            trial,
        })
    }

    fn check(&self) -> Result<(), MirrorError> {
        let refuse = |what: String| Err(MirrorError::Usage(what));
        if self.series == 0 || self.senders == 0 {
            return refuse("--series and --senders must be at least 1".to_owned());
        }
        if self.interval_ms < 2 || self.churn_period_ms < self.interval_ms {
            return refuse(
                "--interval must be at least 2ms, and --churn-period at least as long as \
                 --interval"
                    .to_owned(),
            );
        }
        if !(0.0..=1.0).contains(&self.churn) {
            return refuse(format!("--churn must be between 0 and 1: {}", self.churn));
        }
        if self.trial.plan.is_some() && matches!(self.action, LoadAction::Prepare(_)) {
            return refuse(
                "--queries needs writes that are sent: it cannot be used with --prepare".to_owned(),
            );
        }
        if matches!(self.action, LoadAction::Record(_)) && self.listen.is_none() {
            return refuse("--record accepts writes: it requires --listen ADDRESS".to_owned());
        }
        if let Some(targets) = self.targets
            && (targets == 0 || self.series / targets < self.series_min())
        {
            let least = self.series_min();
            return refuse(format!(
                "--targets: {} series in {targets} targets; each target needs at least {least} \
                 series",
                self.series
            ));
        }
        Ok(())
    }

    /// Returns the minimum number of series per target, which all pods export.
    fn series_min(&self) -> usize {
        SERIES_PER_POD + usize::from(self.native_histograms) * HANDLERS
    }

    /// Returns the number of series of the fleet and the additional series of its pods.
    fn shape(&self) -> (usize, ExtraPodSeries) {
        let per_target = self.targets.map(|targets| self.series / targets);
        let more = ExtraPodSeries {
            worker_series: per_target.map_or(0, |series| series - self.series_min()),
            native_histograms: self.native_histograms,
        };
        let whole = self.targets.zip(per_target);
        (whole.map_or(self.series, |(t, series)| t * series), more)
    }

    fn into_options(self) -> Options {
        let (series, more) = self.shape();
        let from_duration = self.duration_ms.max(0) as u64 / self.interval_ms as u64;
        let rounds = self.samples.unwrap_or(from_duration).max(1);
        let length_ms = match self.pace {
            PushPace::Live => 0,
            PushPace::Fast => rounds as i64 * self.interval_ms,
        };
        let churn = (self.churn > 0.0).then_some(PodChurn {
            fraction: self.churn,
            period_ms: self.churn_period_ms,
        });
        Options {
            action: self.action,
            url: self.url,
            unqueried_url: self.unqueried_url,
            headers: self.headers,
            tls: TlsFilePaths {
                authorities: self.authorities,
                client: None,
            },
            more,
            protocol: self.protocol,
            shifts: self.shifts,
            duration_ms: self.duration_ms,
            listen: self.listen,
            report: self.report,
            pids: self.pids,
            fleet: FleetOptions {
                series,
                seed: self.seed,
                start_ms: self.start_ms.unwrap_or_else(|| now_ms() - length_ms),
                interval_ms: self.interval_ms,
                churn,
            },
            rounds,
            senders: self.senders,
            deadline_ms: self.deadline_ms,
            pace: self.pace,
            keeps_going: self.keeps_going,
            trial: self.trial,
        }
    }
}

impl Options {
    /// Returns the systems whose resource usage is recorded. There are none without a report
    /// directory.
    pub(super) fn watched_systems(&self) -> Vec<WatchedSystem> {
        let urls = [Some(&self.url), self.unqueried_url.as_ref()];
        let both = NAMES.into_iter().zip(urls).zip(self.pids);
        let watched = both.filter_map(|((name, url), pid)| {
            let base = url?.strip_suffix("/api/v1/write").unwrap_or(url?);
            Some(WatchedSystem {
                name,
                base: base.to_owned(),
                pid,
            })
        });
        match self.report {
            Some(_) => watched.collect(),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::extras::LoadExtras;
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(args.iter().map(OsString::from)).map_err(|e| e.to_string())
    }

    #[test]
    fn options_of_a_whole_line_are_read() {
        let line = "--url http://h/w --series 752 --interval 1m30s --samples 4 --senders 2 \
                    --start 60000 --seed 9 --churn 0.5 --churn-period 1h \
                    --deadline 20s --live --replay d --replicas 2 --late 0.25 --late-by 2m \
                    --exemplars 0.5 --protocol 2 --native-histograms --shift \
                    --unqueried-url http://i/w --ca ca.pem --listen a:1 --report r --pid 7 \
                    --header unqueried:A=b";
        let expected = Options {
            action: LoadAction::Replay("d".into()),
            url: "http://h/w".to_owned(),
            unqueried_url: Some("http://i/w".to_owned()),
            headers: vec![CommandLineHeader {
                system: Some("unqueried"),
                name: "A".to_owned(),
                value: "b".to_owned(),
            }],
            tls: TlsFilePaths {
                authorities: vec!["ca.pem".into()],
                client: None,
            },
            more: ExtraPodSeries {
                worker_series: 0,
                native_histograms: true,
            },
            protocol: RemoteWriteProtocol::Two,
            shifts: true,
            duration_ms: 300_000,
            listen: Some("a:1".to_owned()),
            report: Some("r".into()),
            pids: [Some(7), None],
            fleet: FleetOptions {
                series: 752,
                seed: 9,
                start_ms: 60_000,
                interval_ms: 90_000,
                churn: Some(PodChurn {
                    fraction: 0.5,
                    period_ms: 3_600_000,
                }),
            },
            rounds: 4,
            senders: 2,
            deadline_ms: 20_000,
            pace: PushPace::Live,
            keeps_going: false,
            trial: LoadTest {
                extras: LoadExtras {
                    replicas: 2,
                    late_share: 0.25,
                    late_by_ms: 120_000,
                    exemplar_share: 0.5,
                },
                ..LoadTest::default()
            },
        };
        let args: Vec<_> = line.split_whitespace().collect();
        assert_eq!(parse(&args), Ok(expected));
    }

    #[test]
    fn preset_sets_what_is_not_given_and_scales_down() {
        let args = |line: &'static str| line.split_whitespace().collect::<Vec<_>>();
        let whole = parse(&args("--preset prombench --start 0")).unwrap();
        // 850 targets with 588 series each.
        assert_eq!(
            (whole.fleet.series, whole.more.worker_series),
            (499_800, 212)
        );
        assert_eq!(whole.pace, PushPace::Live);
        let per_second = whole.fleet.series as i64 * 1_000 / whole.fleet.interval_ms;
        assert!((109_000..111_000).contains(&per_second), "{per_second}");
        let churn = whole.fleet.churn.unwrap();
        assert_eq!((churn.fraction, churn.period_ms), (0.6, 900_000));
        assert!(whole.trial.goals.is_some());
        assert_eq!(whole.trial.plan.unwrap().rate, 2.0);
        let line = "--preset prombench --scale 0.01 --fast --samples 3 --churn 0.1 --query-rate 0";
        let part = parse(&args(line)).unwrap();
        // 9 targets with 555 series each.
        assert_eq!((part.fleet.series, part.rounds), (4_995, 3));
        let own = parse(&args("--preset prombench --series 700")).unwrap();
        assert_eq!(
            (own.fleet.series, own.more),
            (700, ExtraPodSeries::default())
        );
        assert_eq!(part.pace, PushPace::Fast);
        assert_eq!(part.fleet.churn.unwrap().fraction, 0.1);
        assert_eq!(part.trial.plan, None);
        for wrong in ["0", "-1", "x", "1001", "NaN"] {
            let e = parse(&["--preset", "prombench", "--scale", wrong]).unwrap_err();
            assert!(e.contains("greater than 0"), "{e}");
        }
        assert!(
            parse(&["--preset", "other"])
                .unwrap_err()
                .contains("prombench")
        );
        assert!(parse(&["--scale", "1"]).unwrap_err().contains("--preset"));
    }

    #[test]
    fn options_that_make_no_load_are_refused() {
        let cases = [
            ("--series 0", "--series and --senders must be at least 1"),
            ("--churn 1.5", "--churn must be between 0 and 1: 1.5"),
            (
                "--interval 15",
                "not a duration: \"15\", expected for example 1m30s",
            ),
            (
                "--interval 5x",
                "not a duration: \"5x\", expected for example 1m30s",
            ),
            (
                "--interval 1ms",
                "--interval must be at least 2ms, and --churn-period at least as long as \
                 --interval",
            ),
            ("--xyz", "unknown flag: --xyz"),
            (
                "--queries /nowhere",
                "read /nowhere: No such file or directory (os error 2)",
            ),
            (
                "--preset prombench --url http://h/w",
                "--query-url is required: http://h/w does not end with /api/v1/write",
            ),
            (
                "--preset prombench --prepare d",
                "--queries needs writes that are sent: it cannot be used with --prepare",
            ),
            ("--header x", "--header: expected NAME=VALUE"),
            ("--late 2", "--late must be between 0 and 1: 2"),
            ("--exemplars -1", "--exemplars must be between 0 and 1: -1"),
            (
                "--record d",
                "--record accepts writes: it requires --listen ADDRESS",
            ),
            (
                "--series 1000 --targets 3",
                "--targets: 1000 series in 3 targets; each target needs at least 376 series",
            ),
            ("--replicas 0", "--replicas must be between 1 and 100: 0"),
            (
                "--slo --slo-read-share 2",
                "--slo-read-share must be between 0 and 1: 2",
            ),
            (
                "--serie 5",
                "unknown flag: --serie; a similar flag exists: --series",
            ),
        ];
        for (line, expected) in cases {
            let args: Vec<_> = line.split_whitespace().collect();
            assert_eq!(parse(&args), Err(expected.to_owned()), "{line}");
        }
    }
}
