//! The web page in a real browser: content, typing and clicks of a new user.
// A test fails by a panic, and its output is shown then.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod canned_node;
mod cluster;
#[path = "../harness/mod.rs"]
// Each test program uses a part of the harness.
#[allow(dead_code)]
mod harness;
mod webdriver;

use harness::server::Server;
use harness::webhook::Webhook;
use harness::write::{Series, body};
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};
use webdriver::Browser;

/// Script that counts the cards of the dashboard with a number and a line: their pixels have more
/// colors than background, grid and letters.
const DRAWN_CARDS: &str = r#"
    const isDrawn = (card) => {
        const canvas = card.querySelector("canvas");
        if (!canvas?.width || !/\d/.test(card.querySelector(".now").textContent)) return false;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let coloured = 0;
        for (let i = 0; i < data.length; i += 4) {
            const rgb = [data[i], data[i + 1], data[i + 2]];
            if (data[i + 3] > 128 && Math.max(...rgb) - Math.min(...rgb) > 60) coloured += 1;
        }
        return coloured > 10;
    };
    return [...document.querySelectorAll(".card")].filter(isDrawn).length >= 6;"#;

const RULES: &str = r#"
groups:
- name: shop
  interval: 200ms
  rules:
  - {record: shop:answer, expr: "vector(42)"}
  - alert: Empty
    expr: vector(91.5) > bool 90 == 1
    annotations: {summary: the shop is empty}
"#;

struct Page {
    server: Server,
    browser: Browser,
    _data: tempfile::TempDir,
}

impl Page {
    fn open() -> Self {
        let page = Self::of(tempfile::tempdir().unwrap(), &[]);
        page.go("/");
        page.browser.wait_until(
            "return document.querySelectorAll('.expr').length",
            &json!(1),
        );
        page
    }

    /// Starts a server with a scrape job, rules, and alerts that are sent to `webhook`.
    fn with_rules(webhook: &Webhook) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = format!(
            "scrape_configs:
- job_name: shop
  scrape_interval: 1s
  static_configs: [{{targets: ['127.0.0.1:1'], labels: {{zone: a}}}}]
rule_files: [rules.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{}']}}]}}]}}
",
            webhook.address
        );
        std::fs::write(dir.path().join("firn.yml"), config).unwrap();
        std::fs::write(dir.path().join("rules.yml"), RULES).unwrap();
        let file = dir.path().join("firn.yml").display().to_string();
        Self::of(dir, &["--config", &file])
    }

    fn of(dir: tempfile::TempDir, flags: &[&str]) -> Self {
        Self {
            server: Server::start(&dir.path().join("data"), flags),
            browser: Browser::start(),
            _data: dir,
        }
    }

    /// Opens a path of the server.
    fn go(&self, path: &str) {
        self.browser
            .open(&format!("http://{}{path}", self.server.address));
    }

    /// Types an expression and executes it.
    fn ask(&self, expr: &str) {
        self.browser.fill(".expr", expr);
        // A list of completions covers the button until the editor loses the focus.
        self.browser.evaluate("document.activeElement.blur()");
        self.browser.click(".run");
    }

    /// Waits until `script` returns `expected`, and then checks that the console has no errors.
    fn check(&self, script: &str, expected: serde_json::Value) {
        self.browser.wait_until(script, &expected);
        let errors = self.browser.errors();
        assert!(errors.is_empty(), "after {script}: {errors:?}");
    }
}

#[test]
fn page_at_first_sight_draws_own_metrics() {
    let page = Page::open();
    page.check(DRAWN_CARDS, json!(true));
    page.check("return document.title", json!("Firn"));
}

#[test]
fn page_expression_is_graph_and_table() {
    let page = Page::open();
    page.ask("vector(40) + 2");
    page.check(
        "return document.querySelectorAll('.panel .legend li').length",
        json!(1),
    );
    page.browser.click("[data-tab=table]");
    page.check(
        "return document.querySelector('.panel td.number')?.textContent",
        json!("42"),
    );
    page.check(
        "return new URLSearchParams(location.search).get('g0.expr')",
        json!("vector(40) + 2"),
    );
    // The address alone restores the page, like a link in a chat.
    let address = page.browser.evaluate("return location.href");
    page.browser.open(address.as_str().unwrap());
    page.check(
        "return document.querySelector('.panel td.number')?.textContent",
        json!("42"),
    );
}

#[test]
fn page_wrong_expression_shows_error_with_place() {
    let page = Page::open();
    page.ask("rate(up)");
    page.browser.wait_until(
        "return document.querySelector('.messages .error')?.textContent",
        &json!(
            "bad_data: invalid parameter \"query\": 1:6: parse error: expected type range vector \
             in call to function \"rate\", got instant vector"
        ),
    );
    page.ask("vector(1)");
    page.browser.wait_until(
        "return document.querySelectorAll('.messages .error').length",
        &json!(0),
    );
}

