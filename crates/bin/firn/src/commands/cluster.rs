//! The command `firn cluster check URL`: tests whether an object store can carry the log of a
//! cluster.
//!
//! The exit code is 0 if the store passed, 1 if it failed or if the test could not finish, and 2 if
//! the URL or the settings are invalid. The command removes the objects that it creates.

use super::arguments::NOT_UNDERSTOOD;
use crate::console;
use clap::{Arg, ArgMatches, Command};
use firn_bucket::{
    AwsEnvironment, BucketMetrics, BucketOptions, CheckOptions, ObjectStoreBucket, StoreReport,
    StoreVerdict, check_store,
};
use firn_model::env::real;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::Builder;

/// Returns the command line of `firn cluster` with its subcommand: arguments and help texts.
pub fn command() -> Command {
    let url = Arg::new("url")
        .value_name("URL")
        .required(true)
        .help("Bucket or folder: s3://bucket/prefix or file:///path");
    let check = Command::new("check")
        .about("Test whether an object store can carry the log of a cluster")
        .after_help(
            "Sixteen clients race to create forty objects: exactly one may win each. The test then \
             reads, lists and deletes them.\n\nThe endpoint, the region and the credentials are \
             taken from the environment: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, \
             AWS_SECRET_ACCESS_KEY and so on.",
        )
        .arg(url);
    Command::new("cluster")
        .about("Tools for the object store of a cluster")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(check)
}

/// Runs `firn cluster` with the parsed arguments `matches` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let url = matches
        .subcommand()
        .and_then(|(_, check)| check.get_one::<String>("url"));
    let Some(url) = url else {
        return ExitCode::from(NOT_UNDERSTOOD);
    };
    match check(url) {
        Ok(report) => {
            console::out(&format!("{report}\n"));
            match report.verdict {
                StoreVerdict::Accepted => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        }
        Err(CheckFailure::Settings(error)) => {
            console::err(&format!("firn cluster check: {error}"));
            ExitCode::from(NOT_UNDERSTOOD)
        }
        Err(CheckFailure::Process(error)) => {
            console::err(&format!("firn cluster check: start: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The reason why a check could not start.
enum CheckFailure {
    /// The URL or a setting from the environment is invalid.
    Settings(String),
    /// The process could not start threads or read its clock.
    Process(std::io::Error),
}

fn check(url: &str) -> Result<StoreReport, CheckFailure> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(CheckFailure::Process)?;
    let env = real::system_env().map_err(CheckFailure::Process)?;
    let bucket = ObjectStoreBucket::open(
        url,
        &BucketOptions::default(),
        &AwsEnvironment::of_process(),
        runtime.handle(),
        Arc::new(BucketMetrics::default()),
    )
    .map_err(|error| CheckFailure::Settings(error.to_string()))?;
    let options = CheckOptions::new(env.rng.next_u64());
    Ok(check_store(&bucket, &env.clock, &options))
}
