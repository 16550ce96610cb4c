//! Tests of EC2, Lightsail and the credential sources against stub servers on the loopback.

use super::ec2::Ec2Discovery;
use super::lightsail::LightsailDiscovery;
use super::*;
use crate::discover::Refresh;
use crate::environment::Variables;
use crate::providers::docker::DockerFilter;
use crate::stub::{StubRequest, StubResponse, StubServer, format_targets};
use firn_http_client::HttpSettings;
use firn_model::env::sim::SimClock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const ZONES: &str = r#"<DescribeAvailabilityZonesResponse><availabilityZoneInfo>
<item><zoneName>eu-1a</zoneName><zoneId>az1</zoneId></item><item><zoneName>x</zoneName></item>
</availabilityZoneInfo></DescribeAvailabilityZonesResponse>"#;

const FIRST: &str = r#"<?xml version="1.0"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
<reservationSet><item><ownerId>123</ownerId><instancesSet>
<item><instanceId>i-1</instanceId><imageId>ami-1</imageId>
<instanceState><code>16</code><name>running</name></instanceState>
<privateDnsName>p.internal</privateDnsName><dnsName>pub.aws</dnsName>
<instanceType>t3.micro</instanceType><placement><availabilityZone>eu-1a</availabilityZone>
</placement><subnetId>s-1</subnetId><vpcId>vpc-1</vpcId>
<privateIpAddress>10.0.0.1</privateIpAddress><ipAddress>1.2.3.4</ipAddress>
<architecture>x86_64</architecture><instanceLifecycle>spot</instanceLifecycle>
<tagSet><item><key>Name-x</key><value>web</value></item></tagSet>
<networkInterfaceSet>
<item><subnetId>s-1</subnetId><attachment><deviceIndex>1</deviceIndex></attachment>
<ipv6AddressesSet><item><ipv6Address>fd00::1</ipv6Address><isPrimaryIpv6>true</isPrimaryIpv6>
</item></ipv6AddressesSet></item>
<item><subnetId>s-1</subnetId></item><item><subnetId>s-2</subnetId></item>
</networkInterfaceSet></item>
<item><instanceId>i-2</instanceId></item>
</instancesSet></item></reservationSet><nextToken>more+</nextToken></DescribeInstancesResponse>"#;

const SECOND: &str = r#"<DescribeInstancesResponse><reservationSet><item><instancesSet>
<item><instanceId>i-3</instanceId><instanceState><name>stopped</name></instanceState>
<privateIpAddress>10.0.0.3</privateIpAddress></item>
</instancesSet></item></reservationSet></DescribeInstancesResponse>"#;

const KEYS: &str = r#"<R><AssumeRoleResult><Credentials><AccessKeyId>ROLE</AccessKeyId>
<SecretAccessKey>k</SecretAccessKey><SessionToken>sess</SessionToken></Credentials>
</AssumeRoleResult></R>"#;

async fn answer(asked: StubRequest) -> StubResponse {
    let body = asked.body.as_str();
    if asked.path.starts_with("/latest/api/token") {
        return StubResponse::with_status(200, "imds");
    }
    if asked.path.ends_with("/security-credentials/") {
        return StubResponse::with_status(200, "role-1");
    }
    if asked.path.ends_with("/security-credentials/role-1") {
        let keys = r#"{"AccessKeyId": "MACHINE", "SecretAccessKey": "k", "Token": "t"}"#;
        return StubResponse::with_status(200, keys);
    }
    StubResponse::with_status(
        200,
        match body {
            _ if body.starts_with("Action=AssumeRole") => KEYS,
            _ if body.starts_with("Action=DescribeAvailabilityZones") => ZONES,
            _ if body.contains("NextToken=more%2B") => SECOND,
            _ if body.starts_with("Action=DescribeInstances") => FIRST,
            _ => return StubResponse::with_status(400, "<Response>what?</Response>"),
        },
    )
}

