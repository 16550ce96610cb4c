//! Processes that do not belong to a cluster end with one line, and the nodes go on.

use super::{FAST, SpreadSeries};
use crate::harness::cluster::{ClusterView, NODES, SECRET, TestCluster, wait_led};
use crate::harness::server::{Server, spawn};
use crate::refusal::Refusal;
use crate::tls::Authority;
use rcgen::SanType;
use std::time::Duration;

/// The longest time until a process that the peers reject ends.
const END_MAX: Duration = Duration::from_secs(30);

/// The index of the addresses of processes that are no nodes of the cluster.
const FIRST_INDEX: usize = 3;

/// Replaces the value of a key.
fn set(keys: &mut [(&'static str, String)], name: &str, value: String) {
    let key = keys.iter_mut().find(|(key, _)| *key == name);
    key.expect("a key of a node").1 = value;
}

#[test]
fn process_that_does_not_belong_to_the_cluster_ends_with_one_line() {
    let cluster = TestCluster::new(FAST, &[]);
    let servers = cluster.start_all();
    let spread = SpreadSeries::store(&servers);
    let before = ClusterView::read(&servers[0].http()).leaders();
    let other_secret = "another-secret-of-a-node";
    let secret_file = cluster.spare("secret");
    std::fs::write(&secret_file, other_secret).unwrap();
    let foreign = format!("\"file://{}\"", cluster.spare("bucket").display());
    let secret_file = format!("\"{}\"", secret_file.display());
    let cases = [
        ("stranger", "secret_file", secret_file, "secret"),
        ("foreigner", "bucket", foreign, "cluster"),
        ("divider", "partitions", "7".to_owned(), "has 6"),
        (
            "double",
            "node",
            "b".to_owned(),
            "another live node has the name \"b\"",
        ),
    ];
    std::thread::scope(|scope| {
        for (index, (file, key, value, fault)) in (FIRST_INDEX..).zip(cases) {
            let mut keys = cluster.node_keys(file, index);
            set(&mut keys, key, value);
            let command = cluster.command(file, &keys);
            scope.spawn(move || {
                let refusal = Refusal::within(END_MAX, command);
                assert_eq!(refusal.code, Some(1), "{file}: {}", refusal.stderr);
                assert!(refusal.line().contains(fault), "{file}: {}", refusal.stderr);
                for secret in [SECRET, other_secret] {
                    assert!(
                        !refusal.stderr.contains(secret),
                        "{file}: {}",
                        refusal.stderr
                    );
                }
            });
        }
    });
    assert_eq!(ClusterView::read(&servers[0].http()).leaders(), before);
    for server in &servers {
        spread.check(&server.http());
        SpreadSeries::store(&servers).check(&server.http());
    }
}

#[test]
fn listener_beyond_loopback_requires_a_secret() {
    let cluster = TestCluster::new(FAST, &[]);
    let mut keys = cluster.node_keys("a", 0);
    set(&mut keys, "listen", "\"0.0.0.0:9190\"".to_owned());
    keys.retain(|(key, _)| *key != "secret_file");
    let refusal = Refusal::of(cluster.command("a", &keys));
    assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
    let line = refusal.line();
    assert!(line.contains("firn.cluster.listen: 0.0.0.0:9190"), "{line}");
    assert!(line.contains("secret_file or tls is required"), "{line}");
    assert!(!cluster.bucket().exists(), "the bucket was used");
}

/// Returns the keys of the node with this index, with a certificate of `authority` instead of a
/// secret.
fn tls_keys(
    cluster: &TestCluster,
    authority: &Authority,
    node: &str,
    index: usize,
) -> Vec<(&'static str, String)> {
    let address = cluster.peer_address(index);
    let (ip, _) = address.rsplit_once(':').unwrap();
    let pair = authority.pair(vec![SanType::IpAddress(ip.parse().unwrap())]);
    let file = |name: &str, text: &str| {
        let path = cluster.spare(&format!("{node}-{name}"));
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let cert = file("cert", &pair.cert);
    let (key, ca) = (file("key", &pair.key), file("ca", authority.pem()));
    let mut keys = cluster.node_keys(node, index);
    keys.retain(|(key, _)| *key != "secret_file");
    let tls = format!("{{cert_file: \"{cert}\", key_file: \"{key}\", ca_file: \"{ca}\"}}");
    keys.push(("tls", tls));
    keys
}

#[test]
fn nodes_with_certificates_share_the_partitions_and_reject_other_certificates() {
    let cluster = TestCluster::new(FAST, &[]);
    let (authority, other) = (Authority::new(), Authority::new());
    let start = |index: usize| {
        let keys = tls_keys(&cluster, &authority, NODES[index], index);
        Server::from_child(spawn(cluster.command(NODES[index], &keys)))
    };
    let servers: Vec<Server> = (0..NODES.len()).map(start).collect();
    servers.iter().for_each(Server::wait_ready);
    wait_led(&servers.iter().collect::<Vec<_>>(), &NODES);
    let spread = SpreadSeries::store(&servers);
    let before = ClusterView::read(&servers[0].http()).leaders();
    let keys = tls_keys(&cluster, &other, "stranger", FIRST_INDEX);
    let refusal = Refusal::within(END_MAX, cluster.command("stranger", &keys));
    assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
    assert!(refusal.line().contains("certificate"), "{}", refusal.stderr);
    assert_eq!(ClusterView::read(&servers[0].http()).leaders(), before);
    servers
        .iter()
        .for_each(|server| spread.check(&server.http()));
}
