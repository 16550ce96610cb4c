//! The command line of `firn load`.

use crate::durations::parse_duration_ms;
use crate::error::MirrorError;
use crate::fleet::{Churn, FleetOptions};
use crate::push::{Pace, now_ms};
use lexopt::{Arg, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;

/// What `firn load --help` prints.
pub const HELP: &str = "\
usage: firn load [--url URL] [flags]            make a load and send it
       firn load --prepare DIR [flags]          make a load and keep it in files
       firn load --replay DIR --url URL         send what --prepare kept

Sends the samples of a Kubernetes-like fleet (376 series a pod) by remote write 1.0, and prints a
report in JSON. Equal flags and an equal --start make equal requests, byte for byte.

  --url URL            the receiver [http://127.0.0.1:9090/api/v1/write]
  --series N           series at any one time, rounded up to whole pods [10000]
  --interval D         time between two samples of a series [15s]
  --duration D         data time to send [5m]
  --samples N          samples of each series, instead of --duration
  --senders N          connections; a series belongs to one of them [4]
  --start MS           time of the first sample in milliseconds [live: now; else: now - duration]
  --seed N             another number makes another fleet [1]
  --churn F            share of the pods that is replaced each period, 0 to 1 [0]
  --churn-period D     how often pods are replaced, in data time [15m]
  --live               send each request when its time has come
  --fast               send each request when the one before it is answered [unless --live]
  --prepare DIR        write the requests to files instead of sending them
  --replay DIR         send the requests of such files
";

/// Where requests come from and where they go.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make them and send them.
    Send,
    /// Make them and keep them in a folder.
    Prepare(PathBuf),
    /// Send those of a folder.
    Replay(PathBuf),
    /// Print [`HELP`].
    Help,
}

/// A whole command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What to do.
    pub action: Action,
    /// The receiver's address.
    pub url: String,
    /// What is sent.
    pub fleet: FleetOptions,
    /// Samples of each series.
    pub rounds: u64,
    /// Connections.
    pub senders: usize,
    /// When requests are sent.
    pub pace: Pace,
}

/// The flags as they were given.
#[derive(Debug)]
struct Flags {
    action: Action,
    url: String,
    series: usize,
    interval_ms: i64,
    duration_ms: i64,
    samples: Option<u64>,
    senders: usize,
    start_ms: Option<i64>,
    seed: u64,
    churn: f64,
    churn_period_ms: i64,
    pace: Pace,
}

impl Options {
    /// Reads the arguments that follow `firn load`.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, MirrorError> {
        let mut flags = Flags {
            action: Action::Send,
            url: "http://127.0.0.1:9090/api/v1/write".to_owned(),
            series: 10_000,
            interval_ms: 15_000,
            duration_ms: 300_000,
            samples: None,
            senders: 4,
            start_ms: None,
            seed: 1,
            churn: 0.0,
            churn_period_ms: 900_000,
            pace: Pace::Fast,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            let Arg::Long(name) = arg else {
                return Err(arg.unexpected().into());
            };
            let name = name.to_owned();
            flags.set(&mut parser, &name)?;
        }
        flags.check()?;
        Ok(flags.into_options())
    }
}