pub(super) fn settings(endpoint: &str) -> AwsSettings {
    AwsSettings {
        region: "eu-1".into(),
        endpoint: endpoint.to_owned(),
        access_key: "AKID".into(),
        secret_key: "s3cret".into(),
        profile: String::new(),
        role_arn: String::new(),
        external_id: String::new(),
        port: 80,
        filters: vec![DockerFilter {
            name: "tag:a".into(),
            values: vec!["b".into(), "c".into()],
        }],
        clusters: Vec::new(),
        concurrency: 2,
        refresh: Duration::from_secs(60),
        client: HttpSettings::default(),
    }
}

fn ec2(settings: &AwsSettings, variables: &[(&str, &str)]) -> Ec2Discovery {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let variables: BTreeMap<String, String> = variables.iter().map(owned).collect();
    let read: Variables = Arc::new(move |name| variables.get(name).cloned());
    Ec2Discovery::with_variables(settings, 1 << 20, Arc::new(SimClock::default()), read)
}

#[tokio::test]
async fn instances_of_all_pages_become_targets() {
    let stub = StubServer::start(answer).await;
    let mut ec2 = ec2(&settings(&stub.url), &[]);
    assert_eq!(
        format_targets(&ec2.refresh().await.unwrap()),
        [
            "10.0.0.1:80 ec2_ami=ami-1 ec2_architecture=x86_64 ec2_availability_zone=eu-1a \
             ec2_availability_zone_id=az1 ec2_default_ipv6_address=fd00::1 ec2_instance_id=i-1 \
             ec2_instance_lifecycle=spot ec2_instance_state=running ec2_instance_type=t3.micro \
             ec2_ipv6_addresses=,fd00::1, ec2_owner_id=123 \
             ec2_primary_ipv6_addresses=,,fd00::1, ec2_primary_subnet_id=s-1 \
             ec2_private_dns_name=p.internal ec2_private_ip=10.0.0.1 \
             ec2_public_dns_name=pub.aws ec2_public_ip=1.2.3.4 ec2_region=eu-1 \
             ec2_subnet_id=,s-1,s-2, ec2_tag_Name_x=web ec2_vpc_id=vpc-1",
            "10.0.0.3:80 ec2_instance_id=i-3 ec2_instance_state=stopped \
             ec2_private_ip=10.0.0.3 ec2_region=eu-1",
        ]
    );
    let asked = stub.received_requests();
    let bodies: Vec<&str> = asked.iter().map(|a| a.body.as_str()).collect();
    let list = "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Aa&\
                Filter.1.Value.1=b&Filter.1.Value.2=c";
    assert_eq!(
        bodies[0],
        "Action=DescribeAvailabilityZones&Version=2016-11-15"
    );
    assert_eq!(bodies[1], list);
    assert_eq!(bodies[2], format!("{list}&NextToken=more%2B"));
    let signature = asked[1].headers["authorization"].to_str().unwrap();
    let want = "AWS4-HMAC-SHA256 Credential=AKID/19700101/eu-1/ec2/aws4_request, \
                SignedHeaders=content-type;host;x-amz-date, Signature=";
    assert!(signature.starts_with(want), "{signature}");
}

