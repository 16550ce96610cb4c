//! Verification of a certificate: builds chains from it to a trusted certificate, in the order and
//! by the rules of Go's `AzureClientCertificate.Verify`.
//!
//! Invariant: a certificate is accepted if and only if Go accepts it, within [`CHECKS_MAX`]
//! candidates and [`COMPARISONS_MAX`] name comparisons.

use super::constraints::{ComparisonBudget, check_constraints};
use super::host::check_host;
use super::policies::are_policies_valid;
use super::validity::format_rfc3339;
use super::{CertificatePool, X509Certificate};
use std::fmt;

/// Maximum number of candidate issuers that are examined, as in Go.
const CHECKS_MAX: usize = 100;

/// Maximum number of comparisons between names and constraints per certificate.
pub const COMPARISONS_MAX: usize = 1_000_000;

/// Use of a certificate: the TLS side that presents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePurpose {
    /// Certificate that a TLS server presents to clients.
    Server,
    /// Certificate that a TLS client presents to a server.
    Client,
}

impl fmt::Display for CertificatePurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// Conditions under which a certificate is trusted: roots, intermediates, host, use and time.
#[derive(Clone, Copy, Debug)]
pub struct CertificateTrust<'a> {
    /// Certificates that end a chain. A leaf in this set is a complete chain.
    pub roots: &'a CertificatePool,
    /// Further certificates that the peer sent, in any order.
    pub intermediates: &'a CertificatePool,
    /// Name or address that the leaf must be valid for, if any.
    pub host: Option<&'a str>,
    /// Use that the extended key usages of the whole chain must permit.
    pub purpose: CertificatePurpose,
    /// Current time in seconds since 1970.
    pub now: i64,
}

/// Why a certificate is rejected, with the error text of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateRejection {
    /// The certificate is not valid for the host.
    #[error("x509: {0}")]
    Host(String),
    /// The certificate is outside of its validity period.
    #[error("x509: certificate has expired or is not yet valid: {0}")]
    Expired(String),
    /// The certificate contains an unknown critical extension.
    #[error("x509: unhandled critical extension")]
    UnknownExtension,
    /// An issuer in the chain is not a CA.
    #[error("x509: certificate is not authorized to sign other certificates")]
    NotAuthority,
    /// The chain exceeds the path length constraint of a CA.
    #[error("x509: too many intermediates for path length constraint")]
    TooManyIntermediates,
    /// No chain ends at a trusted certificate; contains a hint.
    #[error("x509: certificate signed by unknown authority{0}")]
    UnknownAuthority(String),
    /// The extended key usages do not permit the purpose.
    #[error("x509: certificate specifies an incompatible key usage")]
    IncompatibleUsage,
    /// The name constraints of a CA do not permit a name.
    #[error(
        "x509: a root or intermediate certificate is not authorized to sign for this name: {0}"
    )]
    NotForName(String),
    /// No chain satisfies the policy requirements of its CAs.
    #[error("x509: no valid chains built: {0}")]
    NoValidChains(String),
    /// The limit on examined candidate issuers would be exceeded.
    #[error("x509: signature check attempts limit reached while verifying certificate chain")]
    TooManyChecks,
}

/// Verifies `leaf` under the conditions in `trust`. Returns the error that Go returns.
pub fn verify(
    leaf: &X509Certificate,
    trust: &CertificateTrust<'_>,
) -> Result<(), CertificateRejection> {
    check_valid(leaf, ChainPosition::Leaf, trust.now)?;
    if let Some(host) = trust.host.filter(|host| !host.is_empty()) {
        check_host(leaf, host)?;
    }
    let mut search = ChainSearch {
        trust,
        checks: 0,
        chains: ChainRejections::default(),
        budget: ComparisonBudget(COMPARISONS_MAX),
    };
    let mut chain = vec![leaf];
    let found = if trust.roots.contains(leaf) {
        search.accepts(&chain).then_some(()).ok_or(None)
    } else {
        search.extend(&mut chain)
    };
    found.map_err(|why| {
        search
            .chains
            .rejection()
            .or(why)
            .unwrap_or(unknown_authority(None))
    })
}

/// Position of a certificate in a chain, which determines the constraints that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainPosition {
    Leaf,
    /// Intermediate CA, with the number of intermediates below it.
    Intermediate(u64),
    /// Trusted root, with the number of intermediates below it.
    Root(u64),
}

