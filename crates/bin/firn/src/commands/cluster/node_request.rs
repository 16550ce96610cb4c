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
use serde_json::Value;
use std::time::{Duration, Instant};

/// Maximum wait of `drain --wait`: each hand-off takes about a second.
const DRAIN_DEADLINE: Duration = Duration::from_secs(300);

/// The pause between two looks at the partitions of a node that drains.
const DRAIN_PAUSE: Duration = Duration::from_millis(200);

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
        .arg(switch("undo", "Let the node take over partitions again").conflicts_with("wait"))
        .arg(switch(
            "wait",
            "Wait until the node leads no partition, for at most five minutes",
        ))
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
    let client = open_client(arguments)?;
    let answer = client.post_form(path, &Vec::new()).map_err(failure)?;
    let body = String::from_utf8_lossy(&answer.body);
    let body: String = body.trim_end().chars().take(QUOTED_CHARS_MAX).collect();
    if answer.status != StatusCode::OK {
        let text = format!("{}: status {}: {body}", answer.url, answer.status.as_u16());
        return Err(ClusterCommandFailure::Node(text));
    }
    if arguments.get_flag("wait") {
        wait_until_drained(&client)?;
        return Ok(("The node leads no partition.".to_owned(), true));
    }
    Ok((body, true))
}

/// Returns when the node leads no partition and takes over none.
fn wait_until_drained(client: &CommandClient) -> Result<(), ClusterCommandFailure> {
    let begin = Instant::now();
    loop {
        let data = query::get(client, "/api/v1/status/cluster", &Vec::new())
            .map_err(|e| ClusterCommandFailure::Node(e.to_string()))?;
        let held = held_partitions(&data);
        if held.is_empty() {
            return Ok(());
        }
        if begin.elapsed() >= DRAIN_DEADLINE {
            let text = format!(
                "after {DRAIN_DEADLINE:?} the node still leads the partitions {}",
                held.join(", ")
            );
            return Err(ClusterCommandFailure::Node(text));
        }
        std::thread::sleep(DRAIN_PAUSE);
    }
}

/// Returns the numbers of the partitions that the reporting node leads or takes over.
fn held_partitions(data: &Value) -> Vec<String> {
    let partitions = data["partitions"].as_array().into_iter().flatten();
    let is_held = |partition: &&Value| {
        partition["leader"] == data["node"]
            || !["following", "unowned"].contains(&partition["state"].as_str().unwrap_or_default())
    };
    let held = partitions.filter(is_held);
    held.map(|partition| partition["partition"].to_string())
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn held_partitions_are_those_that_the_node_leads_hands_off_or_takes_over() {
        let partition = |number: u32, leader: Option<&str>, state: &str| {
            let mut partition = json!({ "partition": number, "state": state });
            partition["leader"] = json!(leader);
            partition
        };
        let data = json!({ "node": "a", "partitions": [
            partition(0, Some("b"), "following"),
            partition(1, Some("a"), "leading"),
            partition(2, None, "unowned"),
            partition(3, None, "replaying"),
            partition(4, Some("a"), "handing_off"),
        ] });
        assert_eq!(held_partitions(&data), ["1", "3", "4"]);
    }
}
