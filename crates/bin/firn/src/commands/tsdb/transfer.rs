//! The command lines of what brings samples into a data folder and takes them out of one.

use super::dump::{self, DumpFormat};
use super::{CANNOT, data_argument, export, import, openmetrics, rule_blocks};
use crate::commands::arguments::texts;
use crate::console;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::go_time::parse_rfc3339;
use firn_model::rounded::{format_bytes, format_count_with_noun};
use firn_model::sample::{TimeRange, TimestampMs};
use firn_storage::import::ImportSummary;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXIT_CODES: &str = "Exit code: 0 if everything was copied, 1 if some data was damaged and is \
                          missing, 2 on failure.";

/// `firn tsdb import`.
pub fn import_command() -> Command {
    let prometheus = Command::new("prometheus")
        .about("Import the data folder of a Prometheus: its blocks and its head")
        .long_about(
            "Imports the data folder of a stopped Prometheus, or a snapshot of one: all blocks, \
             without samples deleted by tombstones, and the head (wal, wbl and chunks_head). The \
             source folder is only read. Exemplars and metadata are not imported. Each new block \
             is read back and verified. An interrupted import continues when you run the command \
             again. Samples older than the server's retention are deleted when the server starts.",
        )
        .after_help(EXIT_CODES)
        .arg(path("src", "SRC", "Data folder of the Prometheus"))
        .arg(data_argument());
    Command::new("import")
        .about("Import samples of another database into a data folder")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([prometheus])
}

/// `firn tsdb export`.
pub fn export_command() -> Command {
    let prometheus = Command::new("prometheus")
        .about("Write all samples as blocks that Prometheus can open")
        .long_about(
            "Writes one block for each aligned two-hour range to OUT, with the samples that \
             queries would return. Start timestamps are not exported. Blocks that OUT already \
             contains are skipped, so you can continue an interrupted export.",
        )
        .after_help(EXIT_CODES)
        .arg(path(
            "out",
            "OUT",
            "Folder for the blocks; created if it does not exist",
        ))
        .arg(data_argument())
        .args(selection());
    Command::new("export")
        .about("Export the samples of a data folder for another database")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([prometheus])
}

/// `firn tsdb create-blocks-from`.
pub fn create_command() -> Command {
    let text = Command::new("openmetrics")
        .about("Import a text in the OpenMetrics format, with a timestamp for every sample")
        .long_about(
            "Imports a text in the OpenMetrics format in which every sample has a timestamp. \
             Samples may have any age and any order. The text must end with # EOF. If the text \
             contains an error, the data folder is left unchanged.",
        )
        .after_help(EXIT_CODES)
        .arg(path("file", "FILE", "OpenMetrics text file"))
        .args(folder_arguments())
        .arg(
            Arg::new("label")
                .long("label")
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .help("Label to add to every series; may be repeated"),
        );
    Command::new("create-blocks-from")
        .about("Create blocks of a data folder from text or from recording rules")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(of_all_creation())
        .subcommands([text, rule_blocks::command().after_help(EXIT_CODES)])
}

/// Flags of promtool that stand before or behind what blocks are made from.
fn of_all_creation() -> [Arg; 3] {
    let switch = |id: &'static str, short: char, help: &'static str| {
        let arg = Arg::new(id).long(id).short(short).global(true);
        arg.action(ArgAction::SetTrue).help(help)
    };
    [
        switch(
            "human-readable",
            'r',
            "Has no effect: Firn always rounds printed numbers",
        ),
        switch("quiet", 'q', "Do not print the created blocks"),
        Arg::new("max-block-duration")
            .long("max-block-duration")
            .value_name("DURATION")
            .global(true)
            .hide(true)
            .help("Has no effect: the samples determine the length of blocks"),
    ]
}

