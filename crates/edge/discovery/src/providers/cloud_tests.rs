//! Tests of cloud discoveries against stub servers that follow the documented APIs: found targets,
//! pagination, removed targets, and targets that remain while the API fails.

use super::ionos::IonosSettings;
use super::linode::LinodeSettings;
use super::outscale::OutscaleSettings;
use super::ovhcloud::{OvhService, OvhSettings};
use super::scaleway::{ScalewayRole, ScalewaySettings};
use super::stackit::StackitSettings;
use super::vultr::VultrSettings;
use super::*;
use crate::environment::Variables;
use crate::stub::{ManualRefresh, StubRequest, StubResponse, StubRoutes, StubServer};
use firn_http_client::{HttpSettings, Secret};
use firn_model::env::sim::SimClock;
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const BYTES: u64 = 1 << 20;

fn secret(text: &str) -> Secret {
    Secret::Inline(text.into())
}

const LINODES: &str = r#"{"data": [{"id": 123, "label": "web", "group": "g", "status": "running",
  "type": "g6-standard-1", "region": "us-east", "image": "linode/debian12", "hypervisor": "kvm",
  "ipv4": ["203.0.113.1", "192.168.133.234", "203.0.113.9"],
  "ipv6": "2001:db8::f03c:91ff:fe24:3a2f/128",
  "specs": {"disk": 81920, "memory": 4096, "vcpus": 2, "gpus": 0, "transfer": 4000},
  "backups": {"enabled": true}, "tags": ["a", "b"]}], "page": 1, "pages": 2, "results": 3}"#;

const LINODES_REST: &str = r#"{"data": [{"id": 124, "label": "none", "ipv4": []},
  {"id": 125, "image": null, "ipv6": null, "tags": [], "ipv4": ["203.0.113.2"]}],
  "page": 2, "pages": 2, "results": 3}"#;

const LINODE_IPS: &str = r#"{"data": [
  {"address": "203.0.113.1", "public": true, "rdns": "web.example.org"},
  {"address": "203.0.113.9", "public": true, "rdns": null},
  {"address": "192.168.133.234", "public": false, "rdns": null},
  {"address": "2001:db8::f03c:91ff:fe24:3a2f", "public": true, "rdns": "six.example.org"},
  {"address": "203.0.113.2", "public": true, "rdns": "null"}], "page": 1, "pages": 1}"#;

const LINODE_RANGES: &str = r#"{"data": [{"range": "2600:3c00::", "prefix": 64,
  "route_target": "2001:db8::f03c:91ff:fe24:3a2f"}], "page": 1, "pages": 1}"#;

const LIST: &str = "/linode/instances?page=1&page_size=500";
const EVENTS: &str = "/account/events?page=1&page_size=25";