fn check_valid(
    certificate: &X509Certificate,
    place: ChainPosition,
    now: i64,
) -> Result<(), CertificateRejection> {
    let (validity, extensions) = (&certificate.validity, &certificate.extensions);
    if extensions.has_unknown_critical {
        return Err(CertificateRejection::UnknownExtension);
    }
    let (limit, side) = if now < validity.not_before {
        (validity.not_before, "before")
    } else {
        (validity.not_after, "after")
    };
    if now < validity.not_before || now > validity.not_after {
        let (now, limit) = (format_rfc3339(now), format_rfc3339(limit));
        return Err(CertificateRejection::Expired(format!(
            "current time {now} is {side} {limit}"
        )));
    }
    let is_ca = extensions.basic.is_some_and(|basic| basic.is_ca);
    let path_length_max = extensions.basic.and_then(|basic| basic.path_length_max);
    match place {
        ChainPosition::Intermediate(_) if !is_ca => Err(CertificateRejection::NotAuthority),
        ChainPosition::Intermediate(below) | ChainPosition::Root(below)
            if path_length_max.is_some_and(|max| below > max) =>
        {
            Err(CertificateRejection::TooManyIntermediates)
        }
        _ => Ok(()),
    }
}

/// Counts and reasons of complete chains that were found but rejected.
#[derive(Debug, Default)]
struct ChainRejections {
    by_usage: usize,
    by_policies: usize,
    /// Error text of the first name that was not permitted.
    by_name: Option<String>,
}

impl ChainRejections {
    fn rejection(&self) -> Option<CertificateRejection> {
        if let Some(name) = &self.by_name {
            return Some(CertificateRejection::NotForName(name.clone()));
        }
        let (usage, policies) = (self.by_usage, self.by_policies);
        let policies_text = format!("{policies} candidate chains with invalid policies");
        match (usage, policies) {
            (0, 0) => None,
            (_, 0) => Some(CertificateRejection::IncompatibleUsage),
            (0, _) => Some(CertificateRejection::NoValidChains(policies_text)),
            _ => Some(CertificateRejection::NoValidChains(format!(
                "{usage} candidate chains with incompatible key usage, {policies_text}"
            ))),
        }
    }
}

/// Depth-first search for a valid chain, with the limits of one verification.
struct ChainSearch<'a, 't> {
    trust: &'t CertificateTrust<'a>,
    checks: usize,
    chains: ChainRejections,
    budget: ComparisonBudget,
}

/// First rejected candidate with the reason, which becomes part of the error text.
type Hint<'a> = Option<(&'a X509Certificate, String)>;

impl<'a> ChainSearch<'a, '_> {
    /// Searches for a valid continuation of `chain`. Fails with Go's error, or with `None` if
    /// complete chains were found and rejected.
    fn extend(
        &mut self,
        chain: &mut Vec<&'a X509Certificate>,
    ) -> Result<(), Option<CertificateRejection>> {
        let Some(child) = chain.last().copied() else {
            return Err(None);
        };
        let below = u64::try_from(chain.len() - 1).unwrap_or(u64::MAX);
        let trust = self.trust;
        let roots = trust.roots.find_parents(child).into_iter();
        let roots = roots.map(|parent| (ChainPosition::Root(below), parent));
        let others = trust.intermediates.find_parents(child).into_iter();
        let others = others.map(|parent| (ChainPosition::Intermediate(below), parent));
        let mut hint = None;
        let mut last = None;
        let mut has_chains = false;
        for (place, parent) in roots.chain(others) {
            self.checks += 1;
            if self.checks > CHECKS_MAX {
                last = Some(CertificateRejection::TooManyChecks);
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
                ChainPosition::Root(_) => self.accepts(chain).then_some(()).ok_or(None),
                _ => self.extend(chain),
            };
            chain.pop();
            match found {
                Ok(()) => return Ok(()),
                Err(None) => has_chains = true,
                Err(why) => last = why,
            }
            if last == Some(CertificateRejection::TooManyChecks) {
                break;
            }
        }
        if has_chains {
            Err(None)
        } else {
            Err(last.or_else(|| Some(unknown_authority(hint))))
        }
    }

    /// Returns whether policies, key usages and name constraints permit a complete chain. Records
    /// the reason otherwise.
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

/// Checks that `parent` signed `child` and is not in `chain`. Fails with `None` if the candidate
/// cannot be used at all.
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

/// Returns whether the chain contains a certificate with the same subject, key and alternative
/// names as `candidate`.
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

fn allows(certificate: &X509Certificate, purpose: CertificatePurpose) -> bool {
    let Some(usages) = certificate.extensions.usages else {
        return true;
    };
    let is_named = match purpose {
        CertificatePurpose::Server => usages.has_server,
        CertificatePurpose::Client => usages.has_client,
    };
    usages.has_any || is_named
}

fn unknown_authority(hint: Hint<'_>) -> CertificateRejection {
    CertificateRejection::UnknownAuthority(match hint {
        None => String::new(),
        Some((parent, why)) => format!(
            " (possibly because of {why:?} while trying to verify candidate authority certificate \
             {:?})",
            parent.title()
        ),
    })
}
