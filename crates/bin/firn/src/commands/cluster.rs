//! The command `firn cluster check URL`: tests whether an object store can carry the log of a
//! cluster.
//!
//! The exit code is 0 if the store passed, 1 if it failed or if the test could not finish, and 2 if
//! the URL or the settings are invalid. The command removes the objects that it creates.

use super::arguments::NOT_UNDERSTOOD;
use crate::console;
use clap::{Arg, ArgMatches, Command, value_parser};
use firn_bucket::{
    AwsEnvironment, BucketMetrics, BucketOptions, CheckOptions, ObjectStoreBucket, StoreReport,
    StoreVerdict, check_store,
};
use firn_config::config::{JobFeatures, load_alone};
use firn_model::env::real;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::Builder;

/// Returns the command line of `firn cluster` with its subcommand: arguments and help texts.
pub fn command() -> Command {
    let url = Arg::new("url")
        .value_name("URL")
        .required_unless_present("config")
        .help("Bucket or folder: s3://bucket/prefix or file:///path. Overrides that of the config");
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Config file of a node, whose section firn.cluster has the URL and its options");
    let check = Command::new("check")
        .about("Test whether an object store can carry the log of a cluster")
        .after_help(
            "Sixteen clients race to create forty objects: exactly one may win each. The test then \
             reads, lists and deletes them.\n\nThe endpoint, the region and the credentials are \
             taken from --config, else from the environment: AWS_ENDPOINT_URL, AWS_REGION, \
             AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and so on.",
        )
        .arg(url)
        .arg(config);
    Command::new("cluster")
        .about("Tools for the object store of a cluster")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(check)
}

/// Runs `firn cluster` with the parsed arguments `matches` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let Some((_, arguments)) = matches.subcommand() else {
        return ExitCode::from(NOT_UNDERSTOOD);
    };
    match check(arguments) {
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

/// Returns the URL and the options of the arguments `url` and `config`.
fn place(arguments: &ArgMatches) -> Result<(String, BucketOptions), CheckFailure> {
    let url = arguments.get_one::<String>("url").cloned();
    let Some(file) = arguments.get_one::<PathBuf>("config") else {
        // clap requires one of the two.
        return Ok((url.unwrap_or_default(), BucketOptions::default()));
    };
    let features = JobFeatures::from_names(&[]);
    let config = load_alone(file, features).map_err(|e| CheckFailure::Settings(e.to_string()))?;
    let Some(cluster) = config.cluster else {
        let text = format!("{}: there is no section firn.cluster", file.display());
        return Err(CheckFailure::Settings(text));
    };
    Ok((url.unwrap_or(cluster.bucket), cluster.bucket_options))
}

fn check(arguments: &ArgMatches) -> Result<StoreReport, CheckFailure> {
    let (url, options) = place(arguments)?;
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(CheckFailure::Process)?;
    let env = real::system_env().map_err(CheckFailure::Process)?;
    let bucket = ObjectStoreBucket::open(
        &url,
        &options,
        &AwsEnvironment::of_process(),
        runtime.handle(),
        Arc::new(BucketMetrics::default()),
    )
    .map_err(|error| CheckFailure::Settings(error.to_string()))?;
    let options = CheckOptions::new(env.rng.next_u64());
    Ok(check_store(&bucket, &env.clock, &options))
}
