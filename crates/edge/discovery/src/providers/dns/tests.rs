//! Tests of DNS discovery against servers on the loopback that answer over UDP and TCP.

use super::resolver::DnsResolver;
use super::*;
use crate::stub::{TargetListReceiver, format_targets};
use simple_dns::rdata::{A, AAAA, CNAME, MX, NS, RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// A DNS server for the names below `example.`.
struct Server {
    port: u16,
    /// Protocol and name of each received query.
    asked: Arc<Mutex<Vec<String>>>,
    is_broken: Arc<AtomicBool>,
}

impl Server {
    async fn start() -> Self {
        let (udp, tcp, port) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let port = udp.local_addr().unwrap().port();
            // Another program may already use this port number for TCP.
            if let Ok(tcp) = TcpListener::bind(("127.0.0.1", port)).await {
                break (udp, tcp, port);
            }
        };
        let server = Self {
            port,
            asked: Arc::default(),
            is_broken: Arc::default(),
        };
        let (asked, is_broken) = (server.asked.clone(), server.is_broken.clone());
        tokio::spawn(async move {
            let mut bytes = [0; 512];
            while let Ok((count, from)) = udp.recv_from(&mut bytes).await {
                let answer = answer(&bytes[..count], "udp", &asked, &is_broken);
                udp.send_to(&answer, from).await.unwrap();
            }
        });
        let (asked, is_broken) = (server.asked.clone(), server.is_broken.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let mut bytes = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut bytes).await.unwrap();
                let answer = answer(&bytes, "tcp", &asked, &is_broken);
                stream.write_u16(answer.len() as u16).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
        server
    }

    /// Creates a discovery of `names` with a `resolv.conf` that contains a search domain.
    fn names(
        &self,
        dir: &std::path::Path,
        names: &[&str],
        kind: DnsRecordType,
        port: i64,
    ) -> DnsDiscovery {
        let path = dir.join("resolv.conf");
        // No server answers at the first address.
        let text = "nameserver 127.9.9.9\nnameserver 127.0.0.1\nsearch example\n";
        std::fs::write(&path, text).unwrap();
        let settings = DnsSettings {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            record_type: kind,
            port,
            refresh: Duration::from_secs(30),
        };
        DnsDiscovery::with_resolver(
            DnsResolver::new(path, self.port),
            settings,
            TargetListReceiver::new().to,
        )
    }
}

fn answer(
    message: &[u8],
    way: &str,
    asked: &Mutex<Vec<String>>,
    is_broken: &AtomicBool,
) -> Vec<u8> {
    let question = Packet::parse(message).unwrap();
    let [one] = &question.questions[..] else {
        panic!("one question")
    };
    let name = one.qname.to_string();
    asked.lock().unwrap().push(format!("{way} {name}"));
    let QTYPE::TYPE(kind) = one.qtype else {
        panic!("a type")
    };
    let mut packet = Packet::new_reply(question.id());
    packet.questions.push(one.clone());
    let host = |name| Name::new(name).unwrap();
    let data = match (name.as_str(), kind) {
        _ if is_broken.load(Ordering::SeqCst) => {
            *packet.rcode_mut() = RCODE::ServerFailure;
            vec![]
        }
        ("web.example", TYPE::A) => vec![
            RData::CNAME(CNAME(host("real.example"))),
            RData::A(A {
                address: 0x0a00_0001,
            }),
        ],
        ("web.example", TYPE::AAAA) => vec![RData::AAAA(AAAA { address: 1 })],
        ("web.example", TYPE::MX) => vec![RData::MX(MX {
            preference: 1,
            exchange: host("mx.example"),
        })],
        ("web.example", TYPE::NS) => vec![RData::NS(NS(host("ns.example")))],
        ("many.example", TYPE::SRV) if way == "udp" => {
            packet.set_flags(PacketFlag::TRUNCATION);
            vec![]
        }
        ("many.example", TYPE::SRV) => vec![RData::SRV(SRV {
            priority: 0,
            weight: 0,
            port: 9100,
            target: host("a.example"),
        })],
        _ => {
            *packet.rcode_mut() = RCODE::NameError;
            vec![]
        }
    };
    let record = |data| ResourceRecord::new(one.qname.clone(), CLASS::IN, 1, data);
    packet.answers = data.into_iter().map(record).collect();
    packet.build_bytes_vec().unwrap()
}

#[tokio::test]
async fn records_of_each_type_become_targets() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    for (name, kind, port, want) in [
        ("web", DnsRecordType::A, 80, "10.0.0.1:80 dns_name=web"),
        ("web", DnsRecordType::Aaaa, 80, "[::1]:80 dns_name=web"),
        (
            "web.example",
            DnsRecordType::Mx,
            25,
            "mx.example:25 dns_mx_record_target=mx.example. dns_name=web.example",
        ),
        (
            "web.example.",
            DnsRecordType::Ns,
            53,
            "ns.example:53 dns_name=web.example. dns_ns_record_target=ns.example.",
        ),
        (
            "many",
            DnsRecordType::Srv,
            0,
            "a.example:9100 dns_name=many dns_srv_record_port=9100 \
             dns_srv_record_target=a.example.",
        ),
    ] {
        let mut names = server.names(dir.path(), &[name], kind, port);
        assert_eq!(format_targets(&names.refresh().await.unwrap()), [want]);
    }
    let asked = server.asked.lock().unwrap().clone();
    let last = &asked[asked.len() - 2..];
    assert_eq!(last, ["udp many.example", "tcp many.example"]);
}

#[tokio::test]
async fn name_that_fails_keeps_its_targets_and_one_that_is_gone_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let mut names = server.names(dir.path(), &["web", "gone"], DnsRecordType::A, 1);
    server.is_broken.store(true, Ordering::SeqCst);
    let e = names.refresh().await.unwrap_err();
    assert_eq!(e.message, "no name could be resolved");

    server.is_broken.store(false, Ordering::SeqCst);
    let want = ["10.0.0.1:1 dns_name=web"];
    assert_eq!(format_targets(&names.refresh().await.unwrap()), want);

    server.is_broken.store(true, Ordering::SeqCst);
    assert_eq!(format_targets(&names.refresh().await.unwrap()), want);
    assert_eq!(names.to.failures.get(), 2);

    std::fs::remove_file(dir.path().join("resolv.conf")).unwrap();
    assert_eq!(format_targets(&names.refresh().await.unwrap()), want);
}