fn linode(answers: &StubRoutes, clock: &Arc<SimClock>) -> ManualRefresh {
    let settings = LinodeSettings {
        region: "us-east".into(),
        tag_separator: ";".into(),
        port: 80,
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    ManualRefresh::new(linode::LinodeDiscovery::with_endpoint(
        answers.url(),
        &settings,
        BYTES,
        clock.clone(),
    ))
}

async fn linodes() -> StubRoutes {
    StubRoutes::start(&[
        (LIST, LINODES),
        ("/linode/instances?page=2&page_size=500", LINODES_REST),
        ("/networking/ips?page=1&page_size=500", LINODE_IPS),
        (
            "/networking/ipv6/ranges?page=1&page_size=500",
            LINODE_RANGES,
        ),
        (EVENTS, r#"{"data": [{"id": 9}], "page": 1, "pages": 1}"#),
    ])
    .await
}

#[tokio::test]
async fn linode_instances_become_targets() {
    let answers = linodes().await;
    let mut linodes = linode(&answers, &Arc::default());
    assert_eq!(
        linodes.refresh_targets().await,
        [
            "203.0.113.1:80 linode_backups=enabled linode_extra_ips=;203.0.113.9; linode_gpus=0 \
             linode_group=g linode_hypervisor=kvm linode_image=linode/debian12 \
             linode_instance_id=123 linode_instance_label=web \
             linode_ipv6_ranges=;2600:3c00::/64; linode_private_ipv4=192.168.133.234 \
             linode_public_ipv4=203.0.113.1 linode_public_ipv4_rdns=web.example.org \
             linode_public_ipv6=2001:db8::f03c:91ff:fe24:3a2f \
             linode_public_ipv6_rdns=six.example.org linode_region=us-east \
             linode_specs_disk_bytes=85899345920 linode_specs_memory_bytes=4294967296 \
             linode_specs_transfer_bytes=4194304000 linode_specs_vcpus=2 linode_status=running \
             linode_tags=;a;b; linode_type=g6-standard-1",
            "203.0.113.2:80 linode_backups=disabled linode_gpus=0 linode_instance_id=125 \
             linode_public_ipv4=203.0.113.2 linode_specs_disk_bytes=0 \
             linode_specs_memory_bytes=0 linode_specs_transfer_bytes=0 linode_specs_vcpus=0",
        ]
    );
    let filter = &answers.stub.received_requests()[0].headers["x-filter"];
    assert_eq!(filter, r#"{"region": "us-east"}"#);
    linodes.check_targets_kept(&answers, LIST).await;
    linodes.check_targets_kept(&answers, EVENTS).await;
    answers.set_response(LIST, 200, r#"{"data": [], "page": 1, "pages": 1}"#);
    assert_eq!(linodes.refresh_targets().await, [""; 0]);
}

#[tokio::test]
async fn linode_is_asked_for_instances_when_there_were_events() {
    let answers = linodes().await;
    let clock = Arc::new(SimClock::default());
    let mut linodes = linode(&answers, &clock);
    linodes.refresh_targets().await;
    clock.advance_ms(90_061_000);
    answers.set_response(EVENTS, 200, r#"{"data": [], "page": 1, "pages": 1}"#);
    let lists = || {
        answers
            .stub
            .received_paths()
            .iter()
            .filter(|p| *p == LIST)
            .count()
    };
    let mut counts = Vec::new();
    for _ in 0..11 {
        linodes.refresh_targets().await;
        counts.push(lists());
    }
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2], "ten quiet times");
    let last = answers.stub.received_requests().pop().unwrap();
    assert_eq!(
        last.headers["x-filter"],
        r#"{"created": {"+gte": "1970-01-02T01:01:01"}}"#
    );
    answers.set_response(EVENTS, 401, "{}");
    linodes.refresh_targets().await;
    linodes.refresh_targets().await;
    let events = answers
        .stub
        .received_paths()
        .iter()
        .filter(|p| *p == EVENTS)
        .count();
    assert_eq!((lists(), events), (4, 12), "a token that is not for events");
}

const VULTRS: &str = r#"{"instances": [{"id": "4f0f12e5", "os": "CentOS SELinux 8 x64",
  "ram": 32768, "disk": 1024, "main_ip": "192.0.2.123", "vcpu_count": 6, "region": "atl",
  "plan": "vc2-6c-16gb", "allowed_bandwidth": 4000, "server_status": "ok",
  "v6_main_ip": "2001:db8:5:6bb::100", "internal_ip": "", "hostname": "my_hostname",
  "label": "Example", "os_id": 215, "features": ["ddos_protection"], "tags": ["t 1"]}],
  "meta": {"total": 2, "links": {"next": "bmV4dA==", "prev": ""}}}"#;

