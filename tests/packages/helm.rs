//! The Helm chart passes Helm's linter, renders, and makes a config that Firn accepts. Tests that
//! need Helm are skipped without it; `tests/install/programs.sh` builds it where Go is installed.

use crate::{at, check_config, document, has, root, succeed, text, text_at};
use firn_yaml::{YamlNode, print};
use std::path::PathBuf;
use std::process::Command;

/// Values that switch on every object that is off by default.
const EVERYTHING: [&str; 8] = [
    "ingress.enabled=true",
    "serviceMonitor.enabled=true",
    "rbac.create=true",
    "service.port=80",
    "extraArgs[0]=--log.level=debug",
    "probes.httpHeaders[0].name=Authorization",
    "probes.httpHeaders[0].value=Bearer 0123456789abcdef",
    "rules.mine.groups[0].name=g",
];

fn helm() -> Option<PathBuf> {
    let built = built();
    let found = if has("helm") {
        Some(PathBuf::from("helm"))
    } else {
        Some(built).filter(|path| path.exists())
    };
    if found.is_none() {
        println!(
            "skipped: no helm in PATH, and none built by tests/install/programs.sh with FIRN_BUILD_HELM=1"
        );
    }
    found
}

/// The objects that the chart makes with these values.
/// The program that `tests/install/programs.sh` builds.
fn built() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    cache.join("firn/helm")
}

fn render(helm: &PathBuf, values: &[&str]) -> Vec<YamlNode> {
    let mut command = Command::new(helm);
    command
        .args(["template", "site", "--namespace", "metrics"])
        // A Helm that `go install` built assumes an old cluster.
        .args(["--kube-version", "1.30.0"])
        .arg(root("deploy/helm/firn"));
    for value in values {
        command.args(["--set", value]);
    }
    let text = succeed(&mut command);
    let parts = text.split("\n---\n").map(document);
    parts.filter(|part| part.get("kind").is_some()).collect()
}

/// The kinds and names, sorted.
fn names(objects: &[YamlNode]) -> Vec<String> {
    let name =
        |one: &YamlNode| format!("{} {}", text_at(one, "kind"), text_at(one, "metadata.name"));
    let mut names: Vec<String> = objects.iter().map(name).collect();
    names.sort();
    names
}

fn find<'a>(objects: &'a [YamlNode], kind: &str, name: &str) -> &'a YamlNode {
    let is_it =
        |one: &&YamlNode| text_at(one, "kind") == kind && text_at(one, "metadata.name") == name;
    objects.iter().find(is_it).unwrap()
}

/// Checks the config and the rules of the chart's config maps.
fn check_files(objects: &[YamlNode]) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("rules")).unwrap();
    let config = at(find(objects, "ConfigMap", "site-firn"), "data");
    let config = config.get("firn.yml").unwrap().text().unwrap();
    let here = dir.path().display().to_string();
    let file = dir.path().join("firn.yml");
    std::fs::write(&file, config.replace("/etc/firn", &here)).unwrap();
    let rules = find(objects, "ConfigMap", "site-firn-rules").get("data");
    if let Some(rules) = rules.and_then(|rules| rules.get("mine.yml")) {
        let file = dir.path().join("rules/mine.yml");
        std::fs::write(file, rules.text().unwrap()).unwrap();
    }
    check_config(&file);
}

