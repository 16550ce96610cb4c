//! The headers by which nodes recognize the requests of their peers.
//!
//! ```text
//! x-firn-peer: <version> <cluster id, 32 hex digits> <partitions>
//! x-firn-mac:  HMAC-SHA256(secret, constant + cluster id), 64 hex digits
//! x-firn-bytes: size of the body, so that its memory is reserved before it is read
//! ```
//!
//! The server checks them before it reads a body. Invariants: the secret is not sent and not
//! printed, and hashes are compared in constant time.

use crate::failure::PeerFailure;
use crate::options::{PEER_PROTOCOL_VERSION, PeerOptions};
use http::HeaderMap;
use ring::hmac;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

const PEER_HEADER: &str = "x-firn-peer";
const MAC_HEADER: &str = "x-firn-mac";

/// The header with the size of the body of an append or exchange in bytes.
pub(crate) const FRAME_BYTES_HEADER: &str = "x-firn-bytes";

/// The text that makes hashes of this protocol different from other ones with the same secret.
const MAC_CONTEXT: &[u8] = b"firn peer protocol\0";

/// The credentials of this process: of its own requests, and for the check of others.
#[derive(Clone)]
pub(crate) struct PeerCredentials {
    cluster: u128,
    partitions: u32,
    key: Option<hmac::Key>,
    peer: MetadataValue<Ascii>,
    mac: Option<MetadataValue<Ascii>>,
}

impl PeerCredentials {
    pub(crate) fn new(options: &PeerOptions) -> Self {
        let secret = options.security.secret.as_ref();
        let key = secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
        let ascii = |text: String| {
            let value = text.parse::<MetadataValue<Ascii>>();
            value.expect("digits, letters and spaces are a valid header")
        };
        let mac = key.as_ref().map(|key| {
            let mac = hmac::sign(key, &mac_input(options.cluster));
            ascii(to_hex(mac.as_ref()))
        });
        let (cluster, partitions) = (options.cluster, options.partitions);
        Self {
            cluster,
            partitions,
            key,
            peer: ascii(format!(
                "{PEER_PROTOCOL_VERSION} {cluster:032x} {partitions}"
            )),
            mac,
        }
    }

    /// Adds the headers of a request.
    pub(crate) fn sign(&self, headers: &mut MetadataMap) {
        headers.insert(PEER_HEADER, self.peer.clone());
        if let Some(mac) = &self.mac {
            headers.insert(MAC_HEADER, mac.clone());
        }
    }

    /// Checks the headers of a request. Fails with [`PeerFailure::Rejected`].
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), PeerFailure> {
        let rejected = |text: String| Err(PeerFailure::Rejected(text));
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(peer) = text(PEER_HEADER) else {
            return rejected("the request is not from a node of a cluster".into());
        };
        let mut fields = peer.split(' ');
        let version = fields.next().and_then(|field| field.parse::<u16>().ok());
        if version != Some(PEER_PROTOCOL_VERSION) {
            let theirs = version.map_or("unknown".into(), |version| version.to_string());
            return rejected(format!(
                "peer protocol version is {theirs}, this node supports {PEER_PROTOCOL_VERSION}"
            ));
        }
        let cluster = fields
            .next()
            .and_then(|hex| u128::from_str_radix(hex, 16).ok());
        let partitions = fields.next().and_then(|field| field.parse::<u32>().ok());
        let (Some(cluster), Some(partitions)) = (cluster, partitions) else {
            return rejected("the header of the peer is malformed".into());
        };
        self.check_mac(cluster, text(MAC_HEADER))?;
        if cluster != self.cluster {
            let own = self.cluster;
            return rejected(format!(
                "peer is of cluster {cluster:032x}, this node is of cluster {own:032x}"
            ));
        }
        if partitions != self.partitions {
            let own = self.partitions;
            return rejected(format!(
                "peer has {partitions} partitions, this node has {own}"
            ));
        }
        Ok(())
    }

    fn check_mac(&self, cluster: u128, mac: Option<&str>) -> Result<(), PeerFailure> {
        let Some(key) = &self.key else {
            return Ok(());
        };
        let mac = mac.and_then(from_hex).unwrap_or_default();
        let verified = hmac::verify(key, &mac_input(cluster), &mac);
        verified.map_err(|_| PeerFailure::Rejected("peer has another secret or none".into()))
    }
}

fn mac_input(cluster: u128) -> Vec<u8> {
    [MAC_CONTEXT, &cluster.to_be_bytes()].concat()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PeerSecret;

    fn options(cluster: u128, partitions: u32, secret: Option<&str>) -> PeerOptions {
        let mut options = PeerOptions::new(cluster, partitions);
        options.security.secret = secret.map(|secret| PeerSecret::new(secret.as_bytes()));
        options
    }

    fn check(client: &PeerOptions, server: &PeerOptions) -> Result<(), String> {
        let mut headers = MetadataMap::new();
        PeerCredentials::new(client).sign(&mut headers);
        let checked = PeerCredentials::new(server).check(&headers.into_headers());
        checked.map_err(|failure| failure.to_string())
    }

    #[test]
    fn headers_of_equal_nodes_are_accepted() {
        for secret in [None, Some("swordfish")] {
            let node = options(7, 12, secret);
            assert_eq!(check(&node, &node), Ok(()));
        }
    }

    #[test]
    fn headers_of_other_nodes_are_rejected_with_the_difference() {
        let node = options(7, 12, Some("swordfish"));
        let is_rejected = |client: PeerOptions, part: &str| {
            let text = check(&client, &node).unwrap_err();
            assert!(text.contains(part) && !text.contains("swordfish"), "{text}");
        };
        is_rejected(options(7, 12, Some("sword")), "another secret");
        is_rejected(options(7, 12, None), "another secret");
        is_rejected(options(8, 12, Some("swordfish")), "of cluster 0000");
        is_rejected(
            options(7, 13, Some("swordfish")),
            "13 partitions, this node has 12",
        );
        let credentials = PeerCredentials::new(&node);
        let mut headers = HeaderMap::new();
        assert!(credentials.check(&headers).is_err());
        for (header, part) in [
            ("1 07 12", "version is 1, this node supports 2"),
            ("", "version is unknown"),
            ("2 zz 12", "malformed"),
            ("2 07", "malformed"),
        ] {
            headers.insert(PEER_HEADER, header.parse().unwrap());
            let text = credentials.check(&headers).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