/// `firn tsdb dump` and `firn tsdb dump-openmetrics`.
pub fn dump_command(form: DumpFormat) -> Command {
    let (name, about) = match form {
        DumpFormat::Plain | DumpFormat::SeriesJson => {
            ("dump", "Print samples, one per line, as promtool does")
        }
        DumpFormat::OpenMetrics => (
            "dump-openmetrics",
            "Print samples in the OpenMetrics format, without native histograms",
        ),
    };
    let number = |id: &'static str, help: &'static str| {
        let arg = Arg::new(id).long(id).value_name("MS").help(help);
        let arg = arg.value_parser(value_parser!(TimestampMs));
        arg.allow_hyphen_values(true)
    };
    let command = Command::new(name)
        .about(about)
        .after_help(EXIT_CODES)
        .args(folder_arguments())
        .args(selection())
        .args([
            number(
                "min-time",
                "First timestamp, in milliseconds since the epoch",
            ),
            number(
                "max-time",
                "Last timestamp, in milliseconds since the epoch",
            ),
        ])
        .arg(
            Arg::new("sandbox-dir-root")
                .long("sandbox-dir-root")
                .value_name("DIR")
                .help("Has no effect: the command writes no files"),
        );
    match form {
        DumpFormat::OpenMetrics => command,
        DumpFormat::Plain | DumpFormat::SeriesJson => command.arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .default_value("prom")
                .value_parser(["prom", "seriesjson"])
                .help("Print samples, or the labels of series as JSON"),
        ),
    }
}

/// The data folder, by a flag or by its place as promtool has it.
fn folder_arguments() -> [Arg; 2] {
    [
        data_argument().required(false),
        Arg::new("dir")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("data")
            .help("Data folder [default: data/]"),
    ]
}

fn folder_of(matches: &ArgMatches) -> PathBuf {
    let given = ["data", "dir"].map(|id| matches.get_one::<PathBuf>(id));
    let given = given.into_iter().flatten().next();
    given.cloned().unwrap_or_else(|| PathBuf::from("data"))
}

/// The values of `--label`.
fn labels_of(matches: &ArgMatches) -> Result<Vec<(String, String)>, Error> {
    let split = |text: String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => {
            let why = format!("--label: expected NAME=VALUE, got {text:?}");
            Err(Error::new(ErrorKind::Invalid, why))
        }
    };
    texts(matches, "label").into_iter().map(split).collect()
}

fn path(id: &'static str, name: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(id).value_name(name).required(true).help(help);
    arg.value_parser(value_parser!(PathBuf))
}

/// Which samples.
fn selection() -> [Arg; 3] {
    let option = |id: &'static str, value: &'static str| {
        let arg = Arg::new(id).long(id).value_name(value);
        arg.allow_hyphen_values(true)
    };
    let matcher = option("match", "SELECTOR").action(ArgAction::Append);
    [
        matcher.help(
            "Selector of the series to include, for example up{job=\"x\"}; may be repeated \
             [default: all]",
        ),
        option("from", "TIME").help("First timestamp, as RFC 3339 or seconds since the epoch"),
        option("to", "TIME").help("Last timestamp, as RFC 3339 or seconds since the epoch"),
    ]
}

/// Runs `firn tsdb import`.
pub fn run_import(env: &Env, matches: &ArgMatches) -> ExitCode {
    let Some((_, matches)) = matches.subcommand() else {
        return ExitCode::from(CANNOT);
    };
    let start = env.clock.monotonic();
    let done = import::prometheus(env, &path_of(matches, "src"), &path_of(matches, "data"));
    let took = env.clock.monotonic().saturating_sub(start);
    finish(done.map(|done| {
        notes(&done.notes);
        let text = format!(
            "imported {} in {}{}\n",
            made(&done.imported),
            seconds(took),
            passed(done.passed)
        );
        (text, true)
    }))
}

/// Runs `firn tsdb export`.
pub fn run_export(env: &Env, matches: &ArgMatches) -> ExitCode {
    let Some((_, matches)) = matches.subcommand() else {
        return ExitCode::from(CANNOT);
    };
    let start = env.clock.monotonic();
    let done = range_of(matches).and_then(|range| {
        let wanted = export::ExportRequest {
            data: &path_of(matches, "data"),
            out: &path_of(matches, "out"),
            selectors: &texts(matches, "match"),
            range,
        };
        export::prometheus(env, &wanted)
    });
    let took = env.clock.monotonic().saturating_sub(start);
    finish(done.map(|done| {
        notes(&done.damages);
        let text = format!(
            "exported {}, {}, {} in {}{}\n",
            format_count_with_noun(done.blocks, "block", "blocks"),
            format_count_with_noun(done.series, "series", "series"),
            format_count_with_noun(done.samples, "sample", "samples"),
            seconds(took),
            passed(done.passed)
        );
        (text, done.damages.is_empty())
    }))
}

