//! The commands of `firn cluster`: `check` tests whether an object store can carry the log of a
//! cluster, `audit` tests whether the objects of a cluster fit each other, `status` and `drain`
//! show and control running nodes.
//!
//! The exit code is 0 if the store passed, the objects fit, the cluster is sound or the node
//! drains, 1 if not or if the command could not finish, and 2 if the URL or the settings are
//! invalid.
//! `check` removes the objects that it creates; `audit` and `status` only read.

mod node_request;
mod status_report;

use super::arguments::NOT_UNDERSTOOD;
use crate::console;
use clap::{Arg, ArgMatches, Command, value_parser};
use firn_bucket::{
    AwsEnvironment, BucketMetrics, BucketOptions, CheckOptions, ObjectStoreBucket, StoreVerdict,
    check_store,
};
use firn_cluster::node::read_format;
use firn_config::config::{JobFeatures, load_alone};
use firn_model::env::{Env, real};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

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
        .arg(url.clone())
        .arg(config.clone());
    let audit = Command::new("audit")
        .about("Test whether the objects of a cluster fit each other")
        .after_help(
            "Reads the log of each partition from the begin of a replay on, the newest checkpoint \
             and the sizes of all blocks. Lists gaps, damage, blocks that are missing, and objects \
             that belong to nothing. A running cluster may be audited.",
        )
        .arg(url)
        .arg(config);
    Command::new("cluster")
        .about("Show, drain and check a cluster and its object store")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([check, audit])
        .subcommands(node_request::commands())
}

/// Runs `firn cluster` with the parsed arguments `matches` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let Some((name, arguments)) = matches.subcommand() else {
        return ExitCode::from(NOT_UNDERSTOOD);
    };
    let outcome = match name {
        "audit" => audit(arguments),
        "drain" => node_request::drain(arguments),
        "status" => node_request::show_status(arguments),
        _ => check(arguments),
    };
    match outcome {
        Ok((report, is_passed)) => {
            console::out(&format!("{report}\n"));
            if is_passed {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(ClusterCommandFailure::Settings(error)) => {
            console::err(&format!("firn cluster {name}: {error}"));
            ExitCode::from(NOT_UNDERSTOOD)
        }
        Err(ClusterCommandFailure::Process(error)) => {
            console::err(&format!("firn cluster {name}: start: {error}"));
            ExitCode::FAILURE
        }
        Err(ClusterCommandFailure::Bucket(error) | ClusterCommandFailure::Node(error)) => {
            console::err(&format!("firn cluster {name}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The reason why a command has no report.
enum ClusterCommandFailure {
    /// The URL or a setting from the environment is invalid.
    Settings(String),
    /// The process could not start threads or read its clock.
    Process(std::io::Error),
    /// The bucket does not answer, or contains no cluster.
    Bucket(String),
    /// The node does not answer, rejects the request, or is in no cluster.
    Node(String),
}

/// Returns the URL and the options of the arguments `url` and `config`.
fn place(arguments: &ArgMatches) -> Result<(String, BucketOptions), ClusterCommandFailure> {
    let url = arguments.get_one::<String>("url").cloned();
    let Some(file) = arguments.get_one::<PathBuf>("config") else {
        // clap requires one of the two.
        return Ok((url.unwrap_or_default(), BucketOptions::default()));
    };
    let features = JobFeatures::from_names(&[]);
    let config =
        load_alone(file, features).map_err(|e| ClusterCommandFailure::Settings(e.to_string()))?;
    let Some(cluster) = config.cluster else {
        let text = format!("{}: there is no section firn.cluster", file.display());
        return Err(ClusterCommandFailure::Settings(text));
    };
    Ok((url.unwrap_or(cluster.bucket), cluster.bucket_options))
}

/// The bucket of a command, and the threads that it needs.
struct OpenedBucket {
    bucket: ObjectStoreBucket,
    env: Env,
    _runtime: Runtime,
}

fn open(arguments: &ArgMatches) -> Result<OpenedBucket, ClusterCommandFailure> {
    let (url, options) = place(arguments)?;
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(ClusterCommandFailure::Process)?;
    let env = real::system_env().map_err(ClusterCommandFailure::Process)?;
    let bucket = ObjectStoreBucket::open(
        &url,
        &options,
        &AwsEnvironment::of_process(),
        runtime.handle(),
        Arc::new(BucketMetrics::default()),
    )
    .map_err(|error| ClusterCommandFailure::Settings(error.to_string()))?;
    Ok(OpenedBucket {
        bucket,
        env,
        _runtime: runtime,
    })
}

/// Returns the report of the test of a store, and whether the store passed.
fn check(arguments: &ArgMatches) -> Result<(String, bool), ClusterCommandFailure> {
    let opened = open(arguments)?;
    let options = CheckOptions::new(opened.env.rng.next_u64());
    let report = check_store(&opened.bucket, &opened.env.clock, &options);
    let is_passed = report.verdict == StoreVerdict::Accepted;
    Ok((report.to_string(), is_passed))
}

/// Returns the report of the audit of a cluster, and whether its objects fit each other.
fn audit(arguments: &ArgMatches) -> Result<(String, bool), ClusterCommandFailure> {
    let opened = open(arguments)?;
    let format = read_format(&opened.bucket);
    let format = format.map_err(|e| ClusterCommandFailure::Bucket(e.to_string()))?;
    let Some(format) = format else {
        let text = "the bucket contains no cluster: there is no object cluster/format".to_owned();
        return Err(ClusterCommandFailure::Bucket(text));
    };
    let report = firn_cluster::audit::audit(&opened.bucket, &format);
    let report = report.map_err(|e| ClusterCommandFailure::Bucket(e.to_string()))?;
    Ok((report.to_string(), report.is_sound()))
}
