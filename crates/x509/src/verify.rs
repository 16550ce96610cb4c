//! Whether a certificate can be trusted: chains from it to a trusted certificate, in the order and
//! by the rules of Go's `Certificate.Verify`.
//!
//! Invariant: a chain is accepted exactly if Go accepts it, within [`CHECKS_MAX`] candidates and
//! [`COMPARISONS_MAX`] comparisons of names.

use super::constraints::{ComparisonBudget, check_constraints};
use super::host::check_host;
use super::policies::are_policies_valid;
use super::validity::rfc3339;
use super::{CertificatePool, X509Certificate};
use std::fmt;

/// Candidates for a place in a chain that are considered, as in Go.
const CHECKS_MAX: usize = 100;

/// Comparisons of names with constraints.
pub const COMPARISONS_MAX: usize = 1_000_000;

/// The use of a certificate: the side of TLS that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Of the server in TLS.
    Server,
    /// Of the client in TLS.
    Client,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// What a certificate is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    /// Certificates that end a chain; a leaf among them is a chain of its own.
    pub roots: &'a CertificatePool,
    /// Further certificates that the peer sent, in any order.
    pub intermediates: &'a CertificatePool,
    /// The name or address that the leaf must be valid for.
    pub host: Option<&'a str>,
    /// The use that extended key usages must allow along the chain.
    pub purpose: Purpose,
    /// Seconds since 1970.
    pub now: i64,
}

/// Why a certificate is not accepted, with the text of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateRefused {
    /// Not valid for the host.
    #[error("x509: {0}")]
    Host(String),
    /// Outside its validity.
    #[error("x509: certificate has expired or is not yet valid: {0}")]
    Expired(String),
    /// A critical extension is unknown.
    #[error("x509: unhandled critical extension")]
    UnknownExtension,
    /// An issuer is no authority.
    #[error("x509: certificate is not authorized to sign other certificates")]
    NotAuthority,
    /// The path length of an authority is exceeded.
    #[error("x509: too many intermediates for path length constraint")]
    TooManyIntermediates,
    /// No chain ends at a trusted certificate.
    #[error("x509: certificate signed by unknown authority{0}")]
    UnknownAuthority(String),
    /// Extended key usages do not allow the purpose.
    #[error("x509: certificate specifies an incompatible key usage")]
    IncompatibleUsage,
    /// A name is not allowed by an authority.
    #[error(
        "x509: a root or intermediate certificate is not authorized to sign for this name: {0}"
    )]
    NotForName(String),
    /// The policies of an authority do not allow any chain.
    #[error("x509: no valid chains built: {0}")]
    NoValidChains(String),
    /// Too many candidates.
    #[error("x509: signature check attempts limit reached while verifying certificate chain")]
    TooManyChecks,
}

/// Judges a certificate.
pub fn verify(leaf: &X509Certificate, trust: &Trust<'_>) -> Result<(), CertificateRefused> {
    check_valid(leaf, ChainPlace::Leaf, trust.now)?;
    if let Some(host) = trust.host.filter(|host| !host.is_empty()) {
        check_host(leaf, host)?;
    }
    let mut search = ChainSearch {
        trust,
        checks: 0,
        chains: Rejections::default(),
        budget: ComparisonBudget(COMPARISONS_MAX),
    };
    let mut chain = vec![leaf];
    let found = match trust.roots.contains(leaf) {
        true => search.accepts(&chain).then_some(()).ok_or(None),
        false => search.extend(&mut chain),
    };
    found.map_err(|why| search.chains.refused().or(why).unwrap_or(unknown(None)))
}

/// The place of a certificate in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainPlace {
    Leaf,
    /// With the number of intermediates below it.
    Intermediate(u64),
    /// With the number of intermediates below it.
    Root(u64),
}

fn check_valid(
    certificate: &X509Certificate,
    place: ChainPlace,
    now: i64,
) -> Result<(), CertificateRefused> {
    let (validity, extensions) = (&certificate.validity, &certificate.extensions);
    if extensions.has_unknown_critical {
        return Err(CertificateRefused::UnknownExtension);
    }
    let (limit, side) = match now < validity.not_before {
        true => (validity.not_before, "before"),
        false => (validity.not_after, "after"),
    };
    if now < validity.not_before || now > validity.not_after {
        let (now, limit) = (rfc3339(now), rfc3339(limit));
        return Err(CertificateRefused::Expired(format!(
            "current time {now} is {side} {limit}"
        )));
    }
    let is_ca = extensions.basic.is_some_and(|basic| basic.is_ca);
    let path_length_max = extensions.basic.and_then(|basic| basic.path_length_max);
    match place {
        ChainPlace::Intermediate(_) if !is_ca => Err(CertificateRefused::NotAuthority),
        ChainPlace::Intermediate(below) | ChainPlace::Root(below)
            if path_length_max.is_some_and(|max| below > max) =>
        {
            Err(CertificateRefused::TooManyIntermediates)
        }
        _ => Ok(()),
    }
}

/// Why whole chains were not accepted.
#[derive(Debug, Default)]
struct Rejections {
    by_usage: usize,
    by_policies: usize,
    /// The first name that was not allowed.
    by_name: Option<String>,
}

