//! DNS resolver that queries the servers of `resolv.conf` over UDP, and over TCP if a response is
//! truncated.
//!
//! ```text
//! name -> names with search domains -> each server in turn -> first answer or "no such name"
//! ```
//!
//! The order of the names to try and the responses that end the search follow upstream's
//! `discovery/dns` and the DNS library that it uses. `resolv.conf` is read for each lookup, so that
//! changes take effect.
//!
//! Invariant: a name is reported as non-existent only if every candidate name was denied by a
//! server.

use super::DnsRecordType;
use crate::api::invalid_response_error;
use firn_model::error::Error;
use ring::rand::{SecureRandom, SystemRandom};
use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use tracing::warn;

/// Timeout of one step of a query to one server, such as connecting or waiting for a response.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size, in bytes, of a UDP response, as advertised in the query (EDNS).
const UDP_BYTES_MAX: u16 = 4096;

/// Maximum size of a UDP datagram in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// The parts of a DNS record that a target needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DnsRecord {
    Address(IpAddr),
    /// Host, with a trailing dot, and port.
    Srv(String, u16),
    Mx(String),
    Ns(String),
}

/// Resolves names with the servers of a `resolv.conf` file, which is read for each lookup.
#[derive(Debug)]
pub(super) struct DnsResolver {
    resolv_conf: PathBuf,
    port: u16,
}

/// Settings of a `resolv.conf` file: servers, search domains and the `ndots` option.
#[derive(Debug, PartialEq, Eq)]
struct Config {
    servers: Vec<String>,
    search: Vec<String>,
    dots_min: usize,
}

/// Response of one server to a query, reduced to the cases that the resolver distinguishes.
enum DnsReply {
    Records(Vec<DnsRecord>),
    NoSuchName,
    /// The server returned an error code, so that another server may have an answer.
    Refused(RCODE),
    Truncated,
}

impl DnsResolver {
    /// Creates a resolver that queries the servers in the file `resolv_conf` at `port`.
    pub(super) fn new(resolv_conf: PathBuf, port: u16) -> Self {
        Self { resolv_conf, port }
    }

    /// Returns the records of `name`; empty if the name does not exist. Fails if server errors
    /// leave that uncertain.
    pub(super) async fn look_up_records(
        &self,
        name: &str,
        kind: DnsRecordType,
    ) -> Result<Vec<DnsRecord>, Error> {
        let text = tokio::fs::read_to_string(&self.resolv_conf)
            .await
            .map_err(|e| invalid_response_error(format!("could not load resolv.conf: {e}")))?;
        let config = Config::parse_resolv_conf(&text);
        let mut all_denied = true;
        for candidate in config.candidate_names(name) {
            match self.query_servers(&config, &candidate, kind).await {
                Some(DnsReply::Records(records)) => return Ok(records),
                Some(_) => {}
                // A later candidate name may still have an answer.
                None => all_denied = false,
            }
        }
        if all_denied {
            Ok(Vec::new())
        } else {
            Err(invalid_response_error(format!(
                "could not resolve {name:?}: all servers responded with errors to at least one \
             search domain"
            )))
        }
    }

    /// Queries the servers in turn for `name`. Returns the first complete answer or denial, or
    /// `None` if every server fails.
    async fn query_servers(
        &self,
        config: &Config,
        name: &str,
        kind: DnsRecordType,
    ) -> Option<DnsReply> {
        for server in &config.servers {
            let answer = match server.parse() {
                Ok(address) => {
                    self.query_server(SocketAddr::new(address, self.port), name, kind)
                        .await
                }
                Err(_) => Err(format!("not an address: {server:?}")),
            };
            match answer {
                Ok(reply @ (DnsReply::Records(_) | DnsReply::NoSuchName)) => return Some(reply),
                Ok(DnsReply::Refused(code)) => {
                    warn!(server, name, code = ?code, "DNS server returned an error");
                }
                Ok(DnsReply::Truncated) => {
                    warn!(server, name, "DNS response is too large for a message");
                }
                Err(e) => warn!(server, name, error = e, "DNS query failed"),
            }
        }
        None
    }

