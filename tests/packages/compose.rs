//! The Compose file and Grafana's provisioning: all files that they mount exist, and Firn accepts
//! its config.

use crate::{at, check_config, document, root, text, text_at};
use firn_yaml::{YamlNode, YamlValue};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

fn keys(node: &YamlNode) -> Vec<String> {
    match &node.value {
        YamlValue::Map(entries) => entries.iter().map(|entry| entry.key.clone()).collect(),
        _ => Vec::new(),
    }
}

fn texts(node: Option<&YamlNode>) -> Vec<String> {
    let items = node.map(YamlNode::items).unwrap_or_default();
    let text = |item: &YamlNode| item.text().unwrap().to_owned();
    items.iter().map(text).collect()
}

/// Mounts of files of the repository: place in the container by path in the repository.
fn mounts(service: &YamlNode) -> BTreeMap<String, PathBuf> {
    let volumes = texts(service.get("volumes"));
    let mounts = volumes.iter().filter_map(|volume| {
        let (from, to) = volume.split_once(':').unwrap();
        let from = from.strip_prefix("./")?;
        let to = to.split(':').next().unwrap();
        Some((to.to_owned(), root("deploy").join(from)))
    });
    mounts.collect()
}

#[test]
fn compose_mounts_files_that_exist_and_pins_images() {
    let compose = document(&text("deploy/compose.yml"));
    let volumes = keys(at(&compose, "volumes"));
    let services = at(&compose, "services");
    for name in keys(services) {
        let service = at(services, &name);
        for path in mounts(service).into_values() {
            assert!(path.exists(), "{name}: no {}", path.display());
        }
        for volume in texts(service.get("volumes")) {
            let from = volume.split(':').next().unwrap();
            let is_path = from.starts_with(['.', '/']);
            assert!(
                is_path || volumes.iter().any(|known| known == from),
                "{name}: no volume {from}"
            );
        }
        let image = text_at(service, "image");
        let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
        assert!(tag.contains('.') && !tag.contains('/'), "{name}: {image}");
        for port in texts(service.get("ports")) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
        }
    }
    let image = text_at(services, "firn.image");
    assert_eq!(image, format!("firn:{}", env!("CARGO_PKG_VERSION")));
    assert!(root(&text_at(services, "firn.build.dockerfile")).exists());
}

#[test]
fn config_of_compose_is_accepted_and_scrapes_all_services() {
    let compose = document(&text("deploy/compose.yml"));
    let services = at(&compose, "services");
    let dir = tempfile::tempdir().unwrap();
    let mut rules = 0;
    for (to, from) in mounts(at(services, "firn")) {
        let to = dir.path().join(to.strip_prefix("/etc/firn/").unwrap());
        if from.is_file() {
            std::fs::copy(from, to).unwrap();
            continue;
        }
        std::fs::create_dir(&to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().flatten() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            rules += 1;
        }
    }
    assert!(rules > 0);
    let config = dir.path().join("firn.yml");
    check_config(&config);
    let config = document(&std::fs::read_to_string(config).unwrap());
    let jobs = at(&config, "scrape_configs").items();
    let targets = jobs.iter().map(|job| {
        let target = text_at(job, "static_configs.0.targets.0");
        let host = target.rsplit_once(':').unwrap().0.to_owned();
        // Firn scrapes itself.
        if host == "localhost" {
            "firn".to_owned()
        } else {
            host
        }
    });
    let targets: BTreeSet<String> = targets.collect();
    assert_eq!(targets, keys(services).into_iter().collect());
    assert_eq!(
        text_at(
            &config,
            "alerting.alertmanagers.0.static_configs.0.targets.0"
        ),
        "alertmanager:9093"
    );
}

#[test]
fn grafana_finds_firn_and_its_dashboards() {
    let source = document(&text("deploy/grafana/datasources/firn.yml"));
    assert_eq!(text_at(&source, "datasources.0.type"), "prometheus");
    assert_eq!(text_at(&source, "datasources.0.url"), "http://firn:9090");
    let provider = document(&text("deploy/grafana/dashboards/firn.yml"));
    let path = text_at(&provider, "providers.0.options.path");
    let compose = document(&text("deploy/compose.yml"));
    let grafana = at(&compose, "services.grafana");
    let mounts = mounts(grafana);
    assert!(mounts[&path].join("firn.json").exists());
    assert_eq!(mounts["/etc/grafana/provisioning"], root("deploy/grafana"));
    let home = text_at(
        grafana,
        "environment.GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH",
    );
    assert_eq!(home, format!("{path}/firn.json"));
}
