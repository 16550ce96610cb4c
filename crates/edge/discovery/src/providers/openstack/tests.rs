//! Tests of OpenStack discovery against stub services that follow OpenStack's documentation.

use super::*;
use crate::stub::{StubRequest, StubResponse, StubServer, format_targets};
use std::sync::Arc;
use std::sync::Mutex;

const CATALOG: &str = r#"{"token": {"catalog": [
  {"type": "compute", "name": "nova", "endpoints": [
    {"interface": "public", "region": "other", "region_id": "other", "url": "$URL/wrong"},
    {"interface": "public", "region": "r1", "region_id": "r1", "url": "$URL/compute"}]},
  {"type": "network", "endpoints": [
    {"interface": "public", "region": "r1", "url": "$URL/network/"}]},
  {"type": "load-balancer", "endpoints": [
    {"interface": "public", "region": "r1", "url": "$URL/lb/v2.0/"}]}]}}"#;

const HYPERVISORS: &str = r#"{"hypervisors": [{"id": 1, "hypervisor_hostname": "nc14.cloud",
  "host_ip": "172.16.70.14", "status": "enabled", "state": "up", "hypervisor_type": "QEMU"}],
  "hypervisors_links": [{"rel": "next", "href": "$URL/compute/os-hypervisors/detail?marker=1"}]}"#;

const HYPERVISORS_REST: &str = r#"{"hypervisors": [{"id": "721c0e12", "host_ip": "fd00::13"}],
  "hypervisors_links": []}"#;

const PORTS: &str = r#"{"ports": [{"id": "p1", "device_id": "s1"}, {"id": "p2", "device_id": "s2"}],
  "ports_links": []}"#;

const FLOATING: &str = r#"{"floatingips": [
  {"floating_ip_address": "203.0.113.7", "fixed_ip_address": "10.0.0.7", "port_id": "p1"},
  {"floating_ip_address": "203.0.113.8", "fixed_ip_address": null, "port_id": null},
  {"floating_ip_address": "203.0.113.9", "fixed_ip_address": "10.0.0.9", "port_id": "gone"},
  {"floating_ip_address": "203.0.113.10", "fixed_ip_address": "10.0.5.1", "port_id": "vp1"}]}"#;

const SERVERS: &str = r#"{"servers": [
 {"id": "s1", "name": "herp", "status": "ACTIVE", "tenant_id": "t", "user_id": "u",
  "flavor": {"id": "1", "original_name": "m1.small"}, "image": {"id": "f90f6034"},
  "metadata": {"env-x": "prod"}, "addresses": {"private": [
    {"addr": "10.0.0.7", "version": 4}, {"addr": "203.0.113.7", "version": 4}],
    "other": [{"addr": "10.1.0.7"}]}},
 {"id": "s2", "flavor": {"id": "2"}, "image": "", "metadata": {}, "addresses": {}},
 {"id": "s3", "flavor": {}, "addresses": {"private": [{"addr": "10.0.0.9"}]}},
 {"id": "s4", "flavor": {"id": "4"}, "image": "", "addresses": {"private": [
    {"addr": "fd00::4"}]}}]}"#;

const BALANCERS: &str = r#"{"loadbalancers": [
 {"id": "lb1", "name": "one", "operating_status": "ONLINE", "provisioning_status": "ACTIVE",
  "availability_zone": "az1", "vip_address": "10.0.5.1", "vip_port_id": "vp1",
  "provider": "octavia", "project_id": "t", "tags": ["a", "b"]},
 {"id": "lb2", "vip_address": "10.0.5.2", "availability_zone": null, "tags": []}]}"#;

const LISTENERS: &str = r#"{"listeners": [
 {"protocol": "HTTP", "protocol_port": 80, "loadbalancers": [{"id": "lb1"}, {"id": "lb2"}]},
 {"protocol": "PROMETHEUS", "protocol_port": 9273, "loadbalancers": [{"id": "lb1"}]},
 {"protocol": "PROMETHEUS", "protocol_port": 9274, "loadbalancers": [{"id": "lb1"}]}]}"#;