#[tokio::test]
async fn vultr_instances_become_targets() {
    let first = "/v2/instances?per_page=100";
    let answers = StubRoutes::start(&[
        (first, VULTRS),
        (
            "/v2/instances?per_page=100&cursor=bmV4dA%3D%3D",
            r#"{"instances": [{"id": "2", "main_ip": "192.0.2.124"}], "meta": {"links": {}}}"#,
        ),
    ])
    .await;
    let settings = VultrSettings {
        port: 80,
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let mut vultrs = ManualRefresh::new(vultr::VultrDiscovery::with_endpoint(
        answers.url(),
        &settings,
        BYTES,
    ));
    assert_eq!(
        vultrs.refresh_targets().await,
        [
            "192.0.2.123:80 vultr_instance_allowed_bandwidth_gb=4000 vultr_instance_disk_gb=1024 \
             vultr_instance_features=,ddos_protection, vultr_instance_hostname=my_hostname \
             vultr_instance_id=4f0f12e5 vultr_instance_label=Example \
             vultr_instance_main_ip=192.0.2.123 vultr_instance_main_ipv6=2001:db8:5:6bb::100 \
             vultr_instance_os=CentOS SELinux 8 x64 vultr_instance_os_id=215 \
             vultr_instance_plan=vc2-6c-16gb vultr_instance_ram_mb=32768 \
             vultr_instance_region=atl vultr_instance_server_status=ok \
             vultr_instance_tags=,t 1, vultr_instance_vcpu_count=6",
            "192.0.2.124:80 vultr_instance_allowed_bandwidth_gb=0 vultr_instance_disk_gb=0 \
             vultr_instance_id=2 vultr_instance_main_ip=192.0.2.124 vultr_instance_os_id=0 \
             vultr_instance_ram_mb=0 vultr_instance_vcpu_count=0",
        ]
    );
    vultrs.check_targets_kept(&answers, first).await;
    answers.set_response(
        first,
        200,
        r#"{"instances": [], "meta": {"links": {"next": ""}}}"#,
    );
    assert_eq!(vultrs.refresh_targets().await, [""; 0]);
}

fn scaleway(answers: &StubRoutes, role: ScalewayRole) -> ManualRefresh {
    ManualRefresh::new(scaleway::ScalewayDiscovery::new(
        &ScalewaySettings {
            role,
            url: answers.url().into(),
            zone: "fr-par-1".into(),
            secret_key: secret("key"),
            name_filter: "w b".into(),
            tags_filter: vec!["a".into(), "b".into()],
            port: 80,
            refresh: MINUTE,
            client: HttpSettings::default(),
        },
        BYTES,
    ))
}

const SCALEWAYS: &str = r#"{"servers": [{"id": "s1", "name": "one", "organization": "o",
  "project": "p", "tags": ["t"], "commercial_type": "DEV1-S", "hostname": "h", "zone": "fr-par-1",
  "image": {"id": "i1", "name": "Debian", "arch": "x86_64"}, "state": "running",
  "private_ip": "10.70.60.57", "boot_type": "local",
  "public_ip": {"address": "51.158.183.115", "family": "inet"},
  "public_ips": [{"address": "51.158.183.115", "family": "inet"},
    {"address": "2001:bc8:1::1", "family": "inet6"}],
  "location": {"cluster_id": "40", "hypervisor_id": "1601", "node_id": "29"},
  "ipv6": {"address": "2001:bc8:1::1"}, "security_group": {"id": "g1", "name": "default"},
  "private_nics": []},
 {"id": "s2", "zone": "fr-par-1", "private_ip": null, "public_ip": null, "ipv6": null,
  "image": null, "location": null, "private_nics": [{"id": "n1"}, {"id": "n2"}]}],
  "total_count": 3}"#;

const SCALEWAYS_REST: &str = r#"{"servers": [{"id": "s3", "zone": "fr-par-1", "private_nics": []}],
  "total_count": 3}"#;

const SCALEWAY_IPS: &str = r#"{"ips": [
  {"address": "fd00::1/64", "is_ipv6": true, "resource": {"id": "n2"}},
  {"address": "172.16.0.2/22", "is_ipv6": false, "resource": {"id": "n2"}}], "total_count": 2}"#;

