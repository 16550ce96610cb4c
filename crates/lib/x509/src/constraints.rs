//! Name constraints of CA certificates, matched as in Go: DNS names, IP addresses, mail addresses
//! and URIs. Constraints of other kinds are unknown. Go searches sorted constraints; this
//! implementation compares them one by one, within a budget.

use super::X509Certificate;
use super::certificate::MalformedCertificate;
use super::der::{self, DerReader, SEQUENCE};
use super::extensions::{AlternativeNames, decode_ascii, decode_ip};
use super::uri;
use std::fmt;
use std::net::IpAddr;

/// Permitted and excluded subtrees in the certificate of one CA.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameConstraints {
    permitted: NameSubtrees,
    excluded: NameSubtrees,
}

#[derive(Clone, Debug, Default)]
struct NameSubtrees {
    dns: Vec<String>,
    emails: Vec<String>,
    uris: Vec<String>,
    ips: Vec<IpNetwork>,
}

/// A network, that is, the addresses whose masked bits are equal.
#[derive(Clone, Copy, Debug)]
struct IpNetwork {
    address: IpAddr,
    mask: IpAddr,
}

/// A parsed mail address, with its quotes and escapes resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MailAddress {
    local: String,
    /// Domain in lower case.
    domain: String,
}

/// Number of name comparisons that remain for the verification of one certificate.
#[derive(Debug)]
pub(crate) struct ComparisonBudget(pub usize);

impl ComparisonBudget {
    fn spend(&mut self, count: usize) -> Result<(), String> {
        let rest = self.0.checked_sub(count);
        self.0 = rest.ok_or("too many comparisons of names with name constraints")?;
        Ok(())
    }
}

impl NameConstraints {
    /// Parses the extension. Also returns whether all of its constraints are of supported kinds.
    pub(crate) fn read(mut value: DerReader<'_>) -> Result<(Self, bool), MalformedCertificate> {
        const MALFORMED: &str = "invalid NameConstraints extension";
        let mut fields = value.open(SEQUENCE).filter(|_| value.is_empty());
        let fields = fields.as_mut().ok_or(MALFORMED)?;
        let permitted = fields
            .read_optional(der::constructed_tag(0))
            .ok_or(MALFORMED)?;
        let excluded = fields
            .read_optional(der::constructed_tag(1))
            .ok_or(MALFORMED)?;
        if !fields.is_empty() {
            return Err(MALFORMED.into());
        }
        let (permitted, excluded) = (
            permitted.unwrap_or(DerReader::new(&[])),
            excluded.unwrap_or(DerReader::new(&[])),
        );
        if permitted.is_empty() && excluded.is_empty() {
            return Err("empty name constraints extension".into());
        }
        let (permitted, are_known) = NameSubtrees::read(permitted)?;
        let (excluded, are_excluded_known) = NameSubtrees::read(excluded)?;
        let constraints = Self {
            permitted,
            excluded,
        };
        Ok((constraints, are_known && are_excluded_known))
    }
}

impl NameSubtrees {
    fn read(mut all: DerReader<'_>) -> Result<(Self, bool), MalformedCertificate> {
        let mut found = Self::default();
        let mut are_known = true;
        while !all.is_empty() {
            let base = all.open(SEQUENCE).and_then(|mut one| one.read_any());
            let base = base.ok_or("invalid NameConstraints extension")?;
            are_known &= found.add(base.tag, base.content)?;
        }
        Ok((found, are_known))
    }

