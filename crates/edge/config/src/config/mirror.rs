//! Config of `firn mirror`: its targets, each with a queue, filters, and the HTTP client settings
//! of a `remote_write` receiver.

use super::load::{ConfigError, read_file, with_file_path};
use ConfigValueShape::{List, Map, Number, Secret, Section, Size, Text, Url};
use firn_config_schema::schema::{
    ConfigFindings, ConfigKey, ConfigValueShape, KeyGroups, TEXTS, key, walk,
};
use firn_config_schema::section::ConfigSection;
use firn_http_client::http_config::{HTTP_CLIENT, http, is_reserved};
use firn_http_client::{HeaderValueSource, HttpSettings};
use firn_model::matcher::Matcher;
use firn_promql::parser::parse_selector;
use firn_remote_write::forward::host_and_port;
use firn_remote_write::queue::{PASSED_HEADERS, TargetSeriesFilter};
use firn_yaml::{YamlError, YamlNode};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const KEYS: KeyGroups = &[&[key("targets", List(&Section(TARGET))).required()]];

const TARGET: KeyGroups = &[
    &[
        key("url", Url).required(),
        key("name", Text),
        key("match", TEXTS),
        key("sampling", Number),
        key("headers", Map(&Secret)),
        key("remote_timeout", ConfigValueShape::Duration).or("30s"),
        key("queue", Section(&[QUEUE])),
    ],
    HTTP_CLIENT,
];

const QUEUE: &[ConfigKey] = &[
    // Two hours of samples of 100,000 series, because a candidate may be down that long for an
    // upgrade.
    key("max_bytes", Size).or("1GiB"),
    key("max_age", ConfigValueShape::Duration),
    // The defaults of `queue_config`.
    key("min_backoff", ConfigValueShape::Duration).or("30ms"),
    key("max_backoff", ConfigValueShape::Duration).or("5s"),
];

/// Settings of one target of the mirror, with all defaults applied, from a config file or from a
/// URL on the command line.
#[derive(Clone, Debug)]
pub struct MirrorTarget {
    /// URL that request bodies are posted to, as configured.
    pub url: String,
    /// Key of the target's cursor in the queue: its name, else its URL.
    pub key: String,
    /// Name of the target in metrics and logs: its name, or host and port.
    pub label: String,
    /// Maximum bytes of requests that wait for the target on disk.
    pub queue_bytes_max: u64,
    /// Maximum time that a request waits for the target, or `None` without a limit.
    pub queue_age_max: Option<Duration>,
    /// First and maximum pause after a failed attempt to deliver a request.
    pub backoff: (Duration, Duration),
    /// Maximum duration of an attempt to deliver a request.
    pub timeout: Duration,
    /// Selection of the series that the target gets, by matchers and ratio.
    pub filter: TargetSeriesFilter,
    /// Settings of the HTTP client: authentication, TLS and proxy.
    pub http: HttpSettings,
}