#[tokio::test]
async fn scaleway_instances_become_targets() {
    let list = "/instance/v1/zones/fr-par-1/servers?name=w+b&tags=a%2Cb&page=1";
    let answers = StubRoutes::start(&[
        (list, SCALEWAYS),
        (
            "/instance/v1/zones/fr-par-1/servers?name=w+b&tags=a%2Cb&page=2",
            SCALEWAYS_REST,
        ),
        (
            "/ipam/v1/regions/fr-par/ips?resource_ids=n1&resource_ids=n2&\
             resource_types=instance_private_nic&page=1",
            SCALEWAY_IPS,
        ),
    ])
    .await;
    let mut servers = scaleway(&answers, ScalewayRole::Instance);
    assert_eq!(
        servers.refresh_targets().await,
        [
            "10.70.60.57:80 scaleway_instance_boot_type=local scaleway_instance_hostname=h \
             scaleway_instance_id=s1 scaleway_instance_image_arch=x86_64 \
             scaleway_instance_image_id=i1 scaleway_instance_image_name=Debian \
             scaleway_instance_location_cluster_id=40 \
             scaleway_instance_location_hypervisor_id=1601 \
             scaleway_instance_location_node_id=29 scaleway_instance_name=one \
             scaleway_instance_organization_id=o scaleway_instance_private_ipv4=10.70.60.57 \
             scaleway_instance_project_id=p scaleway_instance_public_ipv4=51.158.183.115 \
             scaleway_instance_public_ipv4_addresses=,51.158.183.115, \
             scaleway_instance_public_ipv6=2001:bc8:1::1 \
             scaleway_instance_public_ipv6_addresses=,2001:bc8:1::1, \
             scaleway_instance_region=fr-par scaleway_instance_security_group_id=g1 \
             scaleway_instance_security_group_name=default scaleway_instance_status=running \
             scaleway_instance_tags=,t, scaleway_instance_type=DEV1-S \
             scaleway_instance_zone=fr-par-1",
            "172.16.0.2:80 scaleway_instance_id=s2 scaleway_instance_private_ipv4=172.16.0.2 \
             scaleway_instance_region=fr-par scaleway_instance_zone=fr-par-1",
        ]
    );
    assert_eq!(
        answers.stub.received_requests()[0].headers["x-auth-token"],
        "key"
    );
    servers.check_targets_kept(&answers, list).await;
    answers.set_response(list, 200, r#"{"servers": [], "total_count": 0}"#);
    assert_eq!(servers.refresh_targets().await, [""; 0]);
}

const MACHINES: &str = r#"{"servers": [{"id": "b1", "name": "metal", "project_id": "p",
  "status": "ready", "offer_id": "f2", "tags": ["x", "y"], "zone": "fr-par-2",
  "ips": [{"address": "2001:bc8::1", "version": "IPv6"},
    {"address": "51.1.1.1", "version": "IPv4"}, {"address": "51.1.1.2", "version": "IPv4"}],
  "install": {"os_id": "d11"}}, {"id": "b2", "install": null, "ips": []}], "total_count": 2}"#;

#[tokio::test]
async fn scaleway_bare_metal_becomes_targets() {
    let list = "/baremetal/v1/zones/fr-par-1/servers?name=w+b&tags=a&tags=b&page=1";
    let answers = StubRoutes::start(&[
        (list, MACHINES),
        (
            "/baremetal/v1/zones/fr-par-1/offers?page=1",
            r#"{"offers": [{"id": "f1", "name": "A"}, {"id": "f2", "name": "EM-A210R"}],
              "total_count": 2}"#,
        ),
        (
            "/baremetal/v1/zones/fr-par-1/os?page=1",
            r#"{"os": [{"id": "d11", "name": "Debian", "version": "11"}], "total_count": 1}"#,
        ),
    ])
    .await;
    let mut servers = scaleway(&answers, ScalewayRole::Baremetal);
    assert_eq!(
        servers.refresh_targets().await,
        [
            "51.1.1.1:80 scaleway_baremetal_id=b1 scaleway_baremetal_name=metal \
             scaleway_baremetal_os_name=Debian scaleway_baremetal_os_version=11 \
             scaleway_baremetal_project_id=p scaleway_baremetal_public_ipv4=51.1.1.1 \
             scaleway_baremetal_public_ipv6=2001:bc8::1 scaleway_baremetal_status=ready \
             scaleway_baremetal_tags=,x,y, scaleway_baremetal_type=EM-A210R \
             scaleway_baremetal_zone=fr-par-2",
            " scaleway_baremetal_id=b2",
        ]
    );
    servers.check_targets_kept(&answers, list).await;
    let offers = "/baremetal/v1/zones/fr-par-1/offers?page=1";
    servers.check_targets_kept(&answers, offers).await;
}

