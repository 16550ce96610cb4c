//! The page of a cluster: nodes and partitions in all states, also before the node is ready and in a
//! narrow window.

use crate::canned_node::CannedNode;
use crate::webdriver::Browser;
use serde_json::{Value, json};

/// Script that returns the texts of the cells of the second table, by row.
const PARTITIONS: &str = "return [...document.querySelectorAll('.part:nth-of-type(2) tbody tr')]
    .map((row) => [...row.cells].map((cell) => cell.textContent))";

fn status(last_state: &str, fault: Option<&str>) -> Value {
    let mut second = json!({
        "partition": 1, "epoch": 2, "state": last_state, "position": 9,
    });
    if let Some(fault) = fault {
        second["fault"] = json!(fault);
    }
    json!({
        "enabled": true, "cluster": "0f1e", "node": "a", "version": "0.1.0", "draining": false,
        "time": 10_000_000,
        "nodes": [
            {"name": "a", "address": "10.0.0.1:9190", "version": "0.1.0", "state": "alive",
             "partitionsLed": 1},
            {"name": "b", "address": "10.0.0.2:9190", "version": "0.1.0", "state": "silent",
             "seenSecondsAgo": 190.2, "partitionsLed": 0},
        ],
        "partitions": [
            {"partition": 0, "leader": "a", "epoch": 3, "state": "leading", "position": 42,
             "series": 1500, "cutTime": 1_000_000,
             "lastCommitTime": 9_990_000, "logBytes": 2048},
            second,
        ],
    })
}

#[test]
fn page_of_a_cluster_follows_the_state_of_a_node_that_is_not_ready() {
    let node = CannedNode::start(status("replaying", None));
    let browser = Browser::start();
    browser.open(&format!("http://{}/cluster", node.address));
    let led = [
        "0",
        "a",
        "leading",
        "3",
        "42",
        "1.5k",
        "2 KiB",
        "2h30m ago",
        "10s ago",
    ];
    let replaying = ["1", "none", "replaying", "2", "9", "–", "–", "–", "–"];
    browser.wait_until(PARTITIONS, &json!([led, replaying]));
    let nodes = "return [...document.querySelectorAll('.part:nth-of-type(1) tbody tr')]
        .map((row) => [row.cells[0].textContent, row.cells[3].textContent])";
    browser.wait_until(nodes, &json!([["a", "this node"], ["b", "3m10s ago"]]));
    node.set_status(status("unowned", Some("<b>the bucket is away</b>")));
    let fault = "return document.querySelector('.part td p.trouble')?.textContent";
    browser.wait_until(fault, &json!("<b>the bucket is away</b>"));
    node.set_status(json!({"enabled": false}));
    let empty = "return document.querySelector('.empty')?.textContent";
    let text = "This server is not a node of a cluster: firn.cluster is not set.";
    browser.wait_until(empty, &json!(text));
}

#[test]
fn page_of_a_cluster_fits_a_window_of_400_pixels() {
    let node = CannedNode::start(status("taking_over", None));
    let browser = Browser::start();
    browser.resize(400, 800);
    browser.open(&format!("http://{}/cluster", node.address));
    let badges = "return [...document.querySelectorAll('.badge')].map((b) => b.textContent)";
    let want = json!(["alive", "silent", "leading", "taking over"]);
    browser.wait_until(badges, &want);
    let is_fitting = "const cells = [...document.querySelectorAll('.part td')];
        return innerWidth <= 500 && cells.length === 30
            && cells.every((cell) => cell.getBoundingClientRect().right <= innerWidth)
            && document.documentElement.scrollWidth <= innerWidth";
    browser.wait_until(is_fitting, &json!(true));
    let background =
        "return getComputedStyle(document.querySelector('.badge.silent')).backgroundColor";
    let light = browser.evaluate(background);
    browser.click("#theme");
    browser.click("#theme");
    let theme = "return document.documentElement.dataset.theme";
    browser.wait_until(theme, &json!("dark"));
    assert_ne!(browser.evaluate(background), light);
}
