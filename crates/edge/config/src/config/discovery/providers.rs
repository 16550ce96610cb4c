//! Table of the keys that each service discovery of Prometheus 3.14 accepts in a config.

use super::super::http::TLS;
use super::super::schema::{ConfigKey, ConfigValueShape, TEXTS};
use super::key;
use ConfigValueShape::{Bool, Duration, Integer, Labels, List, Map, Secret, Section, Text, Url};

/// Keys of the AWS API client that all discoveries of AWS accept.
pub(super) const AWS_CLIENT: &[ConfigKey] = &[
    key("region", Text),
    key("endpoint", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("port", Integer),
    key("refresh_interval", Duration),
];

pub(super) const STATIC: &[ConfigKey] = &[key("targets", TEXTS), key("labels", Labels)];

pub(super) const FILTERS: ConfigValueShape =
    List(&Section(&[&[key("name", Text), key("values", TEXTS)]]));

pub(super) const NAMESPACES: ConfigValueShape =
    Section(&[&[key("own_namespace", Bool), key("names", TEXTS)]]);

pub(super) const SELECTORS: ConfigValueShape = List(&Section(&[&[
    key("role", Text),
    key("label", Text),
    key("field", Text),
]]));

pub(super) const ATTACHED: ConfigValueShape = Section(&[&[
    key("node", Bool),
    key("namespace", Bool),
    key("deployment", Bool),
    key("job", Bool),
    key("cronjob", Bool),
]]);

pub(super) const AWS: &[ConfigKey] = &[
    key("role", Text),
    key("filters", FILTERS),
    key("clusters", TEXTS),
];

pub(super) const AZURE: &[ConfigKey] = &[
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

pub(super) const CONSUL: &[ConfigKey] = &[
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

pub(super) const DIGITALOCEAN: &[ConfigKey] = &[
    key("refresh_interval", Duration),
    key("port", Integer),
    key("role", Text),
];

pub(super) const DOCKER: &[ConfigKey] = &[
    key("host", Text),
    key("port", Integer),
    key("filters", FILTERS),
    key("host_networking_host", Text),
    key("refresh_interval", Duration),
    key("match_first_network", Bool),
];

pub(super) const DOCKERSWARM: &[ConfigKey] = &[
    key("host", Text),
    key("role", Text),
    key("port", Integer),
    key("filters", FILTERS),
    key("refresh_interval", Duration),
];

pub(super) const DNS: &[ConfigKey] = &[
    key("names", TEXTS),
    key("refresh_interval", Duration),
    key("type", Text),
    key("port", Integer),
];

pub(super) const EC2: &[ConfigKey] = &[key("filters", FILTERS)];

pub(super) const ECS: &[ConfigKey] = &[key("clusters", TEXTS), key("request_concurrency", Integer)];

pub(super) const ELASTICACHE: &[ConfigKey] =
    &[key("clusters", TEXTS), key("request_concurrency", Integer)];

pub(super) const EUREKA: &[ConfigKey] = &[key("server", Text), key("refresh_interval", Duration)];

pub(super) const FILE: &[ConfigKey] = &[key("files", TEXTS), key("refresh_interval", Duration)];

pub(super) const GCE: &[ConfigKey] = &[
    key("project", Text),
    key("zone", Text),
    key("filter", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("tag_separator", Text),
];

pub(super) const HETZNER: &[ConfigKey] = &[
    key("refresh_interval", Duration),
    key("port", Integer),
    key("role", Text),
    key("label_selector", Text),
];

pub(super) const HTTP: &[ConfigKey] = &[key("refresh_interval", Duration), key("url", Url)];

pub(super) const IONOS: &[ConfigKey] = &[
    key("datacenter_id", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
];

pub(super) const KUBERNETES: &[ConfigKey] = &[
    key("api_server", Url),
    key("role", Text),
    key("kubeconfig_file", Text),
    key("namespaces", NAMESPACES),
    key("selectors", SELECTORS),
    key("attach_metadata", ATTACHED),
];

pub(super) const KUMA: &[ConfigKey] = &[
    key("refresh_interval", Duration),
    key("fetch_timeout", Duration),
    key("server", Text),
    key("client_id", Text),
];

pub(super) const LINODE: &[ConfigKey] = &[
    key("refresh_interval", Duration),
    key("port", Integer),
    key("tag_separator", Text),
    key("region", Text),
];

pub(super) const MARATHON: &[ConfigKey] = &[
    key("servers", TEXTS),
    key("refresh_interval", Duration),
    key("auth_token", Secret),
    key("auth_token_file", Text),
];

pub(super) const MSK: &[ConfigKey] = &[key("clusters", TEXTS), key("request_concurrency", Integer)];

pub(super) const NERVE: &[ConfigKey] = &[
    key("servers", TEXTS),
    key("paths", TEXTS),
    key("timeout", Duration),
];

pub(super) const NOMAD: &[ConfigKey] = &[
    key("allow_stale", Bool),
    key("namespace", Text),
    key("refresh_interval", Duration),
    key("region", Text),
    key("server", Text),
    key("tag_separator", Text),
];

pub(super) const OCI: &[ConfigKey] = &[
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

pub(super) const OPENSTACK: &[ConfigKey] = &[
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
    key("role", Text),
    key("region", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("all_tenants", Bool),
    key("tls_config", TLS),
    key("availability", Text),
];

pub(super) const OUTSCALE: &[ConfigKey] = &[
    key("endpoint", Text),
    key("region", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("secret_key_file", Text),
    key("refresh_interval", Duration),
    key("port", Integer),
];

pub(super) const OVHCLOUD: &[ConfigKey] = &[
    key("endpoint", Text),
    key("application_key", Text),
    key("application_secret", Secret),
    key("consumer_key", Secret),
    key("refresh_interval", Duration),
    key("service", Text),
];

pub(super) const PUPPETDB: &[ConfigKey] = &[
    key("refresh_interval", Duration),
    key("url", Url),
    key("query", Text),
    key("include_parameters", Bool),
    key("port", Integer),
];

pub(super) const RDS: &[ConfigKey] = &[
    key("clusters", TEXTS),
    key("filters", FILTERS),
    key("request_concurrency", Integer),
];

pub(super) const SCALEWAY: &[ConfigKey] = &[
    key("project_id", Text),
    key("api_url", Text),
    key("zone", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("secret_key_file", Text),
    key("name_filter", Text),
    key("tags_filter", TEXTS),
    key("refresh_interval", Duration),
    key("port", Integer),
    key("role", Text),
];

pub(super) const SERVERSET: &[ConfigKey] = &[
    key("servers", TEXTS),
    key("paths", TEXTS),
    key("timeout", Duration),
];

pub(super) const STACKIT: &[ConfigKey] = &[
    key("project", Text),
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

pub(super) const TRITON: &[ConfigKey] = &[
    key("account", Text),
    key("role", Text),
    key("dns_suffix", Text),
    key("endpoint", Text),
    key("groups", TEXTS),
    key("port", Integer),
    key("refresh_interval", Duration),
    key("tls_config", TLS),
    key("version", Integer),
];

pub(super) const UYUNI: &[ConfigKey] = &[
    key("server", Text),
    key("username", Text),
    key("password", Secret),
    key("entitlement", Text),
    key("separator", Text),
    key("refresh_interval", Duration),
];

pub(super) const VULTR: &[ConfigKey] = &[key("refresh_interval", Duration), key("port", Integer)];