/// Reads and validates a config file with targets. At least one is required.
pub fn load(path: &Path) -> Result<Vec<MirrorTarget>, ConfigError> {
    let text = read_file(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    parse(&text, dir).map_err(with_file_path(path))
}

/// Returns targets with default settings for the URLs of a command line.
pub fn targets_from_urls(urls: &[String]) -> Result<Vec<MirrorTarget>, String> {
    let unset = ConfigSection::new(None, TARGET, Path::new(""));
    let queue = unset.section("queue");
    let target = |url: &String| -> Result<MirrorTarget, String> {
        Ok(MirrorTarget {
            url: url.clone(),
            key: url.clone(),
            label: host_and_port(url)?,
            queue_bytes_max: queue.size("max_bytes"),
            queue_age_max: None,
            backoff: (queue.duration("min_backoff"), queue.duration("max_backoff")),
            timeout: unset.duration("remote_timeout"),
            filter: TargetSeriesFilter::default(),
            http: HttpSettings::default(),
        })
    };
    let mut targets = urls.iter().map(target).collect::<Result<Vec<_>, _>>()?;
    tell_apart(&mut targets)?;
    Ok(targets)
}

fn parse(text: &str, dir: &Path) -> Result<Vec<MirrorTarget>, YamlError> {
    let empty = || YamlError {
        place: firn_yaml::YamlPosition { line: 1, column: 1 },
        message: "targets is missing or empty".to_owned(),
    };
    let root = firn_yaml::parse(text)?.ok_or_else(empty)?;
    // `walk` redacts secrets, so it gets a copy. The readers below need the secrets.
    walk(
        &mut root.clone(),
        &Section(KEYS),
        "",
        &mut ConfigFindings::default(),
    )?;
    let section = ConfigSection::new(Some(&root), KEYS, dir);
    let targets = section.sections("targets").map(target);
    let mut targets = targets.collect::<Result<Vec<_>, _>>()?;
    if targets.is_empty() {
        return Err(empty());
    }
    tell_apart(&mut targets).map_err(|message| root.error(message))?;
    Ok(targets)
}

fn target(section: ConfigSection<'_>) -> Result<MirrorTarget, YamlError> {
    let url = section.text("url").to_owned();
    let at = |key| section.get(key).unwrap_or(section.node());
    let address = host_and_port(&url).map_err(|why| at("url").error(format!("url: {why}")))?;
    let name = section.text_if_set("name");
    if name.is_some_and(|name| name.chars().any(char::is_control)) {
        return Err(at("name").error("name: must not contain control characters"));
    }
    if let Some(follow) = section.get("follow_redirects")
        && section.flag_if_set("follow_redirects") == Some(true)
    {
        let message = "follow_redirects: writes are never redirected: set the receiver's own URL";
        return Err(follow.error(message));
    }
    let queue = section.section("queue");
    let backoff_min = queue.duration("min_backoff");
    let backoff_max = queue.duration_if_set("max_backoff");
    let backoff_max = backoff_max.unwrap_or_else(|| queue.duration("max_backoff").max(backoff_min));
    if backoff_max < backoff_min {
        return Err(queue.error(format!(
            "queue: max_backoff {backoff_max:?} is less than min_backoff {backoff_min:?}"
        )));
    }
    Ok(MirrorTarget {
        key: name.unwrap_or(&url).to_owned(),
        label: name.map_or(address, str::to_owned),
        queue_bytes_max: queue.size("max_bytes"),
        queue_age_max: queue.duration_if_set("max_age"),
        backoff: (backoff_min, backoff_max),
        timeout: section.duration("remote_timeout"),
        filter: TargetSeriesFilter {
            matchers: matchers(section)?,
            ratio: ratio(section)?,
        },
        http: http_settings(section)?,
        url,
    })
}

fn ratio(section: ConfigSection<'_>) -> Result<f64, YamlError> {
    let Some(value) = section.get("sampling") else {
        return Ok(1.0);
    };
    let ratio = value.text().and_then(|text| text.parse().ok());
    let ratio: f64 = ratio.unwrap_or(1.0);
    if (0.0..=1.0).contains(&ratio) {
        Ok(ratio)
    } else {
        Err(value.error(format!("sampling: must be from 0 to 1, got {ratio}")))
    }
}

fn matchers(section: ConfigSection<'_>) -> Result<Vec<Vec<Matcher>>, YamlError> {
    let set = |item: &YamlNode| {
        let text = item.text().unwrap_or_default();
        let matchers = parse_selector(text).map_err(|e| item.error(format!("match: {e}")))?;
        for matcher in &matchers {
            let ready = matcher.prepare();
            ready.map_err(|e| item.error(format!("match: {text}: {e}")))?;
        }
        Ok(matchers)
    };
    section.items("match").iter().map(set).collect()
}

/// Reads the client settings, with `headers` in the form of Prometheus's `remote_write`.
fn http_settings(section: ConfigSection<'_>) -> Result<HttpSettings, YamlError> {
    let mut settings = http(section.node(), section.dir())?;
    for entry in section.entries("headers") {
        let name = entry.key.to_ascii_lowercase();
        if is_reserved(&name) || PASSED_HEADERS[..3].contains(&&*name) {
            let message = format!("headers: {} must not be changed", entry.key);
            return Err(entry.node.error(message));
        }
        let value = entry.node.text().unwrap_or_default().to_owned();
        let values = vec![HeaderValueSource::Plain(value)];
        settings.headers.insert(entry.key.clone(), values);
    }
    Ok(settings)
}

/// Adds the path to the names of targets that share host and port, and rejects duplicate targets.
fn tell_apart(targets: &mut [MirrorTarget]) -> Result<(), String> {
    let mut hosts: BTreeMap<String, usize> = BTreeMap::new();
    for target in targets.iter() {
        *hosts.entry(target.label.clone()).or_default() += 1;
    }
    for target in targets.iter_mut() {
        let is_named = target.key != target.url;
        if hosts.get(&target.label).is_some_and(|count| *count > 1) && !is_named {
            let rest = target.url.split_once("://").map_or("", |(_, rest)| rest);
            let path = rest.find('/').map_or("", |at| &rest[at..]);
            target.label += path;
        }
    }
    for (at, target) in targets.iter().enumerate() {
        let same = |other: &&MirrorTarget| other.key == target.key || other.label == target.label;
        if targets[..at].iter().any(|other| same(&other)) {
            return Err(format!(
                "duplicate target name {:?}: give each target its own `name` in a config",
                target.label
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let parsed = parse(text, Path::new("/etc/firn"));
        match (parsed, expected) {
            (Ok(targets), Ok(expected)) => {
                let labels: Vec<&str> = targets.iter().map(|t| t.label.as_str()).collect();
                assert_eq!(labels.join(" "), expected, "{text}");
            }
            (Err(e), Err(expected)) => {
                assert!(e.to_string().contains(expected), "{text}: {e}");
            }
            (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn config_of_targets_is_read_or_says_what_is_wrong_and_where() {
        for (text, expected) in [
            ("targets: [{url: 'http://a:1/w'}]", Ok("a:1")),
            (
                "targets: [{url: 'http://a:1/w'}, {url: 'http://a:1/x'}, {url: 'http://a/w'}]",
                Ok("a:1/w a:1/x a:80"),
            ),
            (
                "targets: [{url: 'http://a:1/w', name: one}, {url: 'http://a:1/w', name: two}]",
                Ok("one two"),
            ),
            ("", Err("1:1: targets is missing or empty")),
            ("targets: []", Err("targets is missing or empty")),
            ("targets: [{name: a}]", Err("url is missing or empty")),
            ("target: []", Err("unknown key \"target\"")),
            ("targets: [{url: 'a:1/w'}]", Err("url: ")),
            (
                "targets: [{url: 'http://a:1/w'}, {url: 'http://a:1/w'}]",
                Err("duplicate target name \"a:1/w\""),
            ),
            (
                "targets: [{url: 'http://a/w', sampling: 1.5}]",
                Err("sampling: must be from 0 to 1, got 1.5"),
            ),
            (
                "targets: [{url: 'http://a/w', sampling: NaN}]",
                Err("sampling: not a number: \"NaN\""),
            ),
            (
                "targets: [{url: 'http://a/w', match: ['{job=']}]",
                Err("match: 1:6: parse error"),
            ),
            (
                "targets: [{url: 'http://a/w', queue: {max_bytes: much}}]",
                Err("targets[0].queue.max_bytes"),
            ),
            (
                "targets: [{url: 'http://a/w', queue: {min_backoff: 9s, max_backoff: 1s}}]",
                Err("max_backoff 1s is less than min_backoff 9s"),
            ),
            (
                "targets: [{url: 'http://a/w', headers: {Content-Type: x}}]",
                Err("headers: Content-Type must not be changed"),
            ),
            (
                "targets: [{url: 'http://a/w', follow_redirects: true}]",
                Err("writes are never redirected"),
            ),
            (
                "targets: [{url: 'http://a/w', basic_auth: {username: a}, bearer_token: b}]",
                Err("at most one of basic_auth"),
            ),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn target_with_everything_set_has_it_and_one_with_nothing_has_the_defaults() {
        let text = "targets:
- url: http://a:1/w
  name: one
  match: ['{job=\"x\"}', up]
  sampling: 0.25
  remote_timeout: 3s
  queue: {max_bytes: 2MiB, max_age: 1h, min_backoff: 1s, max_backoff: 2s}
  headers: {X-Scope-OrgID: team}
  tls_config: {ca_file: ca.pem}
- url: http://b:1/w
";
        let targets = parse(text, Path::new("/etc/firn")).unwrap();
        let one = &targets[0];
        assert_eq!(one.key, "one");
        assert_eq!(one.filter.matchers.len(), 2);
        assert_eq!(one.filter.ratio, 0.25);
        assert_eq!(one.timeout, Duration::from_secs(3));
        assert_eq!(one.queue_bytes_max, 2 << 20);
        assert_eq!(one.queue_age_max, Some(Duration::from_secs(3600)));
        let seconds = Duration::from_secs;
        assert_eq!(one.backoff, (seconds(1), seconds(2)));
        assert!(one.http.headers.contains_key("X-Scope-OrgID"));
        assert!(one.http.tls.ca.is_some());
        let two = &targets[1];
        assert_eq!(
            (two.key.as_str(), two.label.as_str()),
            ("http://b:1/w", "b:1")
        );
        assert_eq!(two.queue_bytes_max, 1 << 30);
        assert_eq!(two.queue_age_max, None);
        assert_eq!(two.backoff, (Duration::from_millis(30), seconds(5)));
        assert!(two.filter.is_open());
    }
}
