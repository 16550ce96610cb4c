//! Tests of discoveries that use one API each, against stub servers that respond like the real
//! ones.

use super::digitalocean::{DigitalOceanRole, DigitalOceanSettings};
use super::eureka::EurekaSettings;
use super::hetzner::{HetznerRole, HetznerSettings};
use super::nomad::NomadSettings;
use super::*;
use crate::discover::Refresh;
use crate::stub::{StubRequest, StubResponse, StubServer, format_targets};
use firn_http_client::{AuthMethod, HttpSettings, Secret};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

async fn lines(mut source: impl Refresh) -> Vec<String> {
    assert_eq!(source.interval(), MINUTE);
    format_targets(&source.refresh().await.unwrap())
}

#[tokio::test]
async fn nomad_services_become_targets() {
    let stub = StubServer::start(|asked: StubRequest| async move {
        StubResponse::with_status(
            200,
            match asked.path.as_str() {
                "/v1/services?namespace=default&region=global&stale=" => {
                    r#"[{"Namespace": "default", "Services": [{"ServiceName": "web ui"}]}]"#
                }
                "/v1/service/web%20ui?namespace=default&region=global&stale=" => {
                    r#"[{"ID": "i1", "ServiceName": "web ui", "Namespace": "default",
                       "NodeID": "n1", "Datacenter": "dc1", "JobID": "j", "Address": "10.0.0.1",
                       "Port": 9, "Tags": ["a", "b"]},
                      {"ID": "i2", "ServiceName": "web ui", "Address": "10.0.0.2", "Port": 8,
                       "Tags": null}]"#
                }
                other => panic!("{other}"),
            },
        )
    })
    .await;
    let settings = NomadSettings {
        server: stub.url.clone(),
        namespace: "default".into(),
        region: "global".into(),
        allow_stale: true,
        tag_separator: ",".into(),
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let got = lines(nomad::NomadDiscovery::new(&settings, 1 << 20)).await;
    assert_eq!(
        got,
        [
            "10.0.0.1:9 nomad_address=10.0.0.1 nomad_dc=dc1 nomad_namespace=default \
             nomad_node_id=n1 nomad_service=web ui nomad_service_address=10.0.0.1 \
             nomad_service_id=i1 nomad_service_port=9 nomad_tags=,a,b,",
            "10.0.0.2:8 nomad_address=10.0.0.2 nomad_service=web ui \
             nomad_service_address=10.0.0.2 nomad_service_id=i2 nomad_service_port=8",
        ]
    );
}

const APPLICATIONS: &str = r#"<?xml version="1.0"?>
<applications><versions__delta>1</versions__delta><apps__hashcode>UP_2_</apps__hashcode>
<application><name>META</name>
<instance><hostName>meta001</hostName><homePageUrl>http://meta001/</homePageUrl>
<ipAddr>10.0.0.1</ipAddr><vipAddress>vip</vipAddress><status>UP</status>
<port enabled="true">8080</port><securePort enabled="false">443</securePort>
<countryId>1</countryId><instanceId>meta001:8080</instanceId>
<dataCenterInfo class="c"><name>MyOwn</name>
<metadata><ami-id>ami-1</ami-id></metadata></dataCenterInfo>
<metadata><management.port>8090</management.port><x>a<b>c</b>&amp;</x></metadata>
</instance>
<instance><hostName>meta002</hostName></instance>
</application></applications>"#;

