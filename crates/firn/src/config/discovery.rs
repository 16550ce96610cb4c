//! The keys of Prometheus 3.14's service discoveries. A table.
//!
//! Firn does not run them yet; it knows them so that a config that uses one loads, and so that a
//! mistyped key in one is found.

use super::keys::{HTTP_CLIENT, PROXY, TEXTS, TLS};
use super::schema::{Key, Shape};
use Shape::{Bool, Duration, Integer, List, Map, Secret, Section, Text, Url};

const fn key(name: &'static str, shape: Shape) -> Key {
    Key::new(name, shape)
}

/// Every discovery, as keys of a scrape job or of an Alertmanager.
pub const DISCOVERY: &[Key] = &[
    key("static_configs", List(&Section(&[STATIC]))),
    key("aws_sd_configs", List(&Section(&[AWS, HTTP_CLIENT, PROXY]))),
    key(
        "azure_sd_configs",
        List(&Section(&[AZURE, HTTP_CLIENT, PROXY])),
    ),
    key(
        "consul_sd_configs",
        List(&Section(&[CONSUL, HTTP_CLIENT, PROXY])),
    ),
    key(
        "digitalocean_sd_configs",
        List(&Section(&[DIGITALOCEAN, HTTP_CLIENT, PROXY])),
    ),
    key(
        "docker_sd_configs",
        List(&Section(&[DOCKER, HTTP_CLIENT, PROXY])),
    ),
    key(
        "dockerswarm_sd_configs",
        List(&Section(&[DOCKERSWARM, HTTP_CLIENT, PROXY])),
    ),
    key("dns_sd_configs", List(&Section(&[DNS]))),
    key("ec2_sd_configs", List(&Section(&[EC2, HTTP_CLIENT, PROXY]))),
    key("ecs_sd_configs", List(&Section(&[ECS, HTTP_CLIENT, PROXY]))),
    key(
        "elasticache_sd_configs",
        List(&Section(&[ELASTICACHE, HTTP_CLIENT, PROXY])),
    ),
    key(
        "eureka_sd_configs",
        List(&Section(&[EUREKA, HTTP_CLIENT, PROXY])),
    ),
    key("file_sd_configs", List(&Section(&[FILE]))),
    key("gce_sd_configs", List(&Section(&[GCE]))),
    key(
        "hetzner_sd_configs",
        List(&Section(&[HETZNER, HTTP_CLIENT, PROXY])),
    ),
    key(
        "http_sd_configs",
        List(&Section(&[HTTP, HTTP_CLIENT, PROXY])),
    ),
    key(
        "ionos_sd_configs",
        List(&Section(&[IONOS, HTTP_CLIENT, PROXY])),
    ),
    key(
        "kubernetes_sd_configs",
        List(&Section(&[KUBERNETES, HTTP_CLIENT, PROXY])),
    ),
    key(
        "kuma_sd_configs",
        List(&Section(&[KUMA, HTTP_CLIENT, PROXY])),
    ),
    key(
        "lightsail_sd_configs",
        List(&Section(&[LIGHTSAIL, HTTP_CLIENT, PROXY])),
    ),
    key(
        "linode_sd_configs",
        List(&Section(&[LINODE, HTTP_CLIENT, PROXY])),
    ),
    key(
        "marathon_sd_configs",
        List(&Section(&[MARATHON, HTTP_CLIENT, PROXY])),
    ),
    key("msk_sd_configs", List(&Section(&[MSK, HTTP_CLIENT, PROXY]))),
    key("nerve_sd_configs", List(&Section(&[NERVE]))),
    key(
        "nomad_sd_configs",
        List(&Section(&[NOMAD, HTTP_CLIENT, PROXY])),
    ),
    key("oci_sd_configs", List(&Section(&[OCI, HTTP_CLIENT, PROXY]))),
    key("openstack_sd_configs", List(&Section(&[OPENSTACK]))),
    key(
        "outscale_sd_configs",
        List(&Section(&[OUTSCALE, HTTP_CLIENT, PROXY])),
    ),
    key("ovhcloud_sd_configs", List(&Section(&[OVHCLOUD]))),
    key(
        "puppetdb_sd_configs",
        List(&Section(&[PUPPETDB, HTTP_CLIENT, PROXY])),
    ),
    key("rds_sd_configs", List(&Section(&[RDS, HTTP_CLIENT, PROXY]))),
    key(
        "scaleway_sd_configs",
        List(&Section(&[SCALEWAY, HTTP_CLIENT, PROXY])),
    ),
    key("serverset_sd_configs", List(&Section(&[SERVERSET]))),
    key(
        "stackit_sd_configs",
        List(&Section(&[STACKIT, HTTP_CLIENT, PROXY])),
    ),
    key("triton_sd_configs", List(&Section(&[TRITON]))),
    key(
        "uyuni_sd_configs",
        List(&Section(&[UYUNI, HTTP_CLIENT, PROXY])),
    ),
    key(
        "vultr_sd_configs",
        List(&Section(&[VULTR, HTTP_CLIENT, PROXY])),
    ),
];