#[tokio::test]
async fn keys_come_from_where_the_sdk_looks_in_its_order() {
    let stub = StubServer::start(answer).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let text = "[default]\naws_access_key_id = FILE\naws_secret_access_key = k\n\
                [profile other]\naws_access_key_id=OTHER\naws_secret_access_key=k\nregion=r9\n";
    std::fs::write(&file, text).unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "jwt\n").unwrap();
    let path = file.to_str().unwrap();
    let files = [
        ("AWS_SHARED_CREDENTIALS_FILE", path),
        ("AWS_CONFIG_FILE", path),
    ];
    let environment = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "k")];
    let workload = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:r"),
        ("AWS_ENDPOINT_URL_STS", &stub.url),
    ];
    let machine = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", stub.url.as_str())];
    let without = AwsSettings {
        access_key: String::new(),
        ..settings(&stub.url)
    };
    let profile = AwsSettings {
        profile: "other".into(),
        region: String::new(),
        ..without.clone()
    };
    let role = AwsSettings {
        role_arn: "arn:x".into(),
        external_id: "e".into(),
        ..settings(&stub.url)
    };
    let sts = [("AWS_ENDPOINT_URL_STS", stub.url.as_str())];
    for (settings, variables, want) in [
        (
            &without,
            [&environment[..], &files].concat(),
            "ENV/19700101/eu-1",
        ),
        (&without, files.to_vec(), "FILE/19700101/eu-1"),
        (
            &profile,
            [&environment[..], &files].concat(),
            "OTHER/19700101/r9",
        ),
        (&without, workload.to_vec(), "ROLE/19700101/eu-1"),
        (&without, machine.to_vec(), "MACHINE/19700101/eu-1"),
        (&role, sts.to_vec(), "ROLE/19700101/eu-1"),
    ] {
        ec2(settings, &variables).refresh().await.unwrap();
        let last = stub.received_requests().pop().unwrap();
        let signature = last.headers["authorization"].to_str().unwrap();
        let want = format!("AWS4-HMAC-SHA256 Credential={want}/ec2/aws4_request");
        assert!(signature.starts_with(&want), "{signature}");
    }
    let bodies: Vec<String> = stub
        .received_requests()
        .into_iter()
        .map(|asked| asked.body)
        .collect();
    let assumed = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Ax&RoleSessionName=firn&\
                   ExternalId=e";
    assert!(bodies.iter().any(|body| body == assumed));
    assert!(
        bodies
            .iter()
            .any(|body| body.ends_with("WebIdentityToken=jwt"))
    );
}

#[tokio::test]
async fn answer_of_failure_says_why() {
    let stub = StubServer::start(|_| async {
        let body = "<Response><Errors><Error><Code>AuthFailure</Code></Error></Errors></Response>";
        StubResponse::with_status(401, body)
    })
    .await;
    let e = ec2(&settings(&stub.url), &[]).refresh().await.unwrap_err();
    let want = "could not describe instances: server returned HTTP status 401 Unauthorized: \
                <Response><Errors><Error><Code>AuthFailure";
    assert!(e.message.starts_with(want), "{e}");
}

#[tokio::test]
async fn lightsail_instances_become_targets() {
    let stub = StubServer::start(|_| async {
        let body = r#"{"instances": [{"name": "l1", "supportCode": "sc", "blueprintId": "deb",
          "bundleId": "nano", "location": {"availabilityZone": "eu-1a"},
          "privateIpAddress": "10.0.0.1", "publicIpAddress": "1.2.3.4",
          "ipv6Addresses": ["fd00::1"], "state": {"code": 16, "name": "running"},
          "tags": [{"key": "a-b", "value": "c"}]}, {"name": "no address"}]}"#;
        StubResponse::with_status(200, body)
    })
    .await;
    let clock = Arc::new(SimClock::default());
    let mut lightsail = LightsailDiscovery::new(&settings(&stub.url), 1 << 20, clock);
    assert_eq!(
        format_targets(&lightsail.refresh().await.unwrap()),
        [
            "10.0.0.1:80 lightsail_availability_zone=eu-1a lightsail_blueprint_id=deb \
          lightsail_bundle_id=nano lightsail_instance_name=l1 lightsail_instance_state=running \
          lightsail_instance_support_code=sc lightsail_ipv6_addresses=,fd00::1, \
          lightsail_private_ip=10.0.0.1 lightsail_public_ip=1.2.3.4 lightsail_region=eu-1 \
          lightsail_tag_a_b=c"
        ]
    );
    let asked = &stub.received_requests()[0];
    assert_eq!(
        asked.headers["x-amz-target"],
        "Lightsail_20161128.GetInstances"
    );
    let signature = asked.headers["authorization"].to_str().unwrap();
    assert!(signature.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-target,"));
}