#[tokio::test]
async fn eureka_instances_become_targets() {
    let stub = StubServer::start(|asked: StubRequest| async move {
        match asked.path.as_str() {
            "/eureka/apps" => StubResponse::with_status(200, APPLICATIONS),
            _ => StubResponse::with_status(404, ""),
        }
    })
    .await;
    let settings = EurekaSettings {
        server: format!("{}/eureka", stub.url),
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let got = lines(eureka::EurekaDiscovery::new(&settings, 1 << 20)).await;
    assert_eq!(
        got,
        [
            "meta001:8080 eureka_app_instance_country_id=1 \
             eureka_app_instance_datacenterinfo_metadata_ami_id=ami-1 \
             eureka_app_instance_datacenterinfo_name=MyOwn \
             eureka_app_instance_homepage_url=http://meta001/ \
             eureka_app_instance_hostname=meta001 eureka_app_instance_id=meta001:8080 \
             eureka_app_instance_ip_addr=10.0.0.1 \
             eureka_app_instance_metadata_management_port=8090 \
             eureka_app_instance_metadata_x=a<b>c</b>&amp; eureka_app_instance_port=8080 \
             eureka_app_instance_port_enabled=true eureka_app_instance_secure_port=443 \
             eureka_app_instance_secure_port_enabled=false eureka_app_instance_status=UP \
             eureka_app_instance_vip_address=vip eureka_app_name=META instance=meta001:8080",
            "meta002:80 eureka_app_instance_country_id=0 eureka_app_instance_hostname=meta002 \
             eureka_app_name=META",
        ]
    );
    let elsewhere = EurekaSettings {
        server: stub.url.clone(),
        ..settings
    };
    let mut elsewhere = eureka::EurekaDiscovery::new(&elsewhere, 1 << 20);
    let e = elsewhere.refresh().await.unwrap_err();
    assert_eq!(
        e.message,
        "non 2xx status '404' response during eureka service discovery"
    );
}

const HCLOUD: &str = r#"{"servers": [{"id": 42, "name": "one", "status": "running",
  "public_net": {"ipv4": {"ip": "1.2.3.4"}, "ipv6": {"ip": "2001:db8::/64"}},
  "private_net": [{"network": 7, "ip": "10.0.0.2"}, {"network": 9, "ip": "10.9.0.2"}],
  "server_type": {"name": "cx22", "cores": 2, "memory": 4.0, "disk": 40, "cpu_type": "shared"},
  "location": {"name": "fsn1", "network_zone": "eu-central"},
  "image": {"name": "ubuntu-24.04", "description": "Ubuntu", "os_flavor": "ubuntu",
    "os_version": null},
  "labels": {"my-key": "v"}}], "meta": {"pagination": {"page": 1, "next_page": 2}}}"#;

const HCLOUD_REST: &str = r#"{"servers": [{"id": 43, "name": "two", "public_net": {"ipv4": null}}],
  "meta": {"pagination": {"page": 2, "next_page": null}}}"#;

const ROBOT: &str = r#"[{"server": {"server_ip": "5.6.7.8", "server_number": 1,
  "server_name": "ded", "dc": "FSN1-DC5", "status": "ready", "product": "AX41",
  "cancelled": false, "subnet": [{"ip": "5.6.7.0", "mask": "29"},
  {"ip": "2a01:4f8::", "mask": "64"}]}}]"#;

#[tokio::test]
async fn hetzner_servers_of_both_roles_become_targets() {
    let stub = StubServer::start(|asked: StubRequest| async move {
        match asked.path.as_str() {
            "/servers?per_page=50&label_selector=a%3Db&page=1" => {
                StubResponse::with_status(200, HCLOUD)
            }
            "/servers?per_page=50&label_selector=a%3Db&page=2" => {
                StubResponse::with_status(200, HCLOUD_REST)
            }
            "/networks?per_page=50&page=1" => {
                let body = r#"{"networks": [{"id": 7, "name": "my-net"}], "meta": {}}"#;
                StubResponse::with_status(200, body)
            }
            "/server" => StubResponse::with_status(200, ROBOT),
            other => panic!("{other}"),
        }
    })
    .await;
    let settings = |role| HetznerSettings {
        role,
        port: 80,
        label_selector: "a=b".into(),
        refresh: MINUTE,
        client: HttpSettings {
            auth: AuthMethod::Credentials {
                scheme: "Bearer".into(),
                credentials: Some(Secret::Inline("token".into())),
            },
            ..HttpSettings::default()
        },
    };
    let cloud = settings(HetznerRole::Hcloud);
    let got = lines(hetzner::HetznerDiscovery::with_endpoint(
        &stub.url,
        &cloud,
        1 << 20,
    ))
    .await;
    let first = "1.2.3.4:80 hetzner_hcloud_cpu_cores=2 hetzner_hcloud_cpu_type=shared \
                 hetzner_hcloud_datacenter_location=fsn1 \
                 hetzner_hcloud_datacenter_location_network_zone=eu-central \
                 hetzner_hcloud_disk_size_gb=40 hetzner_hcloud_image_description=Ubuntu \
                 hetzner_hcloud_image_name=ubuntu-24.04 hetzner_hcloud_image_os_flavor=ubuntu \
                 hetzner_hcloud_label_my_key=v hetzner_hcloud_labelpresent_my_key=true \
                 hetzner_hcloud_location=fsn1 hetzner_hcloud_location_network_zone=eu-central \
                 hetzner_hcloud_memory_size_gb=4 hetzner_hcloud_private_ipv4_my_net=10.0.0.2 \
                 hetzner_hcloud_server_type=cx22 hetzner_public_ipv4=1.2.3.4 \
                 hetzner_public_ipv6_network=2001:db8::/64 hetzner_role=hcloud \
                 hetzner_server_id=42 hetzner_server_name=one hetzner_server_status=running";
    assert_eq!(got[0], first);
    assert!(got[1].starts_with("<nil>:80 "), "{}", got[1]);
    assert_eq!(got.len(), 2);
    assert_eq!(
        stub.received_requests()[0].headers["authorization"],
        "Bearer token"
    );

    let robot = settings(HetznerRole::Robot);
    let got = lines(hetzner::HetznerDiscovery::with_endpoint(
        &stub.url,
        &robot,
        1 << 20,
    ))
    .await;
    assert_eq!(
        got,
        [
            "5.6.7.8:80 hetzner_datacenter=fsn1-dc5 hetzner_public_ipv4=5.6.7.8 \
          hetzner_public_ipv6_network=2a01:4f8::/64 hetzner_robot_cancelled=false \
          hetzner_robot_datacenter=fsn1-dc5 hetzner_robot_product=AX41 hetzner_role=robot \
          hetzner_server_id=1 hetzner_server_name=ded hetzner_server_status=ready"
        ]
    );
}