    async fn query_server(
        &self,
        server: SocketAddr,
        name: &str,
        kind: DnsRecordType,
    ) -> Result<DnsReply, String> {
        match query_by_udp(server, name, kind).await? {
            DnsReply::Truncated => query_by_tcp(server, name, kind).await,
            reply => Ok(reply),
        }
    }
}

impl Config {
    fn parse_resolv_conf(text: &str) -> Self {
        let mut config = Self {
            servers: Vec::new(),
            search: Vec::new(),
            dots_min: 1,
        };
        for line in text.lines().filter(|line| !line.starts_with([';', '#'])) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
                Some("domain") => {
                    if let Some(domain) = words.next() {
                        config.search = vec![domain.to_owned()];
                    }
                }
                Some("search") => config.search = words.map(str::to_owned).collect(),
                Some("options") => {
                    for option in words {
                        if let Some(dots) = option.strip_prefix("ndots:") {
                            // The C library has the same upper limit of 15.
                            config.dots_min = dots.parse().map_or(0, |dots: usize| dots.min(15));
                        }
                    }
                }
                _ => {}
            }
        }
        config
    }

    /// Returns the fully qualified names to try for `name`, in order.
    fn candidate_names(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let searched = self
            .search
            .iter()
            .map(|domain| add_trailing_dot(name, domain));
        let plain = format!("{name}.");
        if name.split('.').count() > self.dots_min {
            std::iter::once(plain).chain(searched).collect()
        } else {
            searched.chain(std::iter::once(plain)).collect()
        }
    }
}

fn add_trailing_dot(name: &str, domain: &str) -> String {
    match domain.trim_end_matches('.') {
        "" => format!("{name}."),
        domain => format!("{name}.{domain}."),
    }
}

async fn with_timeout<T>(step: impl Future<Output = std::io::Result<T>>) -> Result<T, String> {
    match timeout(TIMEOUT, step).await {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(_) => Err("i/o timeout".into()),
    }
}

async fn query_by_udp(
    server: SocketAddr,
    name: &str,
    kind: DnsRecordType,
) -> Result<DnsReply, String> {
    let local: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let (id, message) = encode_query(name, kind, true)?;
    let socket = with_timeout(UdpSocket::bind((local, 0))).await?;
    with_timeout(socket.connect(server)).await?;
    with_timeout(socket.send(&message)).await?;
    let mut bytes = vec![0; DATAGRAM_BYTES_MAX];
    let answered = async {
        loop {
            let count = socket.recv(&mut bytes).await?;
            // Other hosts can send datagrams to this port too, so wait for one with the matching
            // id.
            if bytes[..count].starts_with(&id.to_be_bytes()) {
                return Ok(count);
            }
        }
    };
    let count = with_timeout(answered).await?;
    decode_reply(&bytes[..count])
}

async fn query_by_tcp(
    server: SocketAddr,
    name: &str,
    kind: DnsRecordType,
) -> Result<DnsReply, String> {
    let (id, message) = encode_query(name, kind, false)?;
    let length = u16::try_from(message.len()).map_err(|e| e.to_string())?;
    let mut stream = with_timeout(TcpStream::connect(server)).await?;
    let framed = [&length.to_be_bytes(), &message[..]].concat();
    with_timeout(stream.write_all(&framed)).await?;
    let answered = async {
        let count = stream.read_u16().await?;
        let mut bytes = vec![0; usize::from(count)];
        stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    };
    let bytes = with_timeout(answered).await?;
    if bytes.starts_with(&id.to_be_bytes()) {
        decode_reply(&bytes)
    } else {
        Err("the answer is to another question".into())
    }
}