const VERSIONS: &str = r#"{"versions": {"values": [
 {"id": "v2.0", "status": "deprecated", "links": [{"rel": "self", "href": "$URL/id/v2.0/"}]},
 {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": "$URL/id/v3"}]}]}}"#;

async fn answer(asked: StubRequest) -> StubResponse {
    let url = format!("http://{}", asked.headers["host"].to_str().unwrap());
    let of = |text: &str| StubResponse::with_status(200, &text.replace("$URL", &url));
    match asked.path.as_str() {
        "/id/" => StubResponse::with_status(300, &VERSIONS.replace("$URL", &url)),
        "/id/v3/auth/tokens" => of(CATALOG).with_header("x-subject-token", "tok"),
        _ if asked.headers.get("x-auth-token").is_none_or(|t| t != "tok") => {
            StubResponse::with_status(401, "")
        }
        "/compute/os-hypervisors/detail" => of(HYPERVISORS),
        "/compute/os-hypervisors/detail?marker=1" => of(HYPERVISORS_REST),
        "/network/v2.0/ports" => of(PORTS),
        "/network/v2.0/floatingips" => of(FLOATING),
        "/compute/servers/detail?all_tenants=true" => of(SERVERS),
        "/lb/v2.0/lbaas/loadbalancers" => of(BALANCERS),
        "/lb/v2.0/lbaas/listeners" => of(LISTENERS),
        _ => StubResponse::with_status(404, ""),
    }
}

fn settings(endpoint: &str, role: OpenStackRole) -> OpenStackSettings {
    OpenStackSettings {
        role,
        credentials: OpenStackCredentials {
            endpoint: endpoint.to_owned(),
            username: "u".into(),
            user_id: String::new(),
            password: Some(Secret::Inline("p".into())),
            project_name: "proj".into(),
            project_id: String::new(),
            domain_name: "Default".into(),
            domain_id: String::new(),
            application_name: String::new(),
            application_id: String::new(),
            application_secret: None,
        },
        region: "r1".into(),
        availability: "public".into(),
        all_tenants: true,
        port: 80,
        refresh: Duration::from_secs(60),
        client: HttpSettings::default(),
    }
}

async fn lines(settings: &OpenStackSettings) -> Result<Vec<String>, String> {
    let mut resources = OpenStackDiscovery::with_variables(settings, 1 << 20, Arc::new(|_| None));
    let groups = resources.refresh().await.map_err(|e| e.message)?;
    Ok(format_targets(&groups))
}

#[tokio::test]
async fn resources_of_each_role_become_targets() {
    let stub = StubServer::start(answer).await;
    let of = async |role| lines(&settings(&format!("{}/id/v3", stub.url), role)).await;
    assert_eq!(
        of(OpenStackRole::Hypervisor).await.unwrap(),
        [
            "172.16.70.14:80 openstack_hypervisor_host_ip=172.16.70.14 \
             openstack_hypervisor_hostname=nc14.cloud openstack_hypervisor_id=1 \
             openstack_hypervisor_state=up openstack_hypervisor_status=enabled \
             openstack_hypervisor_type=QEMU",
            "[fd00::13]:80 openstack_hypervisor_host_ip=fd00::13 \
             openstack_hypervisor_id=721c0e12",
        ]
    );
    assert_eq!(
        of(OpenStackRole::Instance).await.unwrap(),
        [
            "10.1.0.7:80 openstack_address_pool=other openstack_instance_flavor=m1.small \
             openstack_instance_id=s1 openstack_instance_image=f90f6034 \
             openstack_instance_name=herp openstack_instance_status=ACTIVE \
             openstack_private_ip=10.1.0.7 openstack_project_id=t openstack_tag_env_x=prod \
             openstack_user_id=u",
            "10.0.0.7:80 openstack_address_pool=private openstack_instance_flavor=m1.small \
             openstack_instance_id=s1 openstack_instance_image=f90f6034 \
             openstack_instance_name=herp openstack_instance_status=ACTIVE \
             openstack_private_ip=10.0.0.7 openstack_project_id=t \
             openstack_public_ip=203.0.113.7 openstack_tag_env_x=prod openstack_user_id=u",
            "[fd00::4]:80 openstack_address_pool=private openstack_instance_flavor=4 \
             openstack_instance_id=s4 openstack_private_ip=fd00::4",
        ]
    );
    assert_eq!(
        of(OpenStackRole::LoadBalancer).await.unwrap(),
        [
            "10.0.5.1:9273 openstack_loadbalancer_availability_zone=az1 \
             openstack_loadbalancer_floating_ip=203.0.113.10 openstack_loadbalancer_id=lb1 \
             openstack_loadbalancer_name=one openstack_loadbalancer_operating_status=ONLINE \
             openstack_loadbalancer_provider=octavia \
             openstack_loadbalancer_provisioning_status=ACTIVE \
             openstack_loadbalancer_tags=a,b openstack_loadbalancer_vip=10.0.5.1 \
             openstack_project_id=t"
        ]
    );
    let body: serde_json::Value = serde_json::from_str(&stub.received_requests()[0].body).unwrap();
    let domain = serde_json::json!({"name": "Default"});
    assert_eq!(
        body,
        serde_json::json!({"auth": {
            "identity": {"methods": ["password"],
                "password": {"user": {"name": "u", "password": "p", "domain": domain}}},
            "scope": {"project": {"name": "proj", "domain": domain}},
        }})
    );
}

#[tokio::test]
async fn credentials_come_from_config_or_environment_in_each_form() {
    let stub = StubServer::start(answer).await;
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let ask = async |credentials: OpenStackCredentials, variables: Vec<(&'static str, String)>| {
        let settings = OpenStackSettings {
            credentials,
            ..settings("", OpenStackRole::Hypervisor)
        };
        let read: Variables = Arc::new(move |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone())
        });
        let mut resources = OpenStackDiscovery::with_variables(&settings, 1 << 20, read);
        let answer = resources.refresh().await.map_err(|e| e.message);
        let asked = stub.received_requests();
        let tokens = asked.iter().rfind(|a| a.path.ends_with("/auth/tokens"));
        bodies
            .lock()
            .unwrap()
            .push(tokens.map(|a| a.body.clone()).unwrap_or_default());
        answer.map(|groups| groups.len())
    };
    let base = settings(&format!("{}/id", stub.url), OpenStackRole::Hypervisor).credentials;
    let application = OpenStackCredentials {
        password: None,
        username: String::new(),
        project_name: String::new(),
        domain_name: String::new(),
        application_id: "a1".into(),
        application_secret: Some(Secret::Inline("s".into())),
        ..base.clone()
    };
    assert_eq!(ask(application.clone(), Vec::new()).await, Ok(2));
    let named = OpenStackCredentials {
        application_id: String::new(),
        application_name: "n".into(),
        user_id: "id".into(),
        project_id: "p1".into(),
        ..application.clone()
    };
    assert_eq!(ask(named, Vec::new()).await, Ok(2));
    let nothing = OpenStackCredentials {
        endpoint: String::new(),
        ..application.clone()
    };
    let variables = vec![
        ("OS_AUTH_URL", format!("{}/id/v3/", stub.url)),
        ("OS_USERID", "id".to_owned()),
        ("OS_PASSWORD", "p".to_owned()),
    ];
    assert_eq!(ask(nothing.clone(), variables).await, Ok(2));
    let wanted = [
        r#"{"auth":{"identity":{"application_credential":{"id":"a1","secret":"s"},"methods":["application_credential"]}}}"#,
        r#"{"auth":{"identity":{"application_credential":{"name":"n","secret":"s","user":{"id":"id"}},"methods":["application_credential"]},"scope":{"project":{"id":"p1"}}}}"#,
        r#"{"auth":{"identity":{"methods":["password"],"password":{"user":{"id":"id","password":"p"}}}}}"#,
    ];
    assert_eq!(*bodies.lock().unwrap(), wanted);
    let none = OpenStackCredentials {
        application_id: String::new(),
        ..application
    };
    let old = OpenStackCredentials {
        endpoint: format!("{}/id/v2.0", stub.url),
        ..base
    };
    for (credentials, want) in [
        (
            none,
            "you must provide a password or an application credential to authenticate",
        ),
        (nothing, "missing environment variable [OS_AUTH_URL]"),
        (old, "version 2.0 of the identity API is not spoken"),
    ] {
        let got = ask(credentials, Vec::new()).await.unwrap_err();
        let want = format!("could not authenticate to OpenStack: {want}");
        assert!(got.starts_with(&want), "{got}");
    }
}

#[tokio::test]
async fn service_that_is_not_in_the_region_or_refuses_is_named() {
    let stub = StubServer::start(answer).await;
    let settings = settings(&format!("{}/id/v3", stub.url), OpenStackRole::Hypervisor);
    let elsewhere = OpenStackSettings {
        region: "r9".into(),
        ..settings.clone()
    };
    let got = lines(&elsewhere).await.unwrap_err();
    assert!(
        got.starts_with("could not create OpenStack compute session: "),
        "{got}"
    );
    let mut other = settings;
    other.credentials.endpoint = format!("{}/nowhere/v3", stub.url);
    let got = lines(&other).await.unwrap_err();
    let want = "could not authenticate to OpenStack: server returned HTTP status 401";
    assert!(got.starts_with(want), "{got}");
}