const IONOS: &str = r#"{"id": "d1/servers", "type": "collection", "items": [{"id": "s1",
  "metadata": {"state": "AVAILABLE"},
  "properties": {"name": "one", "availabilityZone": "AUTO", "cpuFamily": "INTEL_SKYLAKE",
    "vmState": "RUNNING", "type": "ENTERPRISE", "bootCdrom": null, "bootVolume": {"id": "v1"}},
  "entities": {
    "nics": {"items": [{"properties": {"name": "nic one", "ips": ["85.215.1.1", "85.215.1.2"]}},
      {"properties": {"name": null, "ips": ["10.7.228.11"]}}, {"properties": {"ips": null}}]},
    "volumes": {"items": [{"properties": {"image": "img"}}]}}},
  {"id": "s2", "properties": null, "entities": null}]}"#;

#[tokio::test]
async fn ionos_servers_become_targets() {
    let list = "/cloudapi/v6/datacenters/d1/servers?depth=3&limit=1000&offset=0";
    let answers = StubRoutes::start(&[(list, IONOS)]).await;
    let settings = IonosSettings {
        datacenter: "d1".into(),
        port: 80,
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let mut servers = ManualRefresh::new(ionos::IonosDiscovery::with_endpoint(
        answers.url(),
        &settings,
        BYTES,
    ));
    assert_eq!(
        servers.refresh_targets().await,
        [
            "10.7.228.11:80 ionos_server_availability_zone=AUTO ionos_server_boot_image_id=img \
             ionos_server_boot_volume_id=v1 ionos_server_cpu_family=INTEL_SKYLAKE \
             ionos_server_id=s1 ionos_server_ip=,10.7.228.11,85.215.1.1,85.215.1.2, \
             ionos_server_lifecycle=AVAILABLE ionos_server_name=one \
             ionos_server_nic_ip_nic_one=,85.215.1.1,85.215.1.2, \
             ionos_server_nic_ip_unnamed=,10.7.228.11, ionos_server_servers_id=d1/servers \
             ionos_server_state=RUNNING ionos_server_type=ENTERPRISE"
        ]
    );
    servers.check_targets_kept(&answers, list).await;
    answers.set_response(list, 200, r#"{"id": "d1/servers"}"#);
    assert_eq!(servers.refresh_targets().await, [""; 0]);
}

const STACKITS: &str = r#"{"items": [{"id": "i1", "name": "one", "availabilityZone": "eu01-1",
  "status": "ACTIVE", "powerStatus": "RUNNING", "machineType": "g1.1",
  "labels": {"a-b": "c", "number": 1},
  "nics": [{"networkName": "net 1", "ipv4": "10.0.0.2", "publicIp": null},
    {"networkName": "net2", "ipv4": "10.0.1.2", "publicIp": "45.129.40.1"}]},
  {"id": "i2", "nics": null}, {"id": "i3", "nics": [{"networkName": "n", "ipv4": "10.0.0.3"}]}]}"#;