    /// Adds a subtree with the tag of its kind. Returns whether that kind is supported.
    fn add(&mut self, tag: u8, content: &[u8]) -> Result<bool, MalformedCertificate> {
        const EMAIL: u8 = der::context_tag(1);
        const DNS: u8 = der::context_tag(2);
        const URI: u8 = der::context_tag(6);
        const IP: u8 = der::context_tag(7);
        let text = || decode_ascii(content).ok_or("invalid constraint value: invalid IA5String");
        let failed = |kind: &str, text: &str| {
            MalformedCertificate(format!("failed to parse {kind} constraint {text:?}"))
        };
        match tag {
            DNS => {
                let text = text()?;
                if !uri::is_domain(&text, true) {
                    return Err(failed("dnsName", &text));
                }
                self.dns.push(text);
            }
            EMAIL => {
                let text = text()?;
                let is_valid = if text.contains('@') {
                    MailAddress::parse(&text).is_some()
                } else {
                    uri::is_domain(&text, true)
                };
                if !is_valid {
                    return Err(failed("rfc822Name", &text));
                }
                self.emails.push(text);
            }
            URI => {
                let text = text()?;
                if text.parse::<IpAddr>().is_ok() || !uri::is_domain(&text, true) {
                    return Err(failed("URI", &text));
                }
                self.uris.push(text);
            }
            IP => self.ips.push(IpNetwork::read(content)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl IpNetwork {
    fn read(content: &[u8]) -> Result<Self, MalformedCertificate> {
        let (address, mask) = content.split_at(content.len() / 2);
        let (Some(address), Some(mask)) = (decode_ip(address), decode_ip(mask)) else {
            let bytes = content.len();
            let why = format!("IP constraint contained value of length {bytes}");
            return Err(MalformedCertificate(why));
        };
        let network = Self { address, mask };
        let bits = bits(mask);
        // A valid mask consists of ones followed by zeros.
        if bits.leading_ones() + bits.trailing_zeros() >= u128::BITS {
            Ok(network)
        } else {
            Err(MalformedCertificate(format!(
                "IP constraint contained invalid mask {mask}"
            )))
        }
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let mask = bits(self.mask);
        let is_kind = self.address.is_ipv4() == ip.is_ipv4();
        is_kind && bits(self.address) & mask == bits(ip) & mask
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, bits(self.mask).leading_ones())
    }
}

/// Returns the bits of an address, aligned to the most significant bit.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Checks the names of each certificate in a chain against the constraints of those above it.
/// `chain` begins with the leaf.
pub(crate) fn check_constraints(
    chain: &[&X509Certificate],
    budget: &mut ComparisonBudget,
) -> Result<(), String> {
    for (index, certificate) in chain.iter().enumerate() {
        let above = chain.iter().skip(index + 1);
        let mut above = above.filter_map(|c| c.extensions.constraints.as_ref());
        let mut next = above.next();
        if next.is_none() || certificate.extensions.raw_names.is_none() {
            continue;
        }
        let names = ConstrainedNames::from_names(&certificate.extensions.names)?;
        while let Some(constraints) = next {
            names.check(constraints, budget)?;
            next = above.next();
        }
    }
    Ok(())
}

/// Names of a certificate in the form in which they are compared with constraints.
struct ConstrainedNames<'n> {
    names: &'n AlternativeNames,
    /// Hosts of the URIs, in the same order.
    hosts: Vec<String>,
    mailboxes: Vec<MailAddress>,
}

impl<'n> ConstrainedNames<'n> {
    fn from_names(names: &'n AlternativeNames) -> Result<Self, String> {
        let hosts = names.uris.iter().map(|uri| constrained_host(uri));
        let mailbox = |text: &String| {
            MailAddress::parse(text).ok_or(format!("cannot parse rfc822Name {text:?}"))
        };
        Ok(Self {
            names,
            hosts: hosts.collect::<Result<_, _>>()?,
            mailboxes: names.emails.iter().map(mailbox).collect::<Result<_, _>>()?,
        })
    }

    fn check(
        &self,
        constraints: &NameConstraints,
        budget: &mut ComparisonBudget,
    ) -> Result<(), String> {
        let (permitted, excluded) = (&constraints.permitted, &constraints.excluded);
        let same = |network: &IpNetwork, ip: &IpAddr, _| network.contains(*ip);
        let mut ips = NameKindConstraints::new("IP address", &permitted.ips, &excluded.ips, budget);
        for ip in &self.names.ips {
            ips.check(ip, &ip.to_string(), same)?;
        }
        let mut dns = NameKindConstraints::new("DNS name", &permitted.dns, &excluded.dns, budget);
        for name in &self.names.dns {
            if !uri::is_domain(name, false) {
                return Err(format!("cannot parse dnsName {name:?}"));
            }
            dns.check(name, name, is_host_within)?;
        }
        let mut uris = NameKindConstraints::new("URI", &permitted.uris, &excluded.uris, budget);
        for (host, uri) in self.hosts.iter().zip(&self.names.uris) {
            uris.check(host, uri, is_host_within)?;
        }
        let (kind, lists) = ("email address", (&permitted.emails, &excluded.emails));
        let mut emails = NameKindConstraints::new(kind, lists.0, lists.1, budget);
        for (mailbox, text) in self.mailboxes.iter().zip(&self.names.emails) {
            if !uri::is_domain(&mailbox.domain, false) {
                return Err(format!("cannot parse rfc822Name {text:?}"));
            }
            emails.check(mailbox, text, is_mailbox_within)?;
        }
        Ok(())
    }
}

/// Constraints of one kind in both lists, with the budget for comparisons.
struct NameKindConstraints<'c, C> {
    title: &'static str,
    permitted: &'c [C],
    excluded: &'c [C],
    budget: &'c mut ComparisonBudget,
}

impl<'c, C: fmt::Display> NameKindConstraints<'c, C> {
    fn new(
        title: &'static str,
        permitted: &'c [C],
        excluded: &'c [C],
        budget: &'c mut ComparisonBudget,
    ) -> Self {
        Self {
            title,
            permitted,
            excluded,
            budget,
        }
    }

