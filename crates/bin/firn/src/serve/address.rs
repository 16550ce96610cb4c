//! URL of the web page, which is logged and printed once the server is ready.

use super::locks::WebConfigHolder;
use crate::console;
use firn_server::parts::WebSettings;
use std::io::IsTerminal;
use std::net::SocketAddr;
use tracing::info;

/// The part of the page's URL that flags determine before the listening address is resolved.
pub enum ExternalUrlSource {
    /// The complete URL, from `--web.external-url` with a host.
    Whole(String),
    /// Only the path; scheme and host follow from the listening address.
    Path(String),
}

impl ExternalUrlSource {
    /// Returns `external_url` if it contains a host, else the prefix of all routes.
    pub fn from_external_url(web: &WebSettings, external_url: &str) -> Self {
        match web.external_origin {
            Some(_) => Self::Whole(external_url.trim_end_matches('/').to_owned()),
            None => Self::Path(web.route_prefix.clone()),
        }
    }

    /// Returns the URL of the page at a server that listens on `address`, or an empty string if
    /// both are unknown.
    pub fn url(self, locks: &WebConfigHolder, address: Option<SocketAddr>) -> String {
        match (self, address) {
            (Self::Whole(url), _) => url,
            (Self::Path(_), None) => String::new(),
            (Self::Path(path), Some(address)) => {
                let scheme = if locks.has_tls() { "https" } else { "http" };
                format!("{scheme}://{}{path}", reachable(address))
            }
        }
    }
}

/// Returns host and port for a client on this machine. A wildcard address becomes `localhost`,
/// because clients cannot connect to it.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    }
}

/// Logs that the server is ready and, if standard error or output is a terminal, prints the URL to
/// open.
pub fn announce(url: &str) {
    // Uses the log target of all other messages of the start.
    info!(target: "firn::serve", url, "ready");
    let line = format!("Firn is ready: open {url}");
    if std::io::stderr().is_terminal() {
        console::err(&line);
    } else if std::io::stdout().is_terminal() {
        console::out(&format!("{line}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_address_is_reached_as_localhost() {
        for (address, want) in [
            ("0.0.0.0:9090", "localhost:9090"),
            ("[::]:80", "localhost:80"),
            ("127.0.0.1:9090", "127.0.0.1:9090"),
            ("[::1]:9090", "[::1]:9090"),
        ] {
            assert_eq!(reachable(address.parse().unwrap()), want);
        }
    }
}
