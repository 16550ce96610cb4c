//! Table of the fields of discoveries.

use firn_config_schema::printed::PrintedFieldKind::{
    self, Duration, Flag, List, Loaded, Path, Paths, Pointer, Text, TextMap, Texts, Whole,
};
use firn_config_schema::printed::{PrintedField, always, field, with};
use firn_http_client::http_config::CLIENT;

/// Key of the static targets of a section.
pub const STATIC: &str = "static_configs";

/// Returns the kind of the value of a discovery's key.
pub fn kind_of(key: &str) -> PrintedFieldKind {
    match key {
        STATIC => List(&[TARGETS]),
        "file_sd_configs" => List(&[FILE]),
        "http_sd_configs" => List(&[CLIENT, HTTP]),
        "dns_sd_configs" => List(&[DNS]),
        "consul_sd_configs" => List(&[CONSUL, CLIENT]),
        "kubernetes_sd_configs" => List(&[KUBERNETES, CLIENT, KUBERNETES_CHOICE]),
        _ => Loaded,
    }
}

const TARGETS: &[PrintedField] = &[always("targets", Texts, ""), field("labels", TextMap)];

const FILE: &[PrintedField] = &[
    always("files", Paths, ""),
    with("refresh_interval", Duration, "5m"),
];

const HTTP: &[PrintedField] = &[
    with("refresh_interval", Duration, "1m"),
    always("url", Text, ""),
];

const DNS: &[PrintedField] = &[
    always("names", Texts, ""),
    with("refresh_interval", Duration, "30s"),
    always("type", Text, "SRV"),
    always("port", Whole, "0"),
];

const CONSUL: &[PrintedField] = &[
    with("server", Text, "localhost:8500"),
    field("path_prefix", Text),
    field("token", Text),
    field("datacenter", Text),
    field("namespace", Text),
    field("partition", Text),
    with("tag_separator", Text, ","),
    with("scheme", Text, "http"),
    field("username", Text),
    field("password", Text),
    always("allow_stale", Flag, "true"),
    with("refresh_interval", Duration, "30s"),
    field("services", Texts),
    field("tags", Texts),
    field("node_meta", TextMap),
    field("filter", Text),
    field("health_filter", Text),
];

const KUBERNETES: &[PrintedField] = &[
    field("api_server", Text),
    always("role", Text, ""),
    always("kubeconfig_file", Path, ""),
];

const KUBERNETES_CHOICE: &[PrintedField] = &[
    field(
        "namespaces",
        Pointer(&[&[
            always("own_namespace", Flag, "false"),
            always("names", Texts, ""),
        ]]),
    ),
    field(
        "selectors",
        List(&[&[
            field("role", Text),
            field("label", Text),
            field("field", Text),
        ]]),
    ),
    field(
        "attach_metadata",
        Pointer(&[&[
            always("node", Flag, "false"),
            always("namespace", Flag, "false"),
            always("deployment", Flag, "false"),
            always("job", Flag, "false"),
            always("cronjob", Flag, "false"),
        ]]),
    ),
];