const DROPLETS: &str = r#"{"droplets": [{"id": 1, "name": "d1", "size_slug": "s-1vcpu",
  "status": "active", "vpc_uuid": "v1", "features": ["ipv6"], "tags": ["t1", "t2"],
  "image": {"slug": "debian", "name": "12 x64"}, "region": {"slug": "fra1"},
  "networks": {"v4": [{"ip_address": "10.0.0.1", "type": "private"},
    {"ip_address": "1.2.3.4", "type": "public"}],
    "v6": [{"ip_address": "2001:db8::1", "type": "public"}]}},
 {"id": 2, "name": "off", "networks": {"v4": []}}],
 "links": {"pages": {"last": "https://x?page=2"}}}"#;

const DROPLETS_REST: &str = r#"{"droplets": [{"id": 3, "image": {"slug": null}, "tags": null,
  "networks": {"v4": [{"ip_address": "1.2.3.5", "type": "public"}]}}], "links": {}}"#;

const DATABASES: &str = r#"{"databases": [{"id": "u1", "name": "pg", "engine": "pg",
  "version": "16", "status": "online", "region": "fra1", "size": "db-s", "num_nodes": 2,
  "connection": {"host": "pub.db"}, "private_connection": {"host": "priv.db"}, "tags": ["x"]},
 {"id": "u2", "connection": {"host": "pub2.db"}, "private_connection": null}]}"#;

#[tokio::test]
async fn digitalocean_droplets_and_databases_become_targets() {
    let stub = StubServer::start(|asked: StubRequest| async move {
        let body = match asked.path.as_str() {
            "/v2/droplets?page=1" => DROPLETS,
            "/v2/droplets?page=2" => DROPLETS_REST,
            "/v2/databases?per_page=100&page=1" => DATABASES,
            _ => "{}",
        };
        StubResponse::with_status(200, body)
    })
    .await;
    let of = |role| {
        let settings = DigitalOceanSettings {
            role,
            port: 80,
            refresh: MINUTE,
            client: HttpSettings::default(),
        };
        digitalocean::DigitalOceanDiscovery::with_endpoint(&stub.url, &settings, 1 << 20)
    };
    assert_eq!(
        lines(of(DigitalOceanRole::Droplets)).await,
        [
            "1.2.3.4:80 digitalocean_droplet_id=1 digitalocean_droplet_name=d1 \
             digitalocean_features=,ipv6, digitalocean_image=debian \
             digitalocean_image_name=12 x64 digitalocean_private_ipv4=10.0.0.1 \
             digitalocean_public_ipv4=1.2.3.4 digitalocean_public_ipv6=2001:db8::1 \
             digitalocean_region=fra1 digitalocean_size=s-1vcpu digitalocean_status=active \
             digitalocean_tags=,t1,t2, digitalocean_vpc=v1",
            "1.2.3.5:80 digitalocean_droplet_id=3 digitalocean_public_ipv4=1.2.3.5",
        ]
    );
    assert_eq!(
        lines(of(DigitalOceanRole::Databases)).await,
        [
            "priv.db:80 digitalocean_db_engine=pg digitalocean_db_host=pub.db \
             digitalocean_db_id=u1 digitalocean_db_name=pg digitalocean_db_num_nodes=2 \
             digitalocean_db_private_host=priv.db digitalocean_db_region=fra1 \
             digitalocean_db_size=db-s digitalocean_db_status=online digitalocean_db_tag_x=true \
             digitalocean_db_version=16",
            "pub2.db:80 digitalocean_db_host=pub2.db digitalocean_db_id=u2 \
             digitalocean_db_num_nodes=0",
        ]
    );
}
