//! The `no_proxy` key: hosts that are reached without a proxy, with the rules of
//! `golang.org/x/net/http/httpproxy`.
//!
//! | entry | matches |
//! |---|---|
//! | `*` | every target |
//! | `10.0.0.0/8` | addresses of the network |
//! | `10.1.2.3`, `10.1.2.3:80`, `[::1]:80` | the address, with the port if there is one |
//! | `a.example`, `a.example:80` | the name and names that end with `.a.example` |
//! | `.a.example`, `*.a.example` | names that end with `.a.example` |
//!
//! `localhost` and loopback addresses always match. Malformed entries match nothing.

use hyper::Uri;
use std::net::{IpAddr, Ipv6Addr};

/// Host and port of a request, in the form in which they are compared with entries.
#[derive(Debug)]
pub(super) struct NoProxyTarget {
    host: String,
    port: String,
}

impl NoProxyTarget {
    /// Returns the target of `uri`, with the default port of the scheme if there is none.
    pub(super) fn from_uri(uri: &Uri) -> Self {
        let host = uri.host().unwrap_or_default();
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let port = match (uri.port(), uri.scheme_str()) {
            (Some(port), _) => port.as_str().to_owned(),
            (None, Some("https")) => "443".to_owned(),
            (None, _) => "80".to_owned(),
        };
        Self {
            host: inner.unwrap_or(host).to_owned(),
            port,
        }
    }
}

/// Parsed entries of `no_proxy`; see the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct NoProxy {
    entries: Vec<NoProxyEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NoProxyEntry {
    All,
    Network {
        address: IpAddr,
        prefix_bits: u32,
    },
    Address {
        address: IpAddr,
        port: String,
    },
    Name {
        suffix: String,
        port: String,
        is_itself: bool,
    },
}

impl NoProxy {
    /// Parses the comma-separated entries of `text`.
    pub(super) fn new(text: &str) -> Self {
        let entries: Vec<_> = text.split(',').filter_map(NoProxyEntry::parse).collect();
        if entries.contains(&NoProxyEntry::All) {
            Self {
                entries: vec![NoProxyEntry::All],
            }
        } else {
            Self { entries }
        }
    }

    /// Returns whether `target` is reached directly, without a proxy.
    pub(super) fn contains(&self, target: &NoProxyTarget) -> bool {
        if target.host == "localhost" {
            return true;
        }
        // An IPv6 address may have a zone.
        let bare = match target.host.split_once('%') {
            Some((bare, zone)) if !zone.is_empty() && bare.contains(':') => bare,
            _ => &target.host,
        };
        let address = bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        if address.is_some_and(|address| address.is_loopback()) {
            return true;
        }
        let host = target.host.trim().to_lowercase();
        self.entries
            .iter()
            .any(|entry| entry.matches(&host, address, &target.port))
    }
}

impl NoProxyEntry {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        if text == "*" {
            return Some(NoProxyEntry::All);
        }
        if let Some(network) = parse_network(&text) {
            return Some(network);
        }
        let (host, port) = split_port(&text).unwrap_or((&text, ""));
        let port = port.to_owned();
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            return Some(NoProxyEntry::Address { address, port });
        }
        let suffix = host.strip_prefix('*').filter(|rest| rest.starts_with('.'));
        let suffix = suffix.unwrap_or(host);
        match suffix.chars().next()? {
            '.' => Some(NoProxyEntry::Name {
                suffix: suffix.to_owned(),
                port,
                is_itself: false,
            }),
            _ => Some(NoProxyEntry::Name {
                suffix: format!(".{suffix}"),
                port,
                is_itself: true,
            }),
        }
    }

    /// Returns whether the entry matches `host`. `address` is the parsed host if it is an IP
    /// address.
    fn matches(&self, host: &str, address: Option<IpAddr>, target_port: &str) -> bool {
        let has_port = |port: &str| port.is_empty() || port == target_port;
        match (self, address) {
            (NoProxyEntry::All, _) => true,
            (
                NoProxyEntry::Network {
                    address: network,
                    prefix_bits,
                },
                Some(address),
            ) => is_in_network(address, *network, *prefix_bits),
            (
                NoProxyEntry::Address {
                    address: entry,
                    port,
                },
                Some(address),
            ) => *entry == address && has_port(port),
            (
                NoProxyEntry::Name {
                    suffix,
                    port,
                    is_itself,
                },
                None,
            ) => {
                let is_named = *is_itself && host == &suffix[1..];
                (is_named || host.ends_with(suffix.as_str())) && has_port(port)
            }
            _ => false,
        }
    }
}

/// Parses a network in CIDR notation. IPv4-mapped networks become IPv4 networks.
fn parse_network(text: &str) -> Option<NoProxyEntry> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u32 = bits.parse().ok()?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    if bits > bits_max {
        return None;
    }
    let (address, prefix_bits) = match address {
        IpAddr::V6(v6) if bits >= 96 && v6.to_ipv4_mapped().is_some() => {
            (address.to_canonical(), bits - 96)
        }
        _ => (address, bits),
    };
    Some(NoProxyEntry::Network {
        address,
        prefix_bits,
    })
}

fn is_in_network(address: IpAddr, network: IpAddr, prefix_bits: u32) -> bool {
    let (one, other, shift) = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let widen = |v4: std::net::Ipv4Addr| u128::from(u32::from(v4));
            (widen(one), widen(other), 32 - prefix_bits)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let widen = |v6: Ipv6Addr| u128::from(v6);
            (widen(one), widen(other), 128 - prefix_bits)
        }
        _ => return false,
    };
    let prefix = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
    prefix(one) == prefix(other)
}

/// Splits `host:port` or `[address]:port`. Returns `None` if there is no port or its position is
/// ambiguous.
fn split_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let is_malformed = host.contains(['[', ']']) || port.contains(['[', ']']);
    (!is_malformed).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_direct_where_they_are_in_go() {
        let mut wrong = Vec::new();
        for row in include_str!("tests/no_proxy.tsv")
            .lines()
            .filter(|row| !row.starts_with("# "))
        {
            let [entries, url, want] = row.split('\t').collect::<Vec<_>>().try_into().unwrap();
            let target = NoProxyTarget::from_uri(&url.parse().unwrap());
            let is_direct = NoProxy::new(entries).contains(&target);
            if is_direct != (want == "direct") {
                wrong.push(row);
            }
        }
        assert!(
            wrong.is_empty(),
            "{} wrong\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }
}
