//! Features of this binary for `/api/v1/features`: built-in ones and those switched by flags. The
//! server adds the features of PromQL and of the API.

use firn_config::Settings;
use firn_config::features::FEATURES;
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
    let switched = FEATURES.iter().filter_map(|row| {
        let (category, name) = row.listed_as?;
        let is_on = settings.has_feature(row.feature);
        (is_on || !row.is_omitted_if_disabled).then_some(ServerFeature {
            category,
            name,
            is_on,
        })
    });
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
    all.chain(switched).collect()
}
