//! The command `firn push metrics URL [FILE...]`: sends metrics in the text format by remote write,
//! for experiments. A file becomes one request, and samples without a timestamp get the current
//! time.
//!
//! Arguments, texts and exit codes are those of promtool.

use super::arguments::{NOT_UNDERSTOOD, texts};
use super::client::{CommandClient, http_config, http_config_of};
use super::families::{self, Families, LabelMap};
use crate::console;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use firn_model::batch::Batch;
use firn_model::labels::Labels;
use firn_model::metadata::{MetadataBatch, MetricMetadata};
use firn_model::names::NameScheme;
use firn_model::sample::TimestampMs;
use firn_model::units::parse_duration;
use firn_wire::remote_write::{encode, encode_interned};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use time::OffsetDateTime;

const MESSAGE_V1: &str = "prometheus.WriteRequest";
const MESSAGE_V2: &str = "io.prometheus.write.v2.Request";

/// Returns the command line of `firn push` with its subcommand: arguments, flags and help texts.
pub fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let metrics = Command::new("metrics")
        .about("Send metrics by remote write, for tests and experiments")
        .arg(
            option(
                "label",
                "NAME=VALUE",
                "Label to add to every series; may be repeated",
            )
            .default_value("job=promtool")
            .action(ArgAction::Append),
        )
        .arg(
            option("timeout", "DURATION", "Timeout of a request")
                .default_value("30s")
                .value_parser(|text: &str| parse_duration(text).map_err(|e| e.to_string())),
        )
        .arg(
            option(
                "header",
                "NAME=VALUE",
                "Header to add to every request; may be repeated",
            )
            .action(ArgAction::Append),
        )
        .arg(
            option("protobuf_message", "NAME", "Protobuf message to send")
                .default_value(MESSAGE_V1),
        )
        .arg(
            option(
                "remote-write.path",
                "PATH",
                "Path of the remote write endpoint, appended to the URL",
            )
            .default_value("/api/v1/write"),
        )
        .arg(http_config())
        .arg(
            Arg::new("url")
                .value_name("URL")
                .required(true)
                .help("URL of the server, for example http://localhost:9090"),
        )
        .arg(
            Arg::new("files")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .num_args(0..)
                .help("Files in the text format; without files, standard input is read"),
        );
    Command::new("push")
        .about("Send data to a server")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(metrics)
}

/// Runs `firn push` with the parsed arguments `matches` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let Some((_, matches)) = matches.subcommand() else {
        return ExitCode::from(NOT_UNDERSTOOD);
    };
    let push = match PushArguments::from_matches(matches) {
        Ok(push) => push,
        Err(e) => {
            console::err(&e);
            return ExitCode::FAILURE;
        }
    };
    let files: Vec<&PathBuf> = matches.get_many("files").into_iter().flatten().collect();
    let mut has_failed = false;
    let mut tell = |outcome: Result<(), String>, what: &str| match outcome {
        Ok(()) => console::out(&format!("  SUCCESS: {what} pushed to remote write.\n")),
        Err(e) => {
            console::err(&format!("  FAILED: {e}"));
            has_failed = true;
        }
    };
    if files.is_empty() {
        let mut text = Vec::new();
        let read = std::io::stdin().read_to_end(&mut text);
        console::out("Parsing standard input\n");
        let outcome = read.map_err(|e| e.to_string());
        tell(outcome.and_then(|_| push.send(&text)), "metrics");
    }
    for file in files {
        let name = file.display();
        let outcome = std::fs::read(file).map_err(|e| format!("open {name}: {e}"));
        if outcome.is_ok() {
            console::out(&format!("Parsing metrics file {name}\n"));
        }
        let outcome = outcome.and_then(|text| push.send(&text));
        tell(outcome, &format!("metrics file {name}"));
    }
    ExitCode::from(u8::from(has_failed))
}