#[test]
fn page_label_with_markup_stays_text() {
    let page = Page::open();
    let markup = "<img src=x onerror=\"window.hacked = true\">";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let labels = [("__name__", "hostile"), ("name", markup)];
    let series = Series::new(&labels, &[(now.as_millis() as i64, 1.0)]);
    let answer = page.server.http().write(&body(&[series]));
    assert_eq!(answer.status, 204, "{}", answer.body);
    page.ask("hostile");
    page.check(
        "return document.querySelector('.panel .legend li')?.textContent.includes('onerror')",
        json!(true),
    );
    page.browser.click("[data-tab=table]");
    page.check(
        "return document.querySelector('.panel td')?.textContent.includes('onerror')",
        json!(true),
    );
    page.check(
        "return [window.hacked ?? null, document.querySelectorAll('main img').length]",
        json!([null, 0]),
    );
}

#[test]
fn page_theme_button_turns_page_dark_and_back() {
    let page = Page::open();
    let background = "return getComputedStyle(document.body).backgroundColor";
    let themes = "return document.documentElement.dataset.theme";
    page.browser.wait_until(themes, &json!("light"));
    let light = page.browser.evaluate(background);
    // From the system's theme to light, and then to dark.
    page.browser.click("#theme");
    page.browser.click("#theme");
    page.browser.wait_until(themes, &json!("dark"));
    assert_ne!(page.browser.evaluate(background), light);
    page.browser.click("#theme");
    page.check(themes, json!("light"));
}

#[test]
fn page_link_of_an_alert_opens_its_expression() {
    let webhook = Webhook::start();
    let page = Page::with_rules(&webhook);
    let alert = webhook.next_alert(|alert| alert["labels"]["alertname"] == "Empty");
    let link = alert["generatorURL"].as_str().unwrap();
    let (_, query) = link.split_once("/graph?").unwrap();
    page.go(&format!("/graph?{query}"));
    page.check(
        "return document.querySelector('.expr')?.value",
        json!("vector(91.5) > bool 90 == 1"),
    );
    page.check(
        "return document.querySelector('.panel td.number')?.textContent",
        json!("1"),
    );
}

#[test]
fn page_old_links_keep_expression_tab_range_and_way_back() {
    let page = Page::open();
    let state = "return [...document.querySelectorAll('.panel')].map((panel) => [
        panel.querySelector('.expr').value, panel.querySelector('.range').value,
        panel.querySelector('.tab.active').dataset.tab])";
    for (link, expected) in [
        (
            "/graph?g0.expr=vector(1)&g0.tab=0&g0.range_input=2h",
            json!([["vector(1)", "2h", "graph"]]),
        ),
        (
            "/query?g0.expr=vector(1)&g0.tab=table&g0.range_input=30m",
            json!([["vector(1)", "30m", "table"]]),
        ),
        (
            "/graph?g1.expr=vector(2)&g1.tab=1&g3.expr=vector(3)",
            json!([["vector(2)", "1h", "table"], ["vector(3)", "1h", "graph"]]),
        ),
    ] {
        page.go("/");
        page.go(link);
        page.check(state, expected);
        page.browser.evaluate("history.back()");
        page.check("return location.pathname + location.search", json!("/"));
    }
}

#[test]
fn page_paths_of_prometheus_show_what_they_name() {
    let page = Page::with_rules(&Webhook::start());
    let cases = [
        ("/targets", "Targets", "http://127.0.0.1:1/metrics"),
        ("/service-discovery", "Discovery", "__scrape_interval__"),
        ("/rules", "Rules", "shop:answer"),
        ("/alerts", "Alerts", "the shop is empty"),
        ("/alertmanager-discovery", "Alertmanagers", "/api/v2/alerts"),
        ("/config", "Configuration", "job_name: shop"),
        ("/flags", "Flags", "storage.tsdb.retention.time"),
        ("/status", "Status", "startTime"),
        ("/agent", "Status", "startTime"),
        ("/tsdb-status", "Head", "numSeries"),
        ("/targets?search=shop", "Targets", "127.0.0.1:1"),
    ];
    for (path, title, text) in cases {
        page.go(path);
        let shown = format!(
            "return [document.title, document.querySelector('#view').innerText.includes({}),
                document.querySelectorAll('.expr').length]",
            json!(text)
        );
        page.check(&shown, json!([format!("{title} – Firn"), true, 0]));
    }
    page.go("/targets?search=elsewhere");
    page.check(
        "return [...document.querySelectorAll('.part')].map((part) => part.hidden)",
        json!([true]),
    );
    page.go("/rules");
    page.browser
        .wait_until("return document.querySelectorAll('td a').length", &json!(2));
    page.browser.click("td a");
    page.check(
        "return document.querySelector('.panel td.number')?.textContent",
        json!("42"),
    );
}