const STATIC: &[Key] = &[key("targets", TEXTS), key("labels", Map(&Text))];

const FILTERS: Shape = List(&Section(&[&[key("name", Text), key("values", TEXTS)]]));

const NAMESPACES: Shape = Section(&[&[key("own_namespace", Bool), key("names", TEXTS)]]);

const SELECTORS: Shape = List(&Section(&[&[
    key("role", Text),
    key("label", Text),
    key("field", Text),
]]));

const ATTACHED: Shape = Section(&[&[
    key("node", Bool),
    key("namespace", Bool),
    key("deployment", Bool),
    key("job", Bool),
    key("cronjob", Bool),
]]);

const AWS: &[Key] = &[
    key("role", Text),
    key("region", Text),
    key("endpoint", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("filters", FILTERS),
    key("clusters", TEXTS),
];

const AZURE: &[Key] = &[
    key("environment", Text),
    key("port", Integer),
    key("subscription_id", Text),
    key("tenant_id", Text),
    key("client_id", Text),
    key("client_secret", Secret),
    key("refresh_interval", Duration),
    key("authentication_method", Text),
    key("resource_group", Text),
];

const CONSUL: &[Key] = &[
    key("server", Text),
    key("path_prefix", Text),
    key("token", Secret),
    key("datacenter", Text),
    key("namespace", Text),
    key("partition", Text),
    key("tag_separator", Text),
    key("scheme", Text),
    key("username", Text),
    key("password", Secret),
    key("allow_stale", Bool),
    key("refresh_interval", Duration),
    key("services", TEXTS),
    key("tags", TEXTS),
    key("node_meta", Map(&Text)),
    key("filter", Text),
    key("health_filter", Text),
];

const DIGITALOCEAN: &[Key] = &[
    key("refresh_interval", Duration),
    key("port", Integer),
    key("role", Text),
];

const DOCKER: &[Key] = &[
    key("host", Text).required(),
    key("port", Integer),
    key("filters", FILTERS),
    key("host_networking_host", Text),
    key("refresh_interval", Duration),
    key("match_first_network", Bool),
];

const DOCKERSWARM: &[Key] = &[
    key("host", Text).required(),
    key("role", Text).required(),
    key("port", Integer),
    key("filters", FILTERS),
    key("refresh_interval", Duration),
];

const DNS: &[Key] = &[
    key("names", TEXTS).required(),
    key("refresh_interval", Duration),
    key("type", Text),
    key("port", Integer),
];

const EC2: &[Key] = &[
    key("endpoint", Text),
    key("region", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("filters", FILTERS),
];

const ECS: &[Key] = &[
    key("region", Text),
    key("endpoint", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("clusters", TEXTS),
    key("port", Integer),
    key("refresh_interval", Duration),
    key("request_concurrency", Integer),
];

const ELASTICACHE: &[Key] = &[
    key("region", Text),
    key("endpoint", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("clusters", TEXTS),
    key("port", Integer),
    key("refresh_interval", Duration),
    key("request_concurrency", Integer),
];

const EUREKA: &[Key] = &[
    key("server", Text).required(),
    key("refresh_interval", Duration),
];

const FILE: &[Key] = &[
    key("files", TEXTS).required(),
    key("refresh_interval", Duration),
];

const GCE: &[Key] = &[
    key("project", Text).required(),
    key("zone", Text).required(),
    key("filter", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("tag_separator", Text),
];

const HETZNER: &[Key] = &[
    key("refresh_interval", Duration),
    key("port", Integer),
    key("role", Text).required(),
    key("label_selector", Text),
];

const HTTP: &[Key] = &[
    key("refresh_interval", Duration),
    key("url", Url).required(),
];

const IONOS: &[Key] = &[
    key("datacenter_id", Text).required(),
    key("refresh_interval", Duration),
    key("port", Integer),
];

const KUBERNETES: &[Key] = &[
    key("api_server", Url),
    key("role", Text).required(),
    key("kubeconfig_file", Text),
    key("namespaces", NAMESPACES),
    key("selectors", SELECTORS),
    key("attach_metadata", ATTACHED),
];

const KUMA: &[Key] = &[
    key("refresh_interval", Duration),
    key("fetch_timeout", Duration),
    key("server", Text).required(),
    key("client_id", Text),
];

const LIGHTSAIL: &[Key] = &[
    key("endpoint", Text),
    key("region", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
];

const LINODE: &[Key] = &[
    key("refresh_interval", Duration),
    key("port", Integer),
    key("tag_separator", Text),
    key("region", Text),
];

const MARATHON: &[Key] = &[
    key("servers", TEXTS).required(),
    key("refresh_interval", Duration),
    key("auth_token", Secret),
    key("auth_token_file", Text),
];

const MSK: &[Key] = &[
    key("region", Text),
    key("endpoint", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("clusters", TEXTS),
    key("port", Integer),
    key("refresh_interval", Duration),
    key("request_concurrency", Integer),
];

const NERVE: &[Key] = &[
    key("servers", TEXTS).required(),
    key("paths", TEXTS).required(),
    key("timeout", Duration),
];

const NOMAD: &[Key] = &[
    key("allow_stale", Bool),
    key("namespace", Text),
    key("refresh_interval", Duration),
    key("region", Text),
    key("server", Text).required(),
    key("tag_separator", Text),
];

const OCI: &[Key] = &[
    key("auth", Text),
    key("tenancy", Text),
    key("user", Text),
    key("fingerprint", Text),
    key("key_file", Text),
    key("key_passphrase", Secret),
    key("key_passphrase_file", Text),
    key("region", Text),
    key("compartments", TEXTS),
    key("port", Integer),
    key("refresh_interval", Duration),
];

const OPENSTACK: &[Key] = &[
    key("identity_endpoint", Text),
    key("username", Text),
    key("userid", Text),
    key("password", Secret),
    key("project_name", Text),
    key("project_id", Text),
    key("domain_name", Text),
    key("domain_id", Text),
    key("application_credential_name", Text),
    key("application_credential_id", Text),
    key("application_credential_secret", Secret),
    key("role", Text).required(),
    key("region", Text).required(),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("all_tenants", Bool),
    key("tls_config", TLS),
    key("availability", Text),
];

const OUTSCALE: &[Key] = &[
    key("endpoint", Text),
    key("region", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("secret_key_file", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
];

const OVHCLOUD: &[Key] = &[
    key("endpoint", Text),
    key("application_key", Text),
    key("application_secret", Secret),
    key("consumer_key", Secret),
    key("refresh_interval", Duration),
    key("service", Text).required(),
];

const PUPPETDB: &[Key] = &[
    key("refresh_interval", Duration),
    key("url", Url).required(),
    key("query", Text).required(),
    key("include_parameters", Bool),
    key("port", Integer),
];

const RDS: &[Key] = &[
    key("region", Text),
    key("endpoint", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("clusters", TEXTS),
    key("port", Integer),
    key("refresh_interval", Duration),
    key("filters", FILTERS),
    key("request_concurrency", Integer),
];

const SCALEWAY: &[Key] = &[
    key("project_id", Text).required(),
    key("api_url", Text),
    key("zone", Text),
    key("access_key", Text).required(),
    key("secret_key", Secret),
    key("secret_key_file", Text),
    key("name_filter", Text),
    key("tags_filter", TEXTS),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("role", Text).required(),
];

const SERVERSET: &[Key] = &[
    key("servers", TEXTS).required(),
    key("paths", TEXTS).required(),
    key("timeout", Duration),
];

const STACKIT: &[Key] = &[
    key("project", Text).required(),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("region", Text),
    key("endpoint", Text),
    key("service_account_key", Secret),
    key("private_key", Secret),
    key("service_account_key_path", Text),
    key("private_key_path", Text),
    key("credentials_file_path", Text),
];

const TRITON: &[Key] = &[
    key("account", Text).required(),
    key("role", Text),
    key("dns_suffix", Text).required(),
    key("endpoint", Text).required(),
    key("groups", TEXTS),
    key("port", Integer),
    key("refresh_interval", Duration),
    key("tls_config", TLS),
    key("version", Integer),
];

const UYUNI: &[Key] = &[
    key("server", Text).required(),
    key("username", Text).required(),
    key("password", Secret),
    key("entitlement", Text),
    key("separator", Text),
    key("refresh_interval", Duration),
];

const VULTR: &[Key] = &[key("refresh_interval", Duration), key("port", Integer)];