#[tokio::test]
async fn stackit_servers_become_targets() {
    let list = "/v1/projects/p1/servers?details=true";
    let token = r#"{"access_token": "tok", "expires_in": 3600, "token_type": "Bearer"}"#;
    let answers = StubRoutes::start(&[(list, STACKITS), ("/token", token)]).await;
    let pem = include_str!("../../../../lib/http_client/src/tests/tls/signer.pem");
    let key = serde_json::json!({"active": true, "credentials": {"aud": "a", "iss": "mail@sa",
        "kid": "k1", "sub": "s", "privateKey": pem,
        "tokenEndpoint": format!("{}/token", answers.url())}});
    let settings = |key: Option<Secret>| StackitSettings {
        project: "p1".into(),
        endpoint: answers.url().into(),
        service_account_key: key,
        private_key: None,
        credentials_file: Some("/nowhere/credentials.json".into()),
        port: 80,
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let of = |key| {
        let none: Variables = Arc::new(|_| None);
        let clock = Arc::new(SimClock::default());
        ManualRefresh::new(stackit::StackitDiscovery::with_variables(
            &settings(key),
            BYTES,
            clock,
            none,
        ))
    };
    let mut servers = of(Some(secret(&key.to_string())));
    let want = [
        "45.129.40.1:80 stackit_availability_zone=eu01-1 stackit_id=i1 stackit_label_a_b=c \
         stackit_labelpresent_a_b=true stackit_name=one stackit_power_status=RUNNING \
         stackit_private_ipv4_net2=10.0.1.2 stackit_private_ipv4_net_1=10.0.0.2 \
         stackit_project=p1 stackit_public_ipv4=45.129.40.1 stackit_status=ACTIVE \
         stackit_type=g1.1",
        "10.0.0.3:80 stackit_id=i3 stackit_private_ipv4_n=10.0.0.3 stackit_project=p1",
    ];
    assert_eq!(servers.refresh_targets().await, want);
    assert_eq!(servers.refresh_targets().await, want);
    let asked = answers.stub.received_requests();
    assert_eq!(
        answers.stub.received_paths(),
        ["/token", list, list],
        "the token is kept"
    );
    assert!(
        asked[0].body.starts_with("assertion=eyJ"),
        "{}",
        asked[0].body
    );
    assert_eq!(asked[1].headers["authorization"], "Bearer tok");
    servers.check_targets_kept(&answers, list).await;
    let mut without = of(None);
    assert_eq!(without.refresh_targets().await, want);
    assert!(
        !answers
            .stub
            .received_requests()
            .pop()
            .unwrap()
            .headers
            .contains_key("authorization")
    );
    answers.set_response(list, 200, r#"{"items": null}"#);
    assert_eq!(servers.refresh_targets().await, [""; 0]);
}

fn ovh(answers: &StubRoutes, service: OvhService, clock: Arc<SimClock>) -> ManualRefresh {
    let settings = OvhSettings {
        endpoint: format!("{}/1.0", answers.url()),
        application_key: "ak".into(),
        application_secret: secret("as"),
        consumer_key: secret("ck"),
        service,
        refresh: MINUTE,
    };
    ManualRefresh::new(ovhcloud::OvhDiscovery::new(&settings, BYTES, clock))
}

const VPS: &str = r#"{"zone": "zone", "displayName": "abc", "cluster": "cluster_test",
  "state": "running", "name": "vps.ovh", "netbootMode": "local", "memoryLimit": 2048,
  "offerType": "ssd", "vcore": 1, "keymap": null, "monitoringIpBlocks": [],
  "model": {"maximumAdditionnalIp": 16, "offer": "VPS abc", "datacenter": ["A", "B"], "vcore": 1,
    "version": "2019v1", "name": "vps-value-1-2-40", "disk": 40, "memory": 2048}}"#;

#[tokio::test]
async fn ovhcloud_servers_of_both_services_become_targets() {
    let answers = StubRoutes::start(&[
        ("/1.0/auth/time", "1000"),
        ("/1.0/vps", r#"["vps.ovh", "gone"]"#),
        ("/1.0/vps/vps.ovh", VPS),
        (
            "/1.0/vps/vps.ovh/ips",
            r#"["192.0.2.1", "2001:db8::2", "192.0.2.8/29"]"#,
        ),
        ("/1.0/dedicated/server", r#"["d 1"]"#),
        (
            "/1.0/dedicated/server/d+1",
            r#"{"state": "ok", "commercialRange": "Advance-1 Gen 2", "linkSpeed": 123, "rack": "R1",
              "noIntervention": false, "os": "debian11_64", "supportLevel": "pro",
              "serverId": 1234, "reverse": "rev", "datacenter": "gra3", "name": "d 1"}"#,
        ),
        (
            "/1.0/dedicated/server/d+1/ips",
            r#"["1.2.3.4/32", "2001:db8::/64"]"#,
        ),
    ])
    .await;
    let clock = Arc::new(SimClock::default());
    clock.set_ms(5_000_000);
    let mut servers = ovh(&answers, OvhService::Vps, clock.clone());
    assert_eq!(
        servers.refresh_targets().await,
        ["192.0.2.1 ovhcloud_vps_cluster=cluster_test \
             ovhcloud_vps_datacenter=[A B] ovhcloud_vps_disk=40 ovhcloud_vps_display_name=abc \
             ovhcloud_vps_ipv4=192.0.2.1 ovhcloud_vps_ipv6=2001:db8::2 \
             ovhcloud_vps_maximum_additional_ip=16 ovhcloud_vps_memory=2048 \
             ovhcloud_vps_memory_limit=2048 ovhcloud_vps_model_name=vps-value-1-2-40 \
             ovhcloud_vps_model_vcore=1 ovhcloud_vps_name=vps.ovh \
             ovhcloud_vps_netboot_mode=local ovhcloud_vps_offer=VPS abc \
             ovhcloud_vps_offer_type=ssd ovhcloud_vps_state=running ovhcloud_vps_vcore=1 \
             ovhcloud_vps_version=2019v1 ovhcloud_vps_zone=zone instance=vps.ovh"]
    );
    let asked = &answers.stub.received_requests()[1];
    assert_eq!(
        asked.headers["x-ovh-timestamp"], "1000",
        "the clock of the server"
    );
    let signature = asked.headers["x-ovh-signature"].to_str().unwrap();
    assert!(
        signature.starts_with("$1$") && signature.len() == 43,
        "{signature}"
    );
    servers.check_targets_kept(&answers, "/1.0/vps").await;
    servers.check_targets_kept(&answers, "/1.0/auth/time").await;

    let mut dedicated = ovh(&answers, OvhService::DedicatedServer, clock);
    assert_eq!(
        dedicated.refresh_targets().await,
        [
            "1.2.3.4 ovhcloud_dedicated_server_commercial_range=Advance-1 Gen 2 \
             ovhcloud_dedicated_server_datacenter=gra3 ovhcloud_dedicated_server_ipv4=1.2.3.4 \
             ovhcloud_dedicated_server_link_speed=123 ovhcloud_dedicated_server_name=d 1 \
             ovhcloud_dedicated_server_no_intervention=false \
             ovhcloud_dedicated_server_os=debian11_64 ovhcloud_dedicated_server_rack=R1 \
             ovhcloud_dedicated_server_reverse=rev ovhcloud_dedicated_server_server_id=1234 \
             ovhcloud_dedicated_server_state=ok ovhcloud_dedicated_server_support_level=pro \
             instance=d 1"
        ]
    );
    answers.set_response("/1.0/vps", 200, "[]");
    assert_eq!(servers.refresh_targets().await, [""; 0]);
}

#[tokio::test]
async fn outscale_machines_become_targets() {
    let stub = StubServer::start(|asked: StubRequest| async move {
        let page = r#"{"Vms": [{"VmId": "i-1", "State": "running", "PrivateIp": "10.0.0.1",
          "PublicIp": "1.2.3.4", "Placement": {"SubregionName": "eu-west-2a"},
          "Tags": [{"Key": "a-b", "Value": "c"}, {"Key": "", "Value": "d"}]},
          {"VmId": "i-2"}], "NextPageToken": "next"}"#;
        let rest = r#"{"Vms": [{"VmId": "i-3", "PublicIp": "1.2.3.5"}], "ResponseContext": {}}"#;
        match (asked.path.as_str(), asked.body.as_str()) {
            ("/api/v1/ReadVms", "{}") => StubResponse::with_status(200, page),
            ("/api/v1/ReadVms", r#"{"NextPageToken":"next"}"#) => {
                StubResponse::with_status(200, rest)
            }
            _ => StubResponse::with_status(400, "?"),
        }
    })
    .await;
    let settings = OutscaleSettings {
        endpoint: format!("{}/api/v1", stub.url),
        region: "us-east-2".into(),
        access_key: "AK".into(),
        secret_key: secret("SK"),
        port: 80,
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let clock = Arc::new(SimClock::default());
    let mut machines =
        ManualRefresh::new(outscale::OutscaleDiscovery::new(&settings, BYTES, clock));
    assert_eq!(
        machines.refresh_targets().await,
        [
            "10.0.0.1:80 outscale_vm_instance_id=i-1 outscale_vm_private_ip=10.0.0.1 \
             outscale_vm_public_ip=1.2.3.4 outscale_vm_region=us-east-2 \
             outscale_vm_state=running outscale_vm_subregion=eu-west-2a outscale_vm_tag_a_b=c",
            "1.2.3.5:80 outscale_vm_instance_id=i-3 outscale_vm_public_ip=1.2.3.5 \
             outscale_vm_region=us-east-2",
        ]
    );
    let signature = stub.received_requests()[0].headers["authorization"].clone();
    let want = "AWS4-HMAC-SHA256 Credential=AK/19700101/eu-west-2/oapi/aws4_request, ";
    assert!(
        signature.to_str().unwrap().starts_with(want),
        "{signature:?}"
    );
}