impl Flags {
    fn set(&mut self, parser: &mut lexopt::Parser, name: &str) -> Result<(), MirrorError> {
        match name {
            "url" => self.url = parser.value()?.string()?,
            "series" => self.series = parser.value()?.parse()?,
            "interval" => self.interval_ms = duration_ms(parser)?,
            "duration" => self.duration_ms = duration_ms(parser)?,
            "samples" => self.samples = Some(parser.value()?.parse()?),
            "senders" => self.senders = parser.value()?.parse()?,
            "start" => self.start_ms = Some(parser.value()?.parse()?),
            "seed" => self.seed = parser.value()?.parse()?,
            "churn" => self.churn = parser.value()?.parse()?,
            "churn-period" => self.churn_period_ms = duration_ms(parser)?,
            "live" => self.pace = Pace::Live,
            "fast" => self.pace = Pace::Fast,
            "prepare" => self.action = Action::Prepare(parser.value()?.into()),
            "replay" => self.action = Action::Replay(parser.value()?.into()),
            "help" => self.action = Action::Help,
            other => return Err(MirrorError::Usage(format!("unknown flag: --{other}"))),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), MirrorError> {
        let refuse = |what: String| Err(MirrorError::Usage(what));
        if self.series == 0 || self.senders == 0 {
            return refuse("--series and --senders must be at least 1".to_owned());
        }
        if self.interval_ms < 2 || self.churn_period_ms < self.interval_ms {
            return refuse(
                "--interval must be at least 2ms and --churn-period at least that".to_owned(),
            );
        }
        if !(0.0..=1.0).contains(&self.churn) {
            return refuse(format!("--churn must lie in 0 to 1: {}", self.churn));
        }
        Ok(())
    }

    fn into_options(self) -> Options {
        let from_duration = self.duration_ms.max(0) as u64 / self.interval_ms as u64;
        let rounds = self.samples.unwrap_or(from_duration).max(1);
        let length_ms = match self.pace {
            Pace::Live => 0,
            Pace::Fast => rounds as i64 * self.interval_ms,
        };
        let churn = (self.churn > 0.0).then_some(Churn {
            fraction: self.churn,
            period_ms: self.churn_period_ms,
        });
        Options {
            action: self.action,
            url: self.url,
            fleet: FleetOptions {
                series: self.series,
                seed: self.seed,
                start_ms: self.start_ms.unwrap_or_else(|| now_ms() - length_ms),
                interval_ms: self.interval_ms,
                churn,
            },
            rounds,
            senders: self.senders,
            pace: self.pace,
        }
    }
}

/// Reads a flag's value such as `15s`, `1m30s` or `100ms`.
fn duration_ms(parser: &mut lexopt::Parser) -> Result<i64, MirrorError> {
    let text = parser.value()?.string()?;
    parse_duration_ms(&text).ok_or_else(|| {
        MirrorError::Usage(format!("not a duration: {text:?}, wanted such as 1m30s"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(args.iter().map(OsString::from)).map_err(|e| e.to_string())
    }

    #[test]
    fn options_of_a_whole_line_are_read() {
        let line = "--url http://h/w --series 752 --interval 1m30s --samples 4 --senders 2 \
                    --start 60000 --seed 9 --churn 0.5 --churn-period 1h --live --replay d";
        let expected = Options {
            action: Action::Replay("d".into()),
            url: "http://h/w".to_owned(),
            fleet: FleetOptions {
                series: 752,
                seed: 9,
                start_ms: 60_000,
                interval_ms: 90_000,
                churn: Some(Churn {
                    fraction: 0.5,
                    period_ms: 3_600_000,
                }),
            },
            rounds: 4,
            senders: 2,
            pace: Pace::Live,
        };
        let args: Vec<_> = line.split_whitespace().collect();
        assert_eq!(parse(&args), Ok(expected));
    }

    #[test]
    fn options_that_make_no_load_are_refused() {
        let cases = [
            ("--series 0", "--series and --senders must be at least 1"),
            ("--churn 1.5", "--churn must lie in 0 to 1: 1.5"),
            (
                "--interval 15",
                "not a duration: \"15\", wanted such as 1m30s",
            ),
            (
                "--interval 5x",
                "not a duration: \"5x\", wanted such as 1m30s",
            ),
            (
                "--interval 1ms",
                "--interval must be at least 2ms and --churn-period at least that",
            ),
            ("--colour", "unknown flag: --colour"),
        ];
        for (line, expected) in cases {
            let args: Vec<_> = line.split_whitespace().collect();
            assert_eq!(parse(&args), Err(expected.to_owned()), "{line}");
        }
    }
}
