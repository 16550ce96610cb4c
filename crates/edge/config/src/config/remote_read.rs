//! The section `remote_read`: servers that are queried in addition to the store.

use super::remote::{check_names, check_read, client};
use ConfigValueShape::{Bool, Count, Labels, Map, Text, Url};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyGroups, key};
use firn_config_schema::section::ConfigSection;
use firn_http_client::http_config::HTTP_CLIENT;
use firn_model::matcher::{MatchOp, Matcher};
use firn_remote_write::forward::{host_and_port, split_user_info};
use firn_remote_write::remote_read::RemoteReadSettings;
use firn_yaml::YamlError;
use std::time::Duration;

/// Keys of an entry of the section.
pub const KEYS: KeyGroups = &[SERVER, HTTP_CLIENT, FILTERS];

const SERVER: &[ConfigKey] = &[
    key("url", Url).always(""),
    key("remote_timeout", ConfigValueShape::Duration).or("1m"),
    // In bytes of a frame.
    key("chunked_read_limit", Count).or("50000000"),
    key("headers", Map(&Text)),
    key("read_recent", Bool),
    key("name", Text),
];

const FILTERS: &[ConfigKey] = &[
    key("required_matchers", Labels),
    key("filter_external_labels", Bool).or("true"),
];

/// Settings of one remote server, with all defaults applied. A reload compares them to keep
/// connections of unchanged servers.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteReadServerSettings {
    /// `url`, `name`, `chunked_read_limit` and the settings of the HTTP client.
    pub reader: RemoteReadSettings,
    /// `remote_timeout`: maximum duration of one request until its complete response.
    pub timeout: Duration,
    /// `read_recent`: whether the server is also queried for time ranges that the store has
    /// completely.
    pub reads_recent: bool,
    /// `required_matchers`: pairs of label and value that a selector must contain.
    pub required: Vec<(String, String)>,
    /// `filter_external_labels`: whether the external labels are added to selectors and removed
    /// from results.
    pub filters_external_labels: bool,
}

impl RemoteReadServerSettings {
    /// Returns whether a selector contains all required matchers of the server.
    pub fn accepts_selector(&self, matchers: &[Matcher]) -> bool {
        self.required.iter().all(|(name, value)| {
            matchers.iter().any(|m| {
                m.op() == MatchOp::Equal && m.name() == name && m.value() == value.as_bytes()
            })
        })
    }
}

/// Reads the section of the config `root`.
pub fn remote_read(root: ConfigSection<'_>) -> Result<Vec<RemoteReadServerSettings>, YamlError> {
    let list: Vec<_> = root.sections("remote_read").collect();
    let mut servers = Vec::with_capacity(list.len());
    for section in &list {
        check_read(*section)?;
        servers.push(server(*section)?);
    }
    check_names(&list, "remote read")?;
    Ok(servers)
}

/// Validates the URLs of all servers. As upstream, a config with an invalid one passes the config
/// check, but a server does not start with it.
pub fn check_servers(servers: &[RemoteReadServerSettings]) -> Result<(), String> {
    for (i, server) in servers.iter().enumerate() {
        let url = &server.reader.url;
        host_and_port(url).map_err(|why| format!("remote_read: url: {why}"))?;
        if servers[..i].contains(server) {
            return Err(format!(
                "duplicate remote read configs are not allowed, found duplicate for URL: {url}"
            ));
        }
    }
    Ok(())
}

fn server(section: ConfigSection<'_>) -> Result<RemoteReadServerSettings, YamlError> {
    let (url, user) = split_user_info(section.text("url"));
    let address = host_and_port(&url).unwrap_or_else(|_| url.clone());
    let name = section.text_if_set("name");
    let required = section.entries("required_matchers").iter();
    let required = required.map(|entry| {
        let value = entry.node.text().unwrap_or_default();
        (entry.key.clone(), value.to_owned())
    });
    Ok(RemoteReadServerSettings {
        reader: RemoteReadSettings {
            name: name.map_or(address, str::to_owned),
            frame_bytes_max: section.count("chunked_read_limit"),
            http: client(section, user)?,
            url,
        },
        timeout: section.duration("remote_timeout"),
        reads_recent: section.flag("read_recent"),
        required: required.collect(),
        filters_external_labels: section.flag("filter_external_labels"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::KEYS as CONFIG;
    use std::path::Path;

    fn read(text: &str) -> Result<Vec<RemoteReadServerSettings>, String> {
        let root = firn_yaml::parse(text).unwrap().unwrap();
        let root = ConfigSection::new(Some(&root), CONFIG, Path::new("/etc/firn"));
        remote_read(root).map_err(|e| e.to_string())
    }

    #[test]
    fn servers_are_read_with_prometheus_defaults() {
        let text = "remote_read: [{url: 'http://u:p@a:1/r'}, {url: 'http://b/r', name: b, \
                    remote_timeout: 5s, chunked_read_limit: 9, read_recent: true, \
                    required_matchers: {job: x}, filter_external_labels: false}]";
        let [plain, other] = &read(text).unwrap()[..] else {
            panic!("two servers")
        };
        assert_eq!(plain.reader.url, "http://a:1/r");
        assert_eq!(plain.reader.name, "a:1");
        assert_eq!(plain.reader.frame_bytes_max, 50_000_000);
        assert_eq!(plain.timeout, Duration::from_secs(60));
        assert!(!plain.reads_recent && plain.filters_external_labels);
        assert_eq!(other.reader.name, "b");
        assert_eq!(other.reader.frame_bytes_max, 9);
        assert_eq!(other.timeout, Duration::from_secs(5));
        assert!(other.reads_recent && !other.filters_external_labels);
        assert_eq!(other.required, [("job".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn selector_that_lacks_a_required_matcher_is_not_taken() {
        let text = "remote_read: [{url: 'http://a/r', required_matchers: {job: x, env: y}}]";
        let server = read(text).unwrap().remove(0);
        let matcher = |name, op, value: &str| Matcher::new(name, op, value.as_bytes()).unwrap();
        let job = matcher("job", MatchOp::Equal, "x");
        let env = matcher("env", MatchOp::Equal, "y");
        assert!(server.accepts_selector(&[env.clone(), job.clone()]));
        assert!(!server.accepts_selector(std::slice::from_ref(&job)));
        assert!(!server.accepts_selector(&[job.clone(), matcher("env", MatchOp::Regex, "y")]));
        assert!(!server.accepts_selector(&[job, matcher("env", MatchOp::Equal, "z")]));
    }

    #[test]
    fn server_that_cannot_be_asked_is_named_before_a_start() {
        for (text, expected) in [
            (
                "remote_read: [{url: 'http://a/r'}, {url: 'http://a/r'}]",
                "duplicate remote read configs are not allowed, found duplicate for URL: http://a/r",
            ),
            ("remote_read: [{url: 'ftp://a/r'}]", "remote_read: url: "),
        ] {
            let told = check_servers(&read(text).unwrap()).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
        }
    }
}