/// Encodes a query with a random id. `is_long` allows UDP responses of more than 512 bytes.
fn encode_query(name: &str, kind: DnsRecordType, is_long: bool) -> Result<(u16, Vec<u8>), String> {
    let mut number = [0; 2];
    let filled = SystemRandom::new().fill(&mut number);
    filled.map_err(|_| "no random numbers".to_owned())?;
    let id = u16::from_be_bytes(number);
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let plain = name.trim_end_matches('.');
    let question = Question::new(
        Name::new(plain).map_err(|e| format!("{name:?}: {e}"))?,
        QTYPE::TYPE(qtype_of_record(kind)),
        QCLASS::CLASS(CLASS::IN),
        false,
    );
    packet.questions.push(question);
    if is_long {
        *packet.opt_mut() = Some(OPT {
            opt_codes: Vec::new(),
            udp_packet_size: UDP_BYTES_MAX,
            version: 0,
        });
    }
    let bytes = packet.build_bytes_vec().map_err(|e| e.to_string())?;
    Ok((id, bytes))
}

fn qtype_of_record(kind: DnsRecordType) -> TYPE {
    match kind {
        DnsRecordType::A => TYPE::A,
        DnsRecordType::Aaaa => TYPE::AAAA,
        DnsRecordType::Mx => TYPE::MX,
        DnsRecordType::Ns => TYPE::NS,
        DnsRecordType::Srv => TYPE::SRV,
    }
}

fn decode_reply(bytes: &[u8]) -> Result<DnsReply, String> {
    let packet = Packet::parse(bytes).map_err(|e| format!("cannot read the answer: {e}"))?;
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Ok(DnsReply::Truncated);
    }
    Ok(match packet.rcode() {
        RCODE::NoError => {
            let records = packet.answers.iter();
            DnsReply::Records(
                records
                    .filter_map(|record| extract_record(&record.rdata))
                    .collect(),
            )
        }
        RCODE::NameError => DnsReply::NoSuchName,
        code => DnsReply::Refused(code),
    })
}

/// Returns the used parts of a record. CNAME records, which precede the answer, are skipped.
fn extract_record(data: &RData<'_>) -> Option<DnsRecord> {
    Some(match data {
        RData::A(a) => DnsRecord::Address(Ipv4Addr::from(a.address).into()),
        RData::AAAA(aaaa) => DnsRecord::Address(Ipv6Addr::from(aaaa.address).into()),
        RData::SRV(srv) => DnsRecord::Srv(format!("{}.", srv.target), srv.port),
        RData::MX(mx) => DnsRecord::Mx(format!("{}.", mx.exchange)),
        RData::NS(ns) => DnsRecord::Ns(format!("{}.", ns.0)),
        RData::CNAME(_) => return None,
        other => {
            warn!(
                record = ?other.type_code(),
                "ignoring DNS record of a type that makes no target"
            );
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_search_domains_and_dots() {
        let config = |text| Config::parse_resolv_conf(text);
        let names = |text, name| config(text).candidate_names(name);
        let text = "# x\n;y\nnameserver 1.1.1.1\nnameserver ::1\nsearch a.b c.\n";
        assert_eq!(config(text).servers, ["1.1.1.1", "::1"]);
        assert_eq!(names(text, "web"), ["web.a.b.", "web.c.", "web."]);
        assert_eq!(names(text, "web.x"), ["web.x.", "web.x.a.b.", "web.x.c."]);
        assert_eq!(names(text, "web.x."), ["web.x."]);
        let text = "domain d\noptions rotate ndots:3\n";
        assert_eq!(names(text, "a.b.c"), ["a.b.c.d.", "a.b.c."]);
        assert_eq!(names(text, "a.b.c.d"), ["a.b.c.d.", "a.b.c.d.d."]);
        assert_eq!(names("domain d\nsearch .\n", "x"), ["x.", "x."]);
    }
}
