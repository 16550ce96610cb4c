//! `firn scenario`: starts two systems, mirrors a load to both while steps disturb them, compares
//! their answers, and checks the conditions of the scenario.
//!
//! ```text
//! load -> mirror -> baseline
//!             \---> candidate   <- steps: kill, pause, restart, upgrade, fill
//!             \- -> others      <- steps: add, remove
//! queues are empty -> compare -> checks -> result
//! ```
//!
//! All parts run as separate processes, as users run them: `firn load`, `firn mirror` and the
//! commands of the file. Invariant: the directory of a run contains the scenario, the files that it
//! names, all logs, the report and the result. An interrupted run continues where it stopped, and
//! the scenario of a directory can be run again elsewhere. No process outlives its run; those of a
//! killed run are ended by the next one.

mod alerts;
mod checks;
mod filler;
mod plan;
mod process;
mod run;
mod running;
mod state;

use crate::error::MirrorError;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, value_parser};
use plan::ScenarioPlan;
pub use process::StopFlag;
use run::ScenarioRun;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns the command `firn scenario` with its flags, for parsing, help, completions and man
/// pages.
pub fn command() -> Command {
    Command::new("scenario")
        .bin_name("firn scenario")
        .about("Run two systems side by side while one of them is killed, stopped or upgraded")
        .long_about(
            "Starts the baseline and the candidate of a scenario, mirrors a load to both while \
             steps run, compares their answers, and checks the scenario's conditions. Exit code \
             0: all checks pass. 1: a check or a process fails. 2: a flag or a file is not valid.",
        )
        .args([
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Scenario file, in YAML"),
            Arg::new("run")
                .long("run")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Folder of the run; an interrupted run continues from its last step"),
            Arg::new("set")
                .long("set")
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .help("Value of a variable, written {NAME} in commands; may be repeated"),
        ])
}

/// Runs `firn scenario` with the arguments that follow the subcommand; `firn` is the path of this
/// program. Returns whether all checks pass. Fails with [`MirrorError::Stopped`] soon after `stop`
/// is set, when its processes have ended.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    firn: &Path,
    stop: &StopFlag,
    out: &mut dyn Write,
) -> Result<bool, MirrorError> {
    let args = std::iter::once("scenario".into()).chain(args);
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(e) if e.kind() == ErrorKind::DisplayHelp => {
            write(out, &e.render().to_string())?;
            return Ok(true);
        }
        Err(e) => return Err(e.into()),
    };
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned().unwrap_or_default();
    let mut settings = vec![("firn".to_owned(), firn.display().to_string())];
    for text in matches.get_many::<String>("set").into_iter().flatten() {
        match text.split_once('=') {
            Some((name, value)) => settings.push((name.to_owned(), value.to_owned())),
            None => {
                return Err(MirrorError::Usage(format!(
                    "--set: expected NAME=VALUE: {text:?}"
                )));
            }
        }
    }
    let plan = ScenarioPlan::read(&path("file"), &path("run"), &settings)?;
    ScenarioRun::open(plan, &path("run"), firn, stop.clone())?.finish(out)
}

fn write(out: &mut dyn Write, text: &str) -> Result<(), MirrorError> {
    out.write_all(text.as_bytes())
        .map_err(MirrorError::file("write", Path::new("progress")))
}
