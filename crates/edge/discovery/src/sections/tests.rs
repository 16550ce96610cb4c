//! Tests of discovery sections: rejected ones with their errors, and accepted ones.

use super::*;
use crate::providers::tested::{
    ConsulSettings, ConsulToken, FileDiscoverySettings, HttpDiscoverySettings, OciSettings,
    ZookeeperMember, ZookeeperSettings,
};
use firn_http_client::{AuthMethod, Secret};
use std::path::PathBuf;
use std::time::Duration;

/// Reads `section` as the only entry of the list `key`.
fn one(key: &str, section: &str) -> Result<Vec<DiscoverySettings>, String> {
    let text = format!("{key}:\n- {section}\n");
    let job = firn_yaml::parse(&text).unwrap().unwrap();
    read_discoveries(&job, Path::new("/etc/firn")).map_err(|e| e.message)
}

/// Returns the settings of the only entry of the list `key`, which have the type `T`.
fn settings<T: Clone + 'static>(key: &str, section: &str) -> T {
    let read = one(key, section).unwrap();
    match &read[..] {
        [DiscoverySettings::Provided(provided)] => provided.downcast::<T>().unwrap().clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn section_that_cannot_be_is_refused_in_the_words_of_upstream() {
    for (key, section, want) in [
        (
            "dns",
            "{}",
            "DNS-SD config must contain at least one SRV record name",
        ),
        (
            "dns",
            "{names: [a], type: TXT}",
            "invalid DNS-SD records type TXT",
        ),
        (
            "dns",
            "{names: [a], type: a}",
            "a port is required in DNS-SD configs for all record types except SRV",
        ),
        (
            "consul",
            "{server: ' '}",
            "consul SD configuration requires a server address",
        ),
        (
            "consul",
            "{username: a, basic_auth: {username: b}}",
            "at most one of consul SD configuration username and password and basic auth can be \
             configured",
        ),
        (
            "consul",
            "{token: a, authorization: {credentials: b}}",
            "at most one of consul SD token, authorization, or oauth2 can be configured",
        ),
        ("docker", "{port: 1}", "host missing"),
        (
            "dockerswarm",
            "{host: a}",
            "role missing (one of: tasks, services, nodes)",
        ),
        (
            "dockerswarm",
            "{host: a, role: x}",
            "invalid role x, expected tasks, services, or nodes",
        ),
        (
            "nomad",
            "{server: ''}",
            "nomad SD configuration requires a server address",
        ),
        ("eureka", "{}", "eureka_sd: empty or null eureka server"),
        (
            "eureka",
            "{server: host}",
            "eureka_sd: invalid eureka server URL",
        ),
        ("hetzner", "{}", "role missing (one of: robot, hcloud)"),
        ("hetzner", "{role: x}", "unknown role \"x\""),
        (
            "digitalocean",
            "{role: x}",
            "unknown DigitalOcean SD role \"x\"",
        ),
        (
            "kubernetes",
            "{}",
            "role missing (one of: pod, service, endpoints, endpointslice, node, ingress)",
        ),
        (
            "kubernetes",
            "{role: x}",
            "unknown Kubernetes SD role \"x\"",
        ),
        (
            "kubernetes",
            "{role: pod, api_server: 'http://a', kubeconfig_file: b}",
            "cannot use 'kubeconfig_file' and 'api_server' simultaneously",
        ),
        (
            "kubernetes",
            "{role: pod, kubeconfig_file: b, follow_redirects: false}",
            "cannot use a custom HTTP client configuration together with 'kubeconfig_file'",
        ),
        (
            "kubernetes",
            "{role: pod, bearer_token: b}",
            "to use custom HTTP client configuration please provide the 'api_server' URL \
             explicitly",
        ),
        (
            "kubernetes",
            "{role: pod, api_server: 'http://a', namespaces: {own_namespace: true}}",
            "cannot use 'api_server' and 'namespaces.own_namespace' simultaneously",
        ),
        (
            "kubernetes",
            "{role: pod, selectors: [{role: service}]}",
            "pod role supports only pod, node selectors",
        ),
        (
            "kubernetes",
            "{role: pod, selectors: [{role: pod}, {role: pod}]}",
            "duplicated selector role: pod",
        ),
        (
            "kubernetes",
            "{role: pod, selectors: [{role: pod, field: 'a=b,c'}]}",
            "invalid selector: 'a=b,c'; can't understand 'c'",
        ),
        (
            "ec2",
            "{filters: [{name: a}]}",
            "EC2 SD configuration filter values cannot be empty",
        ),
        ("aws", "{role: s3}", "unknown AWS SD role \"s3\""),
        (
            "azure",
            "{}",
            "azure SD configuration requires a subscription_id",
        ),
        (
            "azure",
            "{subscription_id: a, authentication_method: X}",
            "unknown authentication_type \"X\". Supported types are \"OAuth\", \
             \"ManagedIdentity\", \"SDK\" or \"WorkloadIdentity\"",
        ),
        (
            "gce",
            "{project: a}",
            "GCE SD configuration requires a zone",
        ),
        ("ionos", "{}", "datacenter id can't be empty"),
        (
            "kuma",
            "{server: x}",
            "kuma SD server must not be empty and have a scheme: x",
        ),
        (
            "marathon",
            "{}",
            "marathon_sd: must contain at least one Marathon server",
        ),
        (
            "marathon",
            "{servers: [a], auth_token: b, basic_auth: {username: c}}",
            "marathon_sd: at most one of basic_auth, auth_token & auth_token_file must be \
             configured",
        ),
        (
            "nerve",
            "{servers: [a]}",
            "nerve SD config must contain at least one path",
        ),
        (
            "serverset",
            "{servers: [a], paths: [b]}",
            "serverset SD config paths must begin with '/': b",
        ),
        (
            "oci",
            "{region: a}",
            "oci_sd: api_key auth requires tenancy",
        ),
        (
            "openstack",
            "{role: instance}",
            "openstack SD configuration requires a region",
        ),
        (
            "outscale",
            "{region: a, access_key: b}",
            "one of secret_key & secret_key_file must be configured",
        ),
        ("ovhcloud", "{}", "application key can not be empty"),
        ("puppetdb", "{url: 'http://a'}", "query missing"),
        (
            "scaleway",
            "{role: instance, project_id: a, secret_key: b, secret_key_file: c}",
            "at most one of secret_key & secret_key_file must be configured",
        ),
        (
            "stackit",
            "{region: ''}",
            "stackit_sd: endpoint and region missing",
        ),
        (
            "triton",
            "{role: x}",
            "triton SD configuration requires role to be 'container' or 'cn'",
        ),
        (
            "uyuni",
            "{server: a, username: b}",
            "Uyuni SD configuration requires a password",
        ),
        (
            "vultr",
            "{bearer_token: a, bearer_token_file: b}",
            "at most one of bearer_token & bearer_token_file must be configured",
        ),
    ] {
        let got = one(&format!("{key}_sd_configs"), section);
        assert_eq!(got.unwrap_err(), want, "{key} {section}");
    }
}

#[test]
fn consul_section_has_the_defaults_of_upstream() {
    let consul = |section: &str| settings::<ConsulSettings>("consul_sd_configs", section);
    let usual = consul("{}");
    assert_eq!(
        usual,
        ConsulSettings {
            server: "localhost:8500".into(),
            scheme: "http".into(),
            path_prefix: String::new(),
            token: ConsulToken::default(),
            datacenter: String::new(),
            namespace: String::new(),
            partition: String::new(),
            tag_separator: ",".into(),
            allow_stale: true,
            services: Vec::new(),
            tags: Vec::new(),
            node_meta: Default::default(),
            filter: String::new(),
            health_filter: String::new(),
            refresh: Duration::from_secs(30),
            client: Default::default(),
        }
    );
    let set = consul("{username: u, password: p, tag_separator: '', node_meta: {a: b}}");
    assert_eq!(set.tag_separator, "");
    assert_eq!(set.node_meta["a"], "b");
    assert!(format!("{set:?}").contains("<secret>"));
    assert_ne!(set.client, usual.client);
}

#[test]
fn zookeeper_and_oracle_are_read_with_upstreams_defaults() {
    let zookeeper = |member| {
        vec![DiscoverySettings::provided(ZookeeperSettings {
            member,
            servers: vec!["a".into()],
            paths: vec!["/b".into()],
            timeout: Duration::from_secs(10),
        })]
    };
    let section = "{servers: [a], paths: [/b]}";
    let nerve = one("nerve_sd_configs", section);
    assert_eq!(nerve, Ok(zookeeper(ZookeeperMember::Nerve)));
    let serverset = one("serverset_sd_configs", section);
    assert_eq!(serverset, Ok(zookeeper(ZookeeperMember::Serverset)));
    let oci = |section: &str| settings::<OciSettings>("oci_sd_configs", section);
    let of_user = oci("{region: r, tenancy: t, user: u, fingerprint: f, key_file: k}");
    assert!(
        of_user.key_file.is_absolute() && !of_user.is_machine,
        "{of_user:?}"
    );
    assert_eq!(
        (of_user.port, of_user.refresh),
        (80, Duration::from_secs(60))
    );
    assert!(oci("{region: r, auth: instance_principal}").is_machine);
}

#[test]
fn files_and_servers_with_targets_are_read() {
    let patterns = ["/etc/firn/targets/*.json", "/abs/x.yml"].map(PathBuf::from);
    assert_eq!(
        one(
            "file_sd_configs",
            "{files: [targets/*.json, /abs/x.yml], refresh_interval: 10s}"
        ),
        Ok(vec![DiscoverySettings::provided(FileDiscoverySettings {
            patterns: patterns.to_vec(),
            refresh: Duration::from_secs(10),
        })])
    );
    let server: HttpDiscoverySettings = settings(
        "http_sd_configs",
        "{url: 'http://sd/targets', basic_auth: {username: u, password_file: pw}}",
    );
    assert_eq!(server.refresh, Duration::from_secs(60));
    assert_eq!(
        server.client.auth,
        AuthMethod::Basic {
            username: Some(Secret::Inline("u".into())),
            password: Some(Secret::File("/etc/firn/pw".into())),
        }
    );
}

#[test]
fn providers_are_in_order_and_named_like_their_mechanisms() {
    let names: Vec<&str> = PROVIDERS.iter().map(|p| p.key.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    for (key, section, mechanism) in [
        ("aws_sd_configs", "{role: rds}", "rds"),
        ("ec2_sd_configs", "{}", "ec2"),
        (
            "dockerswarm_sd_configs",
            "{host: a, role: nodes}",
            "dockerswarm",
        ),
        (
            "serverset_sd_configs",
            "{servers: [a], paths: [/b]}",
            "serverset",
        ),
        ("vultr_sd_configs", "{}", "vultr"),
    ] {
        let read = one(key, section).unwrap();
        assert_eq!(read[0].mechanism(), mechanism, "{key}");
    }
}

#[test]
fn settings_of_different_providers_are_not_equal() {
    let read = |key: &str, section: &str| one(key, section).unwrap().remove(0);
    let ecs = read("ecs_sd_configs", "{request_concurrency: 1}");
    assert_eq!(
        ecs,
        read("aws_sd_configs", "{role: ecs, request_concurrency: 1}").clone()
    );
    assert_ne!(ecs, read("msk_sd_configs", "{request_concurrency: 1}"));
    assert_ne!(ecs, read("vultr_sd_configs", "{}"));
    assert_ne!(ecs, DiscoverySettings::Static(Vec::new()));
}

#[test]
fn keys_have_the_order_of_their_names_in_which_they_are_printed() {
    assert!(DISCOVERY_KEYS.is_sorted_by_key(|key| key.name));
}
