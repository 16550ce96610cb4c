//! Service discoveries of a job.
//!
//! Each discovery has a reader with the checks and defaults of upstream, so that Firn rejects the
//! same configs as upstream.

mod aws;
mod clouds;
mod kubernetes;
mod managers;
mod platforms;
#[cfg(test)]
mod tests;
mod values;

pub use aws::sigv4;

use super::discovery::GROUPS;
use super::http::http;
use super::read;
use super::schema::{ConfigFindings, walk};
use firn_discovery::{DiscoverySettings, TargetGroup};
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;
use values::check_http_url;

/// Prometheus's default for `refresh_interval` of `file_sd_configs`.
const FILE_REFRESH: Duration = Duration::from_secs(5 * 60);

/// Prometheus's default for `refresh_interval` of `http_sd_configs`.
const HTTP_REFRESH: Duration = Duration::from_secs(60);

/// Allowed extensions of target files.
const ENDINGS: [&str; 6] = ["json", "yml", "yaml", "JSON", "YML", "YAML"];

/// Reads a section of one kind of discovery. The path is the folder of the config.
type Reader = fn(&YamlNode, &Path) -> Result<DiscoverySettings, YamlError>;

/// Readers of the discoveries by their keys.
const READERS: &[(&str, Reader)] = &[
    ("aws_sd_configs", aws::aws),
    ("azure_sd_configs", clouds::azure),
    ("consul_sd_configs", platforms::consul),
    ("digitalocean_sd_configs", platforms::digitalocean),
    ("dns_sd_configs", platforms::dns),
    ("docker_sd_configs", platforms::docker),
    ("dockerswarm_sd_configs", platforms::swarm),
    ("ec2_sd_configs", aws::ec2),
    ("ecs_sd_configs", aws::ecs),
    ("elasticache_sd_configs", aws::elasticache),
    ("eureka_sd_configs", platforms::eureka),
    ("file_sd_configs", files),
    ("gce_sd_configs", clouds::gce),
    ("hetzner_sd_configs", platforms::hetzner),
    ("http_sd_configs", server),
    ("ionos_sd_configs", clouds::ionos),
    ("kubernetes_sd_configs", kubernetes::kubernetes),
    ("kuma_sd_configs", managers::kuma),
    ("lightsail_sd_configs", aws::lightsail),
    ("linode_sd_configs", clouds::linode),
    ("marathon_sd_configs", managers::marathon),
    ("msk_sd_configs", aws::msk),
    ("nerve_sd_configs", managers::nerve),
    ("nomad_sd_configs", platforms::nomad),
    ("oci_sd_configs", clouds::oci),
    ("openstack_sd_configs", clouds::openstack),
    ("outscale_sd_configs", clouds::outscale),
    ("ovhcloud_sd_configs", clouds::ovhcloud),
    ("puppetdb_sd_configs", managers::puppetdb),
    ("rds_sd_configs", aws::rds),
    ("scaleway_sd_configs", clouds::scaleway),
    ("serverset_sd_configs", managers::serverset),
    ("stackit_sd_configs", clouds::stackit),
    ("triton_sd_configs", managers::triton),
    ("uyuni_sd_configs", managers::uyuni),
    ("vultr_sd_configs", clouds::vultr),
];

/// Reads the discoveries of a job. `dir` is the folder of the config.
pub fn discoveries(job: &YamlNode, dir: &Path) -> Result<Vec<DiscoverySettings>, YamlError> {
    let mut discoveries = Vec::new();
    let list = |key: &str| job.get(key).map_or(&[][..], YamlNode::items);
    let statics = list("static_configs");
    if !statics.is_empty() {
        let groups = statics.iter().map(group).collect();
        discoveries.push(DiscoverySettings::Static(groups));
    }
    for (key, reader) in READERS {
        for node in list(key) {
            discoveries.push(reader(node, dir)?);
        }
    }
    Ok(discoveries)
}

/// Parses the target groups of a YAML target file.
pub fn read_groups(text: &str) -> Result<Vec<TargetGroup>, String> {
    let Some(root) = firn_yaml::parse(text).map_err(|e| e.to_string())? else {
        return Ok(Vec::new());
    };
    let wrong = |node: &YamlNode, what: &str| Err(node.error(what).to_string());
    if !matches!(root.value, firn_yaml::YamlValue::List(_)) {
        return wrong(&root, "expected a list of target groups");
    }
    if let Some(node) = root.items().iter().find(|node| node.is_null()) {
        return wrong(node, "nil target group item found");
    }
    walk(
        &mut root.clone(),
        &GROUPS,
        "groups",
        &mut ConfigFindings::default(),
    )
    .map_err(|e| e.to_string())?;
    Ok(root.items().iter().map(group).collect())
}

fn group(node: &YamlNode) -> TargetGroup {
    let labels = read::entries(node.get("labels")).iter();
    TargetGroup {
        targets: read::texts(node, "targets").unwrap_or_default(),
        labels: labels
            .map(|e| (e.key.clone(), e.node.text().unwrap_or_default().to_owned()))
            .collect(),
    }
}

fn files(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let patterns = read::texts(node, "files").unwrap_or_default();
    if patterns.is_empty() {
        return Err(node.error("file service discovery config must contain at least one path name"));
    }
    if let Some(pattern) = patterns.iter().find(|p| !is_file_pattern(p)) {
        return Err(node.error(format!(
            "path name {pattern:?} is not valid for file discovery"
        )));
    }
    Ok(DiscoverySettings::File {
        patterns: patterns.iter().map(|p| dir.join(p)).collect(),
        refresh: read::duration(node, "refresh_interval").unwrap_or(FILE_REFRESH),
    })
}

/// Returns whether a path has the extension of a target file and at most one `*`, which must be in
/// the file name.
fn is_file_pattern(pattern: &str) -> bool {
    let Some((stem, ending)) = pattern.rsplit_once('.') else {
        return false;
    };
    let behind_star = stem.split_once('*').map(|(_, behind)| behind);
    ENDINGS.contains(&ending) && behind_star.is_none_or(|behind| !behind.contains('/'))
}

fn server(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let url = read::text(node, "url").unwrap_or_default();
    check_http_url(node, url)?;
    Ok(DiscoverySettings::Http {
        url: url.to_owned(),
        refresh: read::duration(node, "refresh_interval").unwrap_or(HTTP_REFRESH),
        client: Box::new(http(node, dir)?),
    })
}
