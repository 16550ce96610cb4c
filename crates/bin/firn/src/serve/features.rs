//! Features of this binary for `/api/v1/features`: built-in ones and those switched by flags. The
//! server adds the features of PromQL and of the API.

use firn_config::Settings;
use firn_discovery::discovery_names;
use firn_server::parts::ServerFeature;

/// Names of the template functions of Prometheus, all of which Firn implements.
const TEMPLATES: [&str; 29] = [
    "args",
    "externalURL",
    "first",
    "graphLink",
    "humanize",
    "humanize1024",
    "humanizeDuration",
    "humanizePercentage",
    "humanizeTimestamp",
    "label",
    "match",
    "now",
    "parseDuration",
    "pathPrefix",
    "query",
    "reReplaceAll",
    "safeHtml",
    "sortByLabel",
    "stripDomain",
    "stripPort",
    "strvalue",
    "tableLink",
    "title",
    "toDuration",
    "toLower",
    "toTime",
    "toUpper",
    "urlQueryEscape",
    "value",
];

/// Features that are always enabled, as pairs of category and name.
const ALWAYS: [(&str, &str); 6] = [
    ("rules", "concurrent_rule_eval"),
    ("rules", "keep_firing_for"),
    ("rules", "query_offset"),
    ("scrape", "extra_scrape_metrics"),
    ("tsdb", "isolation"),
    ("tsdb", "native_histograms"),
];

/// Features enabled by a flag: category, name, and the feature name of the flag.
const SWITCHED: [(&str, &str, &str); 6] = [
    (
        "otlp_receiver",
        "delta_conversion",
        "otlp-deltatocumulative",
    ),
    (
        "otlp_receiver",
        "native_delta_ingestion",
        "otlp-native-delta-ingestion",
    ),
    (
        "scrape",
        "start_timestamp_zero_ingestion",
        "created-timestamp-zero-ingestion",
    ),
    ("scrape", "type_and_unit_labels", "type-and-unit-labels"),
    ("tsdb", "exemplar_storage", "exemplar-storage"),
    ("tsdb", "st_storage", "st-storage"),
];

/// Returns the features of a server with these settings, enabled or not, for `/api/v1/features`.
pub fn features(settings: &Settings) -> Vec<ServerFeature> {
    let on = |category, name| ServerFeature {
        category,
        name,
        is_on: true,
    };
    let always = ALWAYS.iter().map(|(category, name)| on(category, name));
    let templates = TEMPLATES
        .iter()
        .map(|name| on("templating_functions", name));
    let discoveries = discovery_names().map(|name| on("service_discovery_providers", name));
    let switched = SWITCHED.iter().map(|(category, name, flag)| ServerFeature {
        category,
        name,
        is_on: settings.features.iter().any(|known| known == flag),
    });
    // Prometheus lists this feature only if it is enabled.
    let made = settings
        .features
        .iter()
        .find(|known| *known == "st-synthesis");
    let made = made.map(|_| on("scrape", "st-synthesis"));
    let modes = [
        ("auto_reload_config", settings.has_auto_reload()),
        ("agent_mode", settings.is_agent),
        ("server_mode", !settings.is_agent),
    ];
    let modes = modes.into_iter().map(|(name, is_on)| ServerFeature {
        category: "prometheus",
        name,
        is_on,
    });
    let all = always.chain(modes).chain(templates).chain(discoveries);
    all.chain(switched).chain(made).collect()
}
