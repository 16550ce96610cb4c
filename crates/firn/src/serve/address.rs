//! Where users open the server's page: the URL that is logged and printed once the server is ready.

use super::locks::Locks;
use crate::console;
use firn_server::parts::WebSettings;
use std::io::IsTerminal;
use std::net::SocketAddr;
use tracing::info;

/// Which part of the page's URL the flags set.
pub enum Page {
    /// All of it.
    Whole(String),
    /// The path behind the address.
    Path(String),
}

impl Page {
    /// `external_url` if that names a host, else the prefix of all routes.
    pub fn of(web: &WebSettings, external_url: &str) -> Self {
        match web.external_origin {
            Some(_) => Self::Whole(external_url.trim_end_matches('/').to_owned()),
            None => Self::Path(web.route_prefix.clone()),
        }
    }

    /// The URL at a server that listens on `address`; empty if both are unknown.
    pub fn url(self, locks: &Locks, address: Option<SocketAddr>) -> String {
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

/// Host and port for a client on this machine: no client connects to a wildcard address.
fn reachable(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

/// Logs that the server is ready, and prints the URL to open on a terminal.
pub fn announce(url: &str) {
    // As all else that a start logs.
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