impl Rejections {
    fn refused(&self) -> Option<CertificateRefused> {
        if let Some(name) = &self.by_name {
            return Some(CertificateRefused::NotForName(name.clone()));
        }
        let (usage, policies) = (self.by_usage, self.by_policies);
        let policies_text = format!("{policies} candidate chains with invalid policies");
        match (usage, policies) {
            (0, 0) => None,
            (_, 0) => Some(CertificateRefused::IncompatibleUsage),
            (0, _) => Some(CertificateRefused::NoValidChains(policies_text)),
            _ => Some(CertificateRefused::NoValidChains(format!(
                "{usage} candidate chains with incompatible key usage, {policies_text}"
            ))),
        }
    }
}

/// A search for a chain, depth first.
struct ChainSearch<'a, 't> {
    trust: &'t Trust<'a>,
    checks: usize,
    chains: Rejections,
    budget: ComparisonBudget,
}

/// The first candidate that was not taken, and the reason.
type Hint<'a> = Option<(&'a X509Certificate, String)>;

impl<'a> ChainSearch<'a, '_> {
    /// Finds a chain that continues `chain`. Fails with the reason of Go, or with none if chains
    /// were found and rejected.
    fn extend(
        &mut self,
        chain: &mut Vec<&'a X509Certificate>,
    ) -> Result<(), Option<CertificateRefused>> {
        let Some(child) = chain.last().copied() else {
            return Err(None);
        };
        let below = u64::try_from(chain.len() - 1).unwrap_or(u64::MAX);
        let trust = self.trust;
        let roots = trust.roots.parents_of(child).into_iter();
        let roots = roots.map(|parent| (ChainPlace::Root(below), parent));
        let others = trust.intermediates.parents_of(child).into_iter();
        let others = others.map(|parent| (ChainPlace::Intermediate(below), parent));
        let mut hint = None;
        let mut last = None;
        let mut has_chains = false;
        for (place, parent) in roots.chain(others) {
            self.checks += 1;
            if self.checks > CHECKS_MAX {
                last = Some(CertificateRefused::TooManyChecks);
                break;
            }
            if let Err(why) = check_signer(child, parent, chain) {
                hint = hint.or(why.map(|why| (parent, why)));
                continue;
            }
            last = check_valid(parent, place, trust.now).err();
            if let Some(why) = &last {
                hint = hint.or(Some((parent, why.to_string())));
                continue;
            }
            chain.push(parent);
            let found = match place {
                ChainPlace::Root(_) => self.accepts(chain).then_some(()).ok_or(None),
                _ => self.extend(chain),
            };
            chain.pop();
            match found {
                Ok(()) => return Ok(()),
                Err(None) => has_chains = true,
                Err(why) => last = why,
            }
            if last == Some(CertificateRefused::TooManyChecks) {
                break;
            }
        }
        match has_chains {
            true => Err(None),
            false => Err(last.or_else(|| Some(unknown(hint)))),
        }
    }

    /// Whether a whole chain is allowed by its policies, usages and name constraints.
    fn accepts(&mut self, chain: &[&X509Certificate]) -> bool {
        if !are_policies_valid(chain) {
            self.chains.by_policies += 1;
            return false;
        }
        if !chain.iter().all(|c| allows(c, self.trust.purpose)) {
            self.chains.by_usage += 1;
            return false;
        }
        match check_constraints(chain, &mut self.budget) {
            Ok(()) => true,
            Err(name) => {
                self.chains.by_name.get_or_insert(name);
                false
            }
        }
    }
}

/// Checks that `parent` signed `child` and is not in `chain`. Fails without a reason if it cannot
/// be used at all.
fn check_signer(
    child: &X509Certificate,
    parent: &X509Certificate,
    chain: &[&X509Certificate],
) -> Result<(), Option<String>> {
    if parent.key.is_unknown() || is_in_chain(parent, chain) {
        return Err(None);
    }
    let extensions = &parent.extensions;
    let is_authority = match extensions.basic {
        Some(basic) => basic.is_ca,
        // Versions 1 and 2 have no extensions.
        None => parent.version < 3,
    };
    if !is_authority || extensions.refuses_signing {
        let why =
            "x509: invalid signature: parent certificate cannot sign this kind of certificate";
        return Err(Some(why.to_owned()));
    }
    let kind = child.signature_kind;
    let checked = parent.key.check(kind, &child.signed, &child.signature);
    checked.map_err(|why| Some(why.to_string()))
}

/// Whether a certificate with the subject, key and alternative names of `candidate` is in a chain.
fn is_in_chain(candidate: &X509Certificate, chain: &[&X509Certificate]) -> bool {
    let names = candidate.extensions.raw_names.as_ref();
    for known in chain {
        if known.subject.raw != candidate.subject.raw || known.key_info != candidate.key_info {
            continue;
        }
        let known_names = known.extensions.raw_names.as_ref();
        if known_names == names {
            return true;
        }
        if known_names.is_none() || names.is_none() {
            return false;
        }
    }
    false
}

fn allows(certificate: &X509Certificate, purpose: Purpose) -> bool {
    let Some(usages) = certificate.extensions.usages else {
        return true;
    };
    let is_named = match purpose {
        Purpose::Server => usages.has_server,
        Purpose::Client => usages.has_client,
    };
    usages.has_any || is_named
}

fn unknown(hint: Hint<'_>) -> CertificateRefused {
    CertificateRefused::UnknownAuthority(match hint {
        None => String::new(),
        Some((parent, why)) => format!(
            " (possibly because of {why:?} while trying to verify candidate authority certificate \
             {:?})",
            parent.title()
        ),
    })
}
