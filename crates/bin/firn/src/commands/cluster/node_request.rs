//! `firn cluster status` and `firn cluster drain`: requests to a running node of a cluster.
//!
//! Invariant: a command reports success only if the node answered so. This module leaves the text
//! of the status to [`super::status_report`].

use super::ClusterCommandFailure;
use super::status_report::StatusReport;
use crate::commands::arguments::switch;
use crate::commands::client::{CommandClient, CommandClientError, http_config, http_config_of};
use crate::commands::query;
use clap::{Arg, ArgMatches, Command};
use hyper::StatusCode;

/// Maximum length in characters of a response that is quoted in an error.
const QUOTED_CHARS_MAX: usize = 300;

/// Returns the command lines of the subcommands that ask a node.
pub(super) fn commands() -> [Command; 2] {
    let url = Arg::new("node")
        .value_name("URL")
        .required(true)
        .help("URL or address of a node, for example localhost:9090");
    let status = Command::new("status")
        .about("Show the nodes and the partitions of a cluster")
        .after_help(
            "Each node answers, also while it starts. The exit code is 0 if all partitions have a \
             leader, none has a fault, and all nodes answer each other.",
        )
        .arg(url.clone())
        .arg(switch("json", "Print the response of the node as JSON"))
        .arg(http_config());
    let drain = Command::new("drain")
        .about("Hand off the partitions of a node, before maintenance")
        .after_help(
            "The node hands off its partitions and takes over none until it restarts or until \
             --undo. It goes on to accept writes and queries. The node needs the flag \
             --web.enable-lifecycle. A node that stops by SIGTERM hands off without a drain.",
        )
        .arg(url)
        .arg(switch("undo", "Let the node take over partitions again"))
        .arg(http_config());
    [status, drain]
}

/// Returns the state of the cluster as text, and whether it is sound.
pub(super) fn show_status(arguments: &ArgMatches) -> Result<(String, bool), ClusterCommandFailure> {
    let client = open_client(arguments)?;
    let data = query::get(&client, "/api/v1/status/cluster", &Vec::new())
        .map_err(|e| ClusterCommandFailure::Node(e.to_string()))?;
    let report = StatusReport::from_data(&data).map_err(ClusterCommandFailure::Node)?;
    if arguments.get_flag("json") {
        let text = serde_json::to_string_pretty(&data);
        let text = text.map_err(|e| ClusterCommandFailure::Node(e.to_string()))?;
        return Ok((text, report.is_sound));
    }
    Ok((report.text, report.is_sound))
}

/// Starts or ends the drain of a node. Returns its response.
pub(super) fn drain(arguments: &ArgMatches) -> Result<(String, bool), ClusterCommandFailure> {
    let path = if arguments.get_flag("undo") {
        "/-/undrain"
    } else {
        "/-/drain"
    };
    let answer = open_client(arguments)?.post_form(path, &Vec::new());
    let answer = answer.map_err(failure)?;
    let body = String::from_utf8_lossy(&answer.body);
    let body: String = body.trim_end().chars().take(QUOTED_CHARS_MAX).collect();
    if answer.status == StatusCode::OK {
        return Ok((body, true));
    }
    let text = format!("{}: status {}: {body}", answer.url, answer.status.as_u16());
    Err(ClusterCommandFailure::Node(text))
}

fn open_client(arguments: &ArgMatches) -> Result<CommandClient, ClusterCommandFailure> {
    // clap requires the argument.
    let url = arguments.get_one::<String>("node").map_or("", |url| url);
    let config = http_config_of(arguments).map(std::path::PathBuf::as_path);
    CommandClient::new(url, config, &[]).map_err(failure)
}

fn failure(error: CommandClientError) -> ClusterCommandFailure {
    match error {
        CommandClientError::Settings(text) => ClusterCommandFailure::Settings(text),
        CommandClientError::Transport(text) => ClusterCommandFailure::Node(text),
    }
}