    /// Checks one name. The third argument of `is_within` is true for excluded subtrees.
    fn check<N>(
        &mut self,
        name: &N,
        text: &str,
        is_within: impl Fn(&C, &N, bool) -> bool,
    ) -> Result<(), String> {
        self.budget
            .spend(self.permitted.len() + self.excluded.len())?;
        let title = self.title;
        let is_permitted = self.permitted.iter().any(|c| is_within(c, name, false));
        if !self.permitted.is_empty() && !is_permitted {
            return Err(format!(
                "{title} {text:?} is not permitted by any constraint"
            ));
        }
        match self.excluded.iter().find(|c| is_within(c, name, true)) {
            Some(by) => Err(format!(
                "{title} {text:?} is excluded by constraint \"{by}\""
            )),
            None => Ok(()),
        }
    }
}

/// Returns whether a host, which may be a wildcard, is in the subtree of a constraint. A constraint
/// with a leading dot matches only names with an additional label. An exclusion of a host also
/// excludes its wildcard.
fn is_host_within(constraint: &String, host: &String, is_exclusion: bool) -> bool {
    if constraint.is_empty() {
        return true;
    }
    let (constraint, host) = (constraint.as_bytes(), host.as_bytes());
    let ends = |text: &[u8], end: &[u8]| {
        let start = text.len().checked_sub(end.len());
        let tail = start.and_then(|start| text.get(start..));
        tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    };
    if ends(host, constraint) {
        let before = host.len() - constraint.len();
        let is_label = constraint.starts_with(b".") || before == 0;
        if is_label || host.get(before - 1) == Some(&b'.') {
            return true;
        }
    }
    let parent = |name: &[u8]| {
        let dot = name.iter().position(|b| *b == b'.')?;
        name.get(dot..).map(<[u8]>::to_ascii_lowercase)
    };
    is_exclusion
        && host.starts_with(b"*")
        && parent(host).is_some_and(|above| parent(constraint) == Some(above))
}

fn is_mailbox_within(constraint: &String, mailbox: &MailAddress, is_exclusion: bool) -> bool {
    if constraint.contains('@') {
        MailAddress::parse(constraint).as_ref() == Some(mailbox)
    } else {
        is_host_within(constraint, &mailbox.domain, is_exclusion)
    }
}

/// Returns the host of a URI. Fails unless it is a name, which constraints require.
fn constrained_host(uri: &str) -> Result<String, String> {
    let host = uri::parse_host(uri).unwrap_or_default();
    if host.is_empty() {
        let why = "cannot be matched against constraints";
        return Err(format!("URI with empty host ({uri:?}) {why}"));
    }
    let name = match host.split_once(':') {
        Some((name, port)) if !host.ends_with(']') => {
            let is_one = !port.contains(':') || host.starts_with('[');
            let failed = format!("cannot parse URI host {host:?}");
            is_one.then_some(name).ok_or(failed)?
        }
        _ => &host,
    };
    if name.starts_with('[') || name.parse::<IpAddr>().is_ok() {
        let why = "cannot be matched against constraints";
        return Err(format!("URI with IP ({uri:?}) {why}"));
    }
    if uri::is_domain(name, false) {
        Ok(name.to_owned())
    } else {
        Err(format!("cannot parse URI {uri:?}"))
    }
}

impl MailAddress {
    /// Parses a mail address as defined by RFC 2821. The domain may contain all visible ASCII
    /// characters.
    fn parse(text: &str) -> Option<Self> {
        let (local, rest) = match text.strip_prefix('"') {
            Some(quoted) => parse_quoted_local(quoted)?,
            None => parse_plain_local(text)?,
        };
        let domain = rest.strip_prefix('@')?;
        uri::is_domain(domain, false).then(|| Self {
            local,
            domain: domain.to_ascii_lowercase(),
        })
    }
}

/// Returns the unescaped text up to the closing quote, and the rest after it.
fn parse_quoted_local(text: &str) -> Option<(String, &str)> {
    let mut local = String::new();
    let mut chars = text.char_indices();
    loop {
        let (index, c) = chars.next()?;
        let code = u32::from(c);
        match c {
            '"' => return Some((local, text.get(index + 1..)?)),
            '\\' => {
                let (_, next) = chars.next()?;
                let code = u32::from(next);
                let is_text = matches!(code, 1..=9 | 11 | 12 | 14..=127);
                local.push(is_text.then_some(next)?);
            }
            _ if matches!(code, 1..=8 | 11 | 12 | 14..=33 | 35..=91 | 93..=127) => local.push(c),
            _ => return None,
        }
    }
}

/// Returns the words that are separated by dots, and the rest after them.
fn parse_plain_local(text: &str) -> Option<(String, &str)> {
    const MARKS: &str = "!#$%&'*+-/=?^_`{|}~.";
    let mut local = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || MARKS.contains(c);
        match c {
            // As in Go, any character may be escaped.
            '\\' => {
                rest = &rest[1..];
                local.push(rest.chars().next()?);
            }
            c if is_word(c) => local.push(c),
            _ => break,
        }
        let taken = rest.chars().next().map_or(0, char::len_utf8);
        rest = rest.get(taken..)?;
    }
    let is_valid = !local.is_empty()
        && !local.starts_with('.')
        && !local.ends_with('.')
        && !local.contains("..");
    is_valid.then_some((local, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_within_constraints_as_in_go() {
        for (constraint, host, is_exclusion, expected) in [
            ("", "a", false, true),
            ("example.com", "example.com", false, true),
            ("example.com", "a.EXAMPLE.com", false, true),
            ("example.com", "aexample.com", false, false),
            (".example.com", "example.com", false, false),
            (".example.com", "a.example.com", false, true),
            ("a.example.com", "*.example.com", false, false),
            ("a.example.com", "*.example.com", true, true),
            ("a.b.example.com", "*.example.com", true, false),
            ("com", "*.com", true, true),
            ("b", "*", true, false),
        ] {
            let found = is_host_within(&constraint.into(), &host.into(), is_exclusion);
            assert_eq!(found, expected, "{constraint} {host} {is_exclusion}");
        }
    }

    #[test]
    fn mailboxes_are_read_as_in_go() {
        for (text, expected) in [
            ("a@b", Some(("a", "b"))),
            ("a.c@B", Some(("a.c", "b"))),
            ("\"a b\\\"\"@b", Some(("a b\"", "b"))),
            ("a\\@c@b", Some(("a@c", "b"))),
            (".a@b", None),
            ("a..c@b", None),
            ("a@b.", None),
            ("a@b c", None),
            ("@b", None),
            ("a", None),
            ("\"a", None),
            ("a b@c", None),
        ] {
            let found = MailAddress::parse(text).map(|m| (m.local, m.domain));
            let expected = expected.map(|(local, domain)| (local.to_owned(), domain.to_owned()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn comparisons_are_limited() {
        let (permitted, name) = (["a".to_owned(), "b".to_owned()], "b".to_owned());
        for (rest, expected) in [
            (2, Ok(())),
            (
                1,
                Err("too many comparisons of names with name constraints"),
            ),
        ] {
            let mut budget = ComparisonBudget(rest);
            let mut kind = NameKindConstraints::new("DNS name", &permitted, &[], &mut budget);
            let found = kind.check(&name, &name, is_host_within);
            assert_eq!(found, expected.map_err(str::to_owned), "{rest}");
        }
    }
}
