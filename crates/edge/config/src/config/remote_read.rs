//! The section `remote_read`: servers that are queried in addition to the store.

use super::read;
use super::remote::{check_names, check_read, client};
use firn_model::matcher::{MatchOp, Matcher};
use firn_remote_write::forward::{host_and_port, split_user_info};
use firn_remote_write::remote_read::RemoteReadSettings;
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;

/// Prometheus's default for `remote_timeout` of a server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Prometheus's default for `chunked_read_limit`, in bytes per frame.
const FRAME_BYTES_MAX: u64 = 50_000_000;

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

/// Reads the section of a config in the folder `dir`.
pub fn remote_read(
    root: &YamlNode,
    dir: &Path,
) -> Result<Vec<RemoteReadServerSettings>, YamlError> {
    let list = root.get("remote_read").map_or(&[][..], YamlNode::items);
    let mut servers = Vec::with_capacity(list.len());
    for node in list {
        check_read(node)?;
        servers.push(server(node, dir)?);
    }
    check_names(list, "remote read")?;
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

fn server(node: &YamlNode, dir: &Path) -> Result<RemoteReadServerSettings, YamlError> {
    let (url, user) = split_user_info(&read::string(node, "url"));
    let address = host_and_port(&url).unwrap_or_else(|_| url.clone());
    let name = read::text(node, "name").filter(|name| !name.is_empty());
    let required = read::entries(node.get("required_matchers")).iter();
    let required = required.map(|entry| {
        let value = entry.node.text().unwrap_or_default();
        (entry.key.clone(), value.to_owned())
    });
    Ok(RemoteReadServerSettings {
        reader: RemoteReadSettings {
            name: name.map_or(address, str::to_owned),
            frame_bytes_max: read::count(node, "chunked_read_limit").unwrap_or(FRAME_BYTES_MAX),
            http: client(node, user, dir)?,
            url,
        },
        timeout: read::duration(node, "remote_timeout").unwrap_or(TIMEOUT),
        reads_recent: read::flag(node, "read_recent").unwrap_or(false),
        required: required.collect(),
        filters_external_labels: read::flag(node, "filter_external_labels").unwrap_or(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<RemoteReadServerSettings>, String> {
        let root = firn_yaml::parse(text).unwrap().unwrap();
        remote_read(&root, Path::new("/etc/firn")).map_err(|e| e.to_string())
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