/// Receiver, protocol version and added labels of a push, from the command line.
struct PushArguments {
    client: CommandClient,
    path: String,
    is_v2: bool,
    labels: LabelMap,
}

impl PushArguments {
    fn from_matches(matches: &ArgMatches) -> Result<Self, String> {
        let text = |id| matches.get_one::<String>(id).map_or("", String::as_str);
        let pairs = |id| -> Result<Vec<(String, String)>, String> {
            let split = |text: String| match text.split_once(['=', ':']) {
                Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
                None => Err(format!("expected KEY=VALUE got '{text}'")),
            };
            texts(matches, id).into_iter().map(split).collect()
        };
        let is_v2 = match text("protobuf_message") {
            MESSAGE_V1 => false,
            MESSAGE_V2 => true,
            other => {
                return Err(format!(
                    "  FAILED: invalid protobuf message {other:?}, must be {MESSAGE_V1} or \
                     {MESSAGE_V2}"
                ));
            }
        };
        let file = http_config_of(matches).map(PathBuf::as_path);
        let client = CommandClient::new(text("url"), file, &pairs("header")?);
        let timeout = matches.get_one::<Duration>("timeout").copied();
        Ok(Self {
            client: client
                .map_err(|e| e.to_string())?
                .within(timeout.unwrap_or_default()),
            path: text("remote-write.path").to_owned(),
            is_v2,
            labels: pairs("label")?.into_iter().collect(),
        })
    }

    fn send(&self, text: &[u8]) -> Result<(), String> {
        let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
        let families = families::read(text, NameScheme::Utf8)?;
        let batch = self.batch(&families, now as TimestampMs);
        let version = HeaderName::from_static("x-prometheus-remote-write-version");
        let (body, kind, number) = if self.is_v2 {
            (
                encode_interned(&batch, &metadata_of(&families)),
                "application/x-protobuf;proto=io.prometheus.write.v2.Request",
                "2.0.0",
            )
        } else {
            (
                encode(&batch),
                "application/x-protobuf;proto=prometheus.WriteRequest",
                "0.1.0",
            )
        };
        let headers = [
            (CONTENT_TYPE, kind),
            (CONTENT_ENCODING, "snappy"),
            (version, number),
        ];
        let answer = self.client.post(&self.path, &headers, body);
        let answer = answer.map_err(|e| e.to_string())?;
        if answer.status.is_success() {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&answer.body).trim().to_owned();
        let status = answer.status;
        Err(format!("server returned HTTP status {status}: {told}"))
    }

    /// Returns the samples of a text, with the labels of the command line added. A metric's own
    /// labels take precedence, except `job`, which is renamed to `exported_job`.
    fn batch(&self, families: &Families, now: TimestampMs) -> Batch {
        let mut batch = Batch::default();
        for family in families.values() {
            for metric in &family.metrics {
                let mut labels = self.labels.clone();
                for (name, value) in &metric.labels {
                    let name = match name.as_str() {
                        "job" => "exported_job".to_owned(),
                        name => name.to_owned(),
                    };
                    labels.insert(name, value.clone());
                }
                for sample in &metric.samples {
                    let mut labels = labels.clone();
                    labels.insert("__name__".into(), sample.name.clone());
                    if let Some((name, value)) = &sample.part {
                        labels.insert((*name).into(), value.clone());
                    }
                    let labels = Labels::from_pairs(labels);
                    let time = sample.time.filter(|time| *time != 0).unwrap_or(now);
                    batch.push_series(labels.as_ref(), &[(time, sample.value)]);
                }
            }
        }
        batch
    }
}

/// Returns the type and the help of all families of a text.
fn metadata_of(families: &Families) -> MetadataBatch {
    let mut all = MetadataBatch::default();
    for (name, family) in families {
        all.push(MetricMetadata {
            name,
            kind: family.kind,
            help: family.help.as_deref().unwrap_or_default(),
            unit: "",
        });
    }
    all
}