/// Runs `firn tsdb create-blocks-from`.
pub fn run_create(env: &Env, matches: &ArgMatches) -> ExitCode {
    let Some((what, matches)) = matches.subcommand() else {
        return ExitCode::from(CANNOT);
    };
    let start = env.clock.monotonic();
    let done = match what {
        "rules" => rule_blocks::run(env, matches),
        _ => labels_of(matches).and_then(|labels| {
            let (text, folder) = (path_of(matches, "file"), folder_of(matches));
            openmetrics::import(env, &text, &folder, &labels)
        }),
    };
    let took = env.clock.monotonic().saturating_sub(start);
    finish(done.map(|imported| {
        if matches.get_flag("quiet") {
            return (String::new(), true);
        }
        let text = format!("imported {} in {}\n", made(&imported), seconds(took));
        (text, true)
    }))
}

/// Runs `firn tsdb dump` and `firn tsdb dump-openmetrics`.
pub fn run_dump(env: &Env, matches: &ArgMatches, form: DumpFormat) -> ExitCode {
    let done = range_of(matches).and_then(|range| {
        let form = match matches.try_get_one::<String>("format") {
            Ok(Some(format)) if format == "seriesjson" => DumpFormat::SeriesJson,
            _ => form,
        };
        let data = folder_of(matches);
        dump::dump(env, &data, &texts(matches, "match"), range, form)
    });
    finish(done.map(|damages| {
        notes(&damages);
        (String::new(), damages.is_empty())
    }))
}

/// Prints the summary or the error. Returns the exit code, a failure unless everything was
/// transferred.
pub fn finish(done: Result<(String, bool), Error>) -> ExitCode {
    match done {
        Ok((text, is_whole)) => {
            console::out(&text);
            ExitCode::from(u8::from(!is_whole))
        }
        Err(e) => {
            console::err(&format!("firn tsdb: {e}"));
            ExitCode::from(CANNOT)
        }
    }
}

fn notes(notes: &[String]) {
    for note in notes {
        console::err(&format!("note: {note}"));
    }
}

/// The created blocks, series and samples, in rounded numbers.
fn made(imported: &ImportSummary) -> String {
    format!(
        "{}, {}, {}, {}",
        format_count_with_noun(imported.blocks as u64, "block", "blocks"),
        format_count_with_noun(imported.series, "series", "series"),
        format_count_with_noun(imported.samples, "sample", "samples"),
        format_bytes(imported.bytes)
    )
}

/// Returns a note about the blocks and heads that an earlier run transferred; empty for none.
fn passed(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "; 1 was there already".to_owned(),
        _ => format!("; {count} were there already"),
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn path_of(matches: &ArgMatches, id: &str) -> PathBuf {
    matches.get_one::<PathBuf>(id).cloned().unwrap_or_default()
}

/// From the first time to the last, all of time where none is given.
fn range_of(matches: &ArgMatches) -> Result<TimeRange, Error> {
    let time = |id: &str, default: TimestampMs| match matches.get_one::<String>(id) {
        Some(text) => parse_time(text).ok_or_else(|| {
            let why = format!("--{id}: cannot parse {text:?} to a valid timestamp");
            Error::new(ErrorKind::Invalid, why)
        }),
        None => Ok(default),
    };
    // `export` has no times in milliseconds.
    let ms = |id: &str| {
        matches
            .try_get_one::<TimestampMs>(id)
            .ok()
            .flatten()
            .copied()
    };
    let (min, max) = (ms("min-time"), ms("max-time"));
    let range = TimeRange::new(
        time("from", min.unwrap_or(i64::MIN))?,
        time("to", max.unwrap_or(i64::MAX))?,
    );
    if range.min <= range.max {
        Ok(range)
    } else {
        Err(Error::new(ErrorKind::Invalid, "--from is later than --to"))
    }
}

/// Seconds since the epoch, or a time of RFC 3339.
pub fn parse_time(text: &str) -> Option<TimestampMs> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then(|| (seconds * 1e3).round() as i64);
    }
    i64::try_from(parse_rfc3339(text)?.div_euclid(1_000_000)).ok()
}
