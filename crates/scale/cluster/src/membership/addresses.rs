//! The addresses of peers: names of the config are resolved again and again, so that a headless
//! service of Kubernetes or a DNS name with many addresses follows its nodes.

use std::collections::BTreeSet;
use std::time::Duration;
use tokio::net::lookup_host;

/// The time for which the addresses of a name are used before it is resolved again.
pub(super) const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// Resolves `names`, each `host:port`, to socket addresses. A name that is not resolved has none,
/// and `known` keeps its old addresses until the next attempt.
pub(super) async fn resolve_peers(names: &[String], known: &BTreeSet<String>) -> BTreeSet<String> {
    let mut addresses = BTreeSet::new();
    let mut has_failed = false;
    for name in names {
        match lookup_host(name).await {
            Ok(found) => addresses.extend(found.map(|address| address.to_string())),
            Err(error) => {
                tracing::warn!(name, %error, "cannot resolve a peer");
                has_failed = true;
            }
        }
    }
    if has_failed {
        addresses.extend(known.iter().cloned());
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_have_addresses_and_failed_ones_keep_the_known() {
        let names = ["127.0.0.1:9190".to_owned(), "[::1]:9191".to_owned()];
        let found = resolve_peers(&names, &BTreeSet::new()).await;
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["127.0.0.1:9190", "[::1]:9191"]
        );
        let known = BTreeSet::from(["10.0.0.1:1".to_owned()]);
        let found = resolve_peers(&["no-port".to_owned()], &known).await;
        assert_eq!(found, known);
    }
}
