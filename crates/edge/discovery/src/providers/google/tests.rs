//! Tests of Compute Engine discovery and Google credentials against stub servers that follow
//! Google's documentation.

use super::credentials::GoogleAccount;
use super::gce::GceSettings;
use super::*;
use crate::discover::Refresh;
use crate::environment::Variables;
use crate::stub::{
    ManualRefresh, StubRequest, StubResponse, StubRoutes, StubServer, format_targets,
};
use firn_model::env::sim::SimClock;
use std::sync::Arc;
use std::time::Duration;

const SCOPE: &str = "https://www.googleapis.com/auth/compute.readonly";
const LIST: &str = "/compute/v1/projects/p/zones/z/instances?alt=json&prettyPrint=false\
                    &filter=labels.a+eq+b";
const TOKEN: &str = "/computeMetadata/v1/instance/service-accounts/default/token\
                     ?scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcompute.readonly";

const INSTANCES: &str = r#"{"kind": "compute#instanceList", "items": [
 {"id": "4611686018427387905", "name": "one", "status": "RUNNING", "zone": "https://x/zones/z",
  "machineType": "https://x/e2-small", "tags": {"items": ["http", "https"], "fingerprint": "f"},
  "metadata": {"items": [{"key": "a-b", "value": "c"}, {"key": "d"}]}, "labels": {"e-f": "g"},
  "networkInterfaces": [
    {"name": "nic0", "network": "https://x/default", "subnetwork": "https://x/sub",
     "networkIP": "10.128.0.2", "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "natIP": "34.1.1.1"}]},
    {"name": "nic1", "networkIP": "10.129.0.2"}]},
 {"id": "2", "networkInterfaces": []}], "nextPageToken": "n="}"#;

fn settings() -> GceSettings {
    GceSettings {
        project: "p".into(),
        zone: "z".into(),
        filter: "labels.a eq b".into(),
        tag_separator: ",".into(),
        port: 80,
        refresh: Duration::from_secs(60),
    }
}

fn variables(pairs: &[(&'static str, String)]) -> Variables {
    let pairs = pairs.to_vec();
    Arc::new(move |name| {
        let found = pairs.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    })
}

#[tokio::test]
async fn gce_instances_become_targets() {
    let token = r#"{"access_token": "tok", "expires_in": 3599, "token_type": "Bearer"}"#;
    let rest = r#"{"items": [{"id": "3", "networkInterfaces": [{"networkIP": "10.0.0.3"}]}]}"#;
    let answers = StubRoutes::start(&[
        (TOKEN, token),
        (LIST, INSTANCES),
        (&format!("{LIST}&pageToken=n%3D"), rest),
    ])
    .await;
    let host = answers.url().trim_start_matches("http://").to_owned();
    let machine = variables(&[("GCE_METADATA_HOST", host)]);
    let account = GoogleAccount::with_variables(SCOPE, None, machine);
    let clock = Arc::new(SimClock::default());
    let instances =
        gce::GceDiscovery::with_endpoint(answers.url(), &settings(), 1 << 20, account, clock);
    let mut instances = ManualRefresh::new(instances);
    let want = [
        "10.128.0.2:80 gce_instance_id=4611686018427387905 gce_instance_name=one \
         gce_instance_status=RUNNING gce_interface_ipv4_nic0=10.128.0.2 \
         gce_interface_ipv4_nic1=10.129.0.2 gce_label_e_f=g \
         gce_machine_type=https://x/e2-small gce_metadata_a_b=c \
         gce_network=https://x/default gce_private_ip=10.128.0.2 gce_project=p \
         gce_public_ip=34.1.1.1 gce_subnetwork=https://x/sub gce_tags=,http,https, \
         gce_zone=https://x/zones/z",
        "10.0.0.3:80 gce_instance_id=3 gce_interface_ipv4_=10.0.0.3 gce_private_ip=10.0.0.3 \
         gce_project=p",
    ];
    assert_eq!(instances.refresh_targets().await, want);
    assert_eq!(instances.refresh_targets().await, want);
    let asked = answers.stub.received_requests();
    assert_eq!(asked.iter().filter(|a| a.path == TOKEN).count(), 1);
    assert_eq!(asked[0].headers["metadata-flavor"], "Google");
    assert_eq!(asked[1].headers["authorization"], "Bearer tok");
    instances.check_targets_kept(&answers, LIST).await;
    answers.set_response(LIST, 200, "{}");
    assert_eq!(instances.refresh_targets().await, [""; 0]);
}

#[tokio::test]
async fn tokens_are_bought_with_the_credentials_that_there_are() {
    let stub = StubServer::start(|asked: StubRequest| async move {
        match asked.path.as_str() {
            "/token" => {
                StubResponse::with_status(200, r#"{"access_token": "t", "expires_in": 3600}"#)
            }
            _ => StubResponse::with_status(200, "{}"),
        }
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, value: serde_json::Value| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, value.to_string()).unwrap();
        path
    };
    let uri = format!("{}/token", stub.url);
    let pem = include_str!("../../../../../lib/http_client/src/tests/tls/signer.pem");
    let service = file(
        "service.json",
        serde_json::json!({"type": "service_account", "client_email": "e", "private_key_id": "k",
            "private_key": pem, "token_uri": uri}),
    );
    let user = serde_json::json!({"type": "authorized_user", "client_id": "i",
        "client_secret": "s", "refresh_token": "r", "token_uri": uri});
    file(
        ".config/gcloud/application_default_credentials.json",
        user.clone(),
    );
    let user = file("user.json", user);
    let other = file(
        "other.json",
        serde_json::json!({"type": "external_account"}),
    );
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let named = |path| vec![("GOOGLE_APPLICATION_CREDENTIALS", text(path))];
    let refresh = "client_id=i&client_secret=s&grant_type=refresh_token&refresh_token=r";
    let none = "google: could not find default credentials";
    let spoken = "credentials of the type";
    for (file, environment, want) in [
        (Some(service.clone()), named(&other), Ok("assertion=eyJ")),
        (None, named(&service), Ok("assertion=eyJ")),
        (None, named(&user), Ok(refresh)),
        (None, vec![("HOME", text(dir.path()))], Ok(refresh)),
        (None, named(&other), Err(spoken)),
        (Some(user.clone()), vec![], Err(spoken)),
        (
            None,
            vec![("GCE_METADATA_HOST", "127.0.0.1:1".into())],
            Err(none),
        ),
    ] {
        let account = GoogleAccount::with_variables(SCOPE, file, variables(&environment));
        let clock = Arc::new(SimClock::default());
        let mut source =
            gce::GceDiscovery::with_endpoint(&stub.url, &settings(), 1 << 20, account, clock);
        match (source.refresh().await, want) {
            (Ok(groups), Ok(want)) => {
                assert!(format_targets(&groups).is_empty());
                let asked = stub.received_requests();
                let bought = asked.iter().rfind(|asked| asked.path == "/token").unwrap();
                assert!(bought.body.starts_with(want), "{}", bought.body);
            }
            (Err(e), Err(want)) => assert!(e.message.contains(want), "{e}"),
            (got, want) => panic!("{got:?} {want:?}"),
        }
    }
}
