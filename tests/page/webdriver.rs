//! A headless Chromium, driven over the WebDriver protocol (W3C,
//! <https://www.w3.org/TR/webdriver2/>).
//!
//! Implements only the commands that the tests of the page use. The driver and its browser end with
//! the [`Browser`].

use crate::harness::server::{DEADLINE, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Key of element references in WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A session with one window.
pub struct Browser {
    driver: Child,
    agent: ureq::Agent,
    /// URL of the session.
    session: String,
}

impl Browser {
    /// Starts chromedriver at a free port, and a browser with a light color scheme.
    pub fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver runs: `make install` installs it");
        let stdout = driver.stdout.take().expect("standard output is a pipe");
        let port = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| port_in(&line))
            .expect("chromedriver says its port");
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(DEADLINE))
            .http_status_as_error(false)
            .build();
        let mut browser = Self {
            driver,
            agent: config.into(),
            session: format!("http://127.0.0.1:{port}/session"),
        };
        // CI machines run as root and have a small /dev/shm; the page is trusted.
        let arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = browser.post("", capabilities);
        let id = session["sessionId"].as_str().expect("a session has an id");
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    /// Opens an address and waits until it is loaded.
    pub fn open(&self, address: &str) {
        self.post("/url", json!({"url": address}));
    }

    /// Sets the size of the window in pixels.
    pub fn resize(&self, width: u32, height: u32) {
        self.post("/window/rect", json!({"width": width, "height": height}));
    }

    /// Clicks on the element like a mouse.
    pub fn click(&self, selector: &str) {
        self.post(
            &format!("/element/{}/click", self.find(selector)),
            json!({}),
        );
    }

    /// Clears a field and types into it.
    pub fn fill(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.post(&format!("/element/{element}/clear"), json!({}));
        self.post(&format!("/element/{element}/value"), json!({"text": text}));
    }

    /// Runs a script in the page and returns its result.
    pub fn evaluate(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []}))
    }

    /// Runs a script until it returns `expected`.
    pub fn wait_until(&self, script: &str, expected: &Value) {
        wait_for(&format!("{script} to be {expected}"), || {
            self.evaluate(script) == *expected
        });
    }

    /// Returns errors on the console since the last call: exceptions, refused and failed requests.
    pub fn errors(&self) -> Vec<String> {
        let entries = self.post("/se/log", json!({"type": "browser"}));
        let entries = entries.as_array().expect("a log is a list");
        let is_error = |e: &&Value| e["level"] == "SEVERE";
        let message = |e: &Value| e["message"].as_str().unwrap_or_default().to_owned();
        entries.iter().filter(is_error).map(message).collect()
    }

    fn find(&self, selector: &str) -> String {
        let by_selector = json!({"using": "css selector", "value": selector});
        let found = self.post("/element", by_selector);
        let id = found[ELEMENT].as_str();
        id.expect("the answer names an element").to_owned()
    }

    fn post(&self, path: &str, body: Value) -> Value {
        let request = self.agent.post(format!("{}{path}", self.session));
        let mut response = request
            .content_type("application/json")
            .send(body.to_string())
            .unwrap_or_else(|e| panic!("{path}: {e}"));
        let is_success = response.status().is_success();
        let text = response.body_mut().read_to_string();
        let text = text.unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(is_success, "{path} {body}: {text}");
        let mut answer: Value = serde_json::from_str(&text).expect("WebDriver answers in JSON");
        answer["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser. If there is no answer, the end of the driver does.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn port_in(line: &str) -> Option<u16> {
    let (_, port) = line.rsplit_once("started successfully on port ")?;
    port.trim_end_matches('.').parse().ok()
}