#[test]
fn chart_renders_a_server_with_storage_and_services() {
    let Some(helm) = helm() else { return };
    let chart = root("deploy/helm/firn");
    succeed(Command::new(&helm).args(["lint", "--strict"]).arg(&chart));
    let objects = render(&helm, &[]);
    assert_eq!(
        names(&objects),
        [
            "ConfigMap site-firn",
            "ConfigMap site-firn-rules",
            "Service site-firn",
            "Service site-firn-headless",
            "ServiceAccount site-firn",
            "StatefulSet site-firn",
        ]
    );
    check_files(&objects);
    let set = find(&objects, "StatefulSet", "site-firn");
    for (path, want) in [
        ("spec.replicas", "1"),
        ("spec.serviceName", "site-firn-headless"),
        ("spec.volumeClaimTemplates.0.metadata.name", "data"),
        ("spec.template.spec.securityContext.runAsNonRoot", "true"),
    ] {
        assert_eq!(text_at(set, path), want, "{path}");
    }
    let container = at(set, "spec.template.spec.containers.0");
    for (path, want) in [
        ("image", format!("firn:{}", env!("CARGO_PKG_VERSION"))),
        ("ports.0.containerPort", "9090".to_owned()),
        ("livenessProbe.httpGet.path", "/-/healthy".to_owned()),
        ("readinessProbe.httpGet.path", "/-/ready".to_owned()),
        ("securityContext.readOnlyRootFilesystem", "true".to_owned()),
    ] {
        assert_eq!(text_at(container, path), want, "{path}");
    }
    check_arguments(container);
    let service = find(&objects, "Service", "site-firn");
    assert_eq!(text_at(service, "spec.ports.0.port"), "9090");
    let headless = find(&objects, "Service", "site-firn-headless");
    assert_eq!(text_at(headless, "spec.clusterIP"), "None");
}

/// Checks that Firn accepts the flags of a container. A missing config ends the start after it
/// parsed the flags.
fn check_arguments(container: &YamlNode) {
    let arguments = at(container, "args").items();
    let arguments: Vec<&str> = arguments.iter().map(|one| one.text().unwrap()).collect();
    let mut start = crate::harness::server::firn();
    start
        .args(&arguments)
        .args(["--config", "/nonexistent.yml"]);
    let said = crate::output(&mut start).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("load config /nonexistent.yml"), "{said}");
}

#[test]
fn chart_with_everything_on_renders() {
    let Some(helm) = helm() else { return };
    let objects = render(&helm, &EVERYTHING);
    let names = names(&objects);
    for want in [
        "ClusterRole metrics-site-firn",
        "ClusterRoleBinding metrics-site-firn",
        "Ingress site-firn",
        "ServiceMonitor site-firn",
    ] {
        assert!(names.iter().any(|name| name == want), "{names:?}");
    }
    check_files(&objects);
    let set = find(&objects, "StatefulSet", "site-firn");
    let container = at(set, "spec.template.spec.containers.0");
    check_arguments(container);
    assert_eq!(
        text_at(container, "readinessProbe.httpGet.httpHeaders.0.name"),
        "Authorization"
    );
    let objects = render(&helm, &["persistence.enabled=false"]);
    let set = find(&objects, "StatefulSet", "site-firn");
    assert!(at(set, "spec").get("volumeClaimTemplates").is_none());
    let mut wrong = Command::new(&helm);
    let wrong = wrong.arg("template").arg(root("deploy/helm/firn"));
    let wrong = wrong.args(["--set", "service.prot=1"]);
    let said = String::from_utf8(crate::output(wrong).stderr).unwrap();
    assert!(said.contains("'prot' not allowed"), "{said}");
}

#[test]
fn chart_without_helm_has_this_version_and_a_good_config() {
    let chart = document(&text("deploy/helm/firn/Chart.yaml"));
    assert_eq!(text_at(&chart, "appVersion"), env!("CARGO_PKG_VERSION"));
    let values = document(&text("deploy/helm/firn/values.yaml"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("firn.yml");
    std::fs::write(&file, print(at(&values, "config"))).unwrap();
    check_config(&file);
    let schema = text("deploy/helm/firn/values.schema.json");
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let known = schema["properties"].as_object().unwrap();
    let firn_yaml::YamlValue::Map(entries) = &values.value else {
        panic!("values are a mapping");
    };
    for entry in entries {
        assert!(known.contains_key(&entry.key), "no schema of {}", entry.key);
    }
}
