//! Tests of ECS, ElastiCache, MSK and RDS discovery against stub servers that respond like AWS.

use super::ecs::EcsDiscovery;
use super::elasticache::ElastiCacheDiscovery;
use super::msk::MskDiscovery;
use super::rds::RdsDiscovery;
use super::tests::settings;
use super::*;
use crate::environment::Variables;
use crate::stub::{ManualRefresh, StubRequest, StubResponse, StubServer};
use firn_model::env::sim::SimClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Starts a stub that responds with `answer` while `status` is 200, and with the bare status
/// otherwise.
async fn stub<F>(status: &Arc<AtomicU16>, answer: F) -> StubServer
where
    F: Fn(&StubRequest) -> Option<String> + Clone + Send + Sync + 'static,
{
    let status = status.clone();
    StubServer::start(move |asked: StubRequest| {
        let reply = match (status.load(Ordering::Relaxed), answer(&asked)) {
            (200, Some(text)) => StubResponse::with_status(200, &text),
            (200, None) => {
                StubResponse::with_status(400, &format!("{} {}", asked.path, asked.body))
            }
            (status, _) => StubResponse::with_status(status, "no"),
        };
        async move { reply }
    })
    .await
}

/// Checks that the targets remain while the service returns errors.
async fn stays(followed: &mut ManualRefresh, status: &AtomicU16, want: &[String]) {
    for code in [400, 503, 200] {
        status.store(code, Ordering::Relaxed);
        assert_eq!(followed.refresh_targets().await, want, "{code}");
    }
}

fn operation(asked: &StubRequest) -> String {
    let target = asked.headers.get("x-amz-target");
    let target = target.map_or("", |target| target.to_str().unwrap());
    target.rsplit('.').next().unwrap_or_default().to_owned()
}

fn ecs(asked: &StubRequest) -> Option<String> {
    let text = match operation(asked).as_str() {
        "ListClusters" if asked.body.contains("more") => r#"{"clusterArns": ["c2"]}"#,
        "ListClusters" => r#"{"clusterArns": ["c1"], "nextToken": "more"}"#,
        "DescribeClusters" => {
            r#"{"clusters": [{"clusterArn": "c1", "clusterName": "one",
              "tags": [{"key": "a-b", "value": "c"}]}, {"clusterArn": "c2"}]}"#
        }
        "ListTasks" if asked.body.contains("c2") => r#"{"taskArns": []}"#,
        "ListTasks" => r#"{"taskArns": ["t1", "t2", "t3"]}"#,
        "ListServices" => r#"{"serviceArns": ["s1"]}"#,
        "DescribeServices" => {
            r#"{"services": [{"serviceArn": "s1", "serviceName": "web", "status": "ACTIVE",
              "tags": [{"key": "team", "value": "x"}]}]}"#
        }
        "DescribeTasks" => {
            r#"{"tasks": [{"taskArn": "t1", "taskDefinitionArn": "d1", "group": "service:web",
              "launchType": "FARGATE", "healthStatus": "HEALTHY", "availabilityZone": "eu-1a",
              "desiredStatus": "RUNNING", "lastStatus": "RUNNING", "platformFamily": "Linux",
              "platformVersion": "1.4.0", "attachments": [{"type": "ElasticNetworkInterface",
                "details": [{"name": "subnetId", "value": "sn1"},
                  {"name": "networkInterfaceId", "value": "eni1"},
                  {"name": "privateIPv4Address", "value": "10.0.0.1"}]}],
              "tags": [{"key": "t", "value": "u"}]},
             {"taskArn": "t2", "group": "family:x", "launchType": "EC2",
              "healthStatus": "UNKNOWN", "containerInstanceArn": "ci1"},
             {"taskArn": "t3", "group": "family:x", "containerInstanceArn": "gone"}]}"#
        }
        "DescribeContainerInstances" => {
            r#"{"containerInstances": [{"containerInstanceArn": "ci1", "ec2InstanceId": "i-1"}]}"#
        }
        _ if asked.body.starts_with("Action=DescribeInstances") => {
            "<DescribeInstancesResponse><reservationSet><item><instancesSet><item>\
             <instanceId>i-1</instanceId><instanceType>t3.micro</instanceType>\
             <privateIpAddress>10.0.1.1</privateIpAddress><ipAddress>1.2.3.4</ipAddress>\
             <subnetId>sn2</subnetId><tagSet><item><key>k</key><value>v</value></item></tagSet>\
             </item></instancesSet></item></reservationSet></DescribeInstancesResponse>"
        }
        _ if asked.body.starts_with("Action=DescribeNetworkInterfaces") => {
            "<R><networkInterfaceSet><item><networkInterfaceId>eni1</networkInterfaceId>\
             <association><publicIp>5.6.7.8</publicIp></association></item></networkInterfaceSet>\
             </R>"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

#[tokio::test]
async fn ecs_tasks_become_targets() {
    let status = Arc::new(AtomicU16::new(200));
    let stub = stub(&status, ecs).await;
    let url = stub.url.clone();
    let variables: Variables =
        Arc::new(move |name| (name == "AWS_ENDPOINT_URL_EC2").then(|| url.clone()));
    let clock = Arc::new(SimClock::default());
    let ecs = EcsDiscovery::with_variables(&settings(&stub.url), 1 << 20, clock, variables);
    let mut tasks = ManualRefresh::new(ecs);
    let got = tasks.refresh_targets().await;
    assert_eq!(
        got,
        [
            "10.0.0.1:80 ecs_availability_zone=eu-1a ecs_cluster=one ecs_cluster_arn=c1 \
             ecs_desired_status=RUNNING ecs_health_status=HEALTHY ecs_ip_address=10.0.0.1 \
             ecs_last_status=RUNNING ecs_launch_type=FARGATE ecs_network_mode=awsvpc \
             ecs_platform_family=Linux ecs_platform_version=1.4.0 ecs_public_ip=5.6.7.8 \
             ecs_region=eu-1 ecs_service=web ecs_service_arn=s1 ecs_service_status=ACTIVE \
             ecs_subnet_id=sn1 ecs_tag_cluster_a_b=c ecs_tag_service_team=x ecs_tag_task_t=u \
             ecs_task_arn=t1 ecs_task_definition=d1 ecs_task_group=service:web",
            "10.0.1.1:80 ecs_cluster=one ecs_cluster_arn=c1 ecs_container_instance_arn=ci1 \
             ecs_ec2_instance_id=i-1 ecs_ec2_instance_private_ip=10.0.1.1 \
             ecs_ec2_instance_public_ip=1.2.3.4 ecs_ec2_instance_type=t3.micro \
             ecs_health_status=UNKNOWN ecs_ip_address=10.0.1.1 ecs_launch_type=EC2 \
             ecs_network_mode=bridge ecs_public_ip=1.2.3.4 ecs_region=eu-1 ecs_subnet_id=sn2 \
             ecs_tag_cluster_a_b=c ecs_tag_ec2_k=v ecs_task_arn=t2 ecs_task_group=family:x",
        ]
    );
    stays(&mut tasks, &status, &got).await;
    let asked = stub.received_requests();
    let of = |asked: &StubRequest| asked.headers["authorization"].to_str().unwrap().to_owned();
    assert!(of(&asked[0]).contains("/eu-1/ecs/aws4_request"));
    let ec2 = asked
        .iter()
        .find(|asked| asked.body.starts_with("Action="))
        .unwrap();
    assert!(of(ec2).contains("/eu-1/ec2/aws4_request"));
}

fn msk(asked: &StubRequest) -> Option<String> {
    let cluster = r#"{"clusterArn": "arn:c/1", "clusterName": "k", "clusterType": "PROVISIONED",
      "currentVersion": "K1", "state": "ACTIVE", "tags": {"a-b": "c"}, "provisioned": {
        "currentBrokerSoftwareInfo": {"kafkaVersion": "3.6.0", "configurationArn": "conf",
          "configurationRevision": 2},
        "openMonitoring": {"prometheus": {"jmxExporter": {"enabledInBroker": true},
          "nodeExporter": {"enabledInBroker": false}}}}}"#;
    let list = "/api/v2/clusters?clusterTypeFilter=PROVISIONED&maxResults=100";
    let nodes = "/v1/clusters/arn%3Ac%2F1/nodes?maxResults=100";
    let path = asked.path.as_str();
    Some(match path {
        _ if path == list => {
            format!(r#"{{"clusterInfoList": [{cluster}], "nextToken": "n="}}"#)
        }
        _ if path == format!("{list}&nextToken=n%3D") => r#"{"clusterInfoList": []}"#.into(),
        _ if path == nodes => r#"{"nodeInfoList": [
          {"nodeARN": "n1", "addedToClusterTime": "2024-01-02T03:04:05Z",
           "instanceType": "m5.large", "nodeType": "BROKER", "brokerNodeInfo": {
             "attachedENIId": "eni-1", "brokerId": 1.0, "clientSubnet": "sn",
             "clientVpcIpAddress": "10.0.0.1", "endpoints": ["b-1.k", "b-1b.k"]}},
          {"nodeARN": "n2", "controllerNodeInfo": {"endpoints": ["c-1.k"]}},
          {"nodeARN": "n3"}]}"#
            .into(),
        "/api/v2/clusters/arn%3Ac%2F1" => format!(r#"{{"clusterInfo": {cluster}}}"#),
        "/api/v2/clusters/other" => r#"{"clusterInfo": {"clusterType": "SERVERLESS"}}"#.into(),
        _ => return None,
    })
}

#[tokio::test]
async fn msk_nodes_become_targets() {
    let status = Arc::new(AtomicU16::new(200));
    let stub = stub(&status, msk).await;
    let clock = Arc::new(SimClock::default());
    let mut nodes = ManualRefresh::new(MskDiscovery::new(
        &settings(&stub.url),
        1 << 20,
        clock.clone(),
    ));
    let got = nodes.refresh_targets().await;
    let common = "msk_cluster_arn=arn:c/1 msk_cluster_configuration_arn=conf \
                  msk_cluster_configuration_revision=2 msk_cluster_jmx_exporter_enabled=true \
                  msk_cluster_kafka_version=3.6.0 msk_cluster_name=k msk_cluster_state=ACTIVE \
                  msk_cluster_tag_a_b=c msk_cluster_type=PROVISIONED msk_cluster_version=K1";
    let broker = |host: &str, index: usize| {
        format!(
            "{host}:80 msk_broker_client_subnet=sn msk_broker_client_vpc_ip=10.0.0.1 \
             msk_broker_endpoint_index={index} msk_broker_id=1 \
             msk_broker_node_exporter_enabled=false {common} \
             msk_node_added_time=2024-01-02T03:04:05Z msk_node_arn=n1 \
             msk_node_attached_eni=eni-1 msk_node_instance_type=m5.large msk_node_type=BROKER"
        )
    };
    let controller = format!(
        "c-1.k:80 {common} msk_controller_endpoint_index=0 msk_node_arn=n2 \
         msk_node_type=CONTROLLER"
    );
    assert_eq!(got, [broker("b-1.k", 0), broker("b-1b.k", 1), controller]);
    stays(&mut nodes, &status, &got).await;
    let named = AwsSettings {
        clusters: vec!["arn:c/1".into(), "other".into()],
        ..settings(&stub.url)
    };
    let mut nodes = ManualRefresh::new(MskDiscovery::new(&named, 1 << 20, clock));
    assert_eq!(nodes.refresh_targets().await, got);
}

fn rds(asked: &StubRequest) -> Option<String> {
    let cluster = "<DBCluster><DBClusterArn>arn:c</DBClusterArn><DBClusterIdentifier>c\
                   </DBClusterIdentifier><ClusterCreateTime>2024-01-02T03:04:05.678Z\
                   </ClusterCreateTime><MultiAZ>true</MultiAZ><Port>3306</Port><DBClusterMembers>\
                   <DBClusterMember><DBInstanceIdentifier>i1</DBInstanceIdentifier>\
                   <IsClusterWriter>true</IsClusterWriter></DBClusterMember></DBClusterMembers>\
                   <TagList><Tag><Key>a-b</Key><Value>c</Value></Tag></TagList></DBCluster>";
    let clusters = |more: &str| {
        format!(
            "<DescribeDBClustersResponse><DescribeDBClustersResult><DBClusters>{cluster}\
             </DBClusters>{more}</DescribeDBClustersResult></DescribeDBClustersResponse>"
        )
    };
    let empty = "<DescribeDBClustersResponse><DescribeDBClustersResult><DBClusters/>\
                 </DescribeDBClustersResult></DescribeDBClustersResponse>";
    let all = "Action=DescribeDBClusters&Version=2014-10-31&MaxRecords=100";
    let instances = "Action=DescribeDBInstances&Version=2014-10-31&MaxRecords=100\
                     &Filters.Filter.1.Name=db-cluster-id&Filters.Filter.1.Values.Value.1=arn%3Ac\
                     &Filters.Filter.2.Name=tag%3Aa&Filters.Filter.2.Values.Value.1=b\
                     &Filters.Filter.2.Values.Value.2=c";
    let body = asked.body.as_str();
    Some(match body {
        _ if body == all => clusters("<Marker>m</Marker>"),
        _ if body == format!("{all}&Marker=m") => empty.into(),
        _ if body == format!("{all}&DBClusterIdentifier=c") => clusters(""),
        _ if body == instances => {
            "<DescribeDBInstancesResponse><DescribeDBInstancesResult><DBInstances><DBInstance>\
             <DBInstanceIdentifier>i1</DBInstanceIdentifier><Engine>aurora-mysql</Engine>\
             <Endpoint><Address>i1.rds</Address><Port>3306</Port></Endpoint>\
             <DBSubnetGroup><DBSubnetGroupName>sg</DBSubnetGroupName></DBSubnetGroup>\
             <LatestRestorableTime>2024-01-02T03:04:05Z</LatestRestorableTime>\
             <TagList><Tag><Key>k</Key><Value>v</Value></Tag></TagList></DBInstance>\
             <DBInstance><DBInstanceIdentifier>i2</DBInstanceIdentifier></DBInstance>\
             </DBInstances></DescribeDBInstancesResult></DescribeDBInstancesResponse>"
                .into()
        }
        _ => return None,
    })
}

#[tokio::test]
async fn rds_instances_become_targets() {
    let status = Arc::new(AtomicU16::new(200));
    let stub = stub(&status, rds).await;
    let clock = Arc::new(SimClock::default());
    let mut instances = ManualRefresh::new(RdsDiscovery::new(
        &settings(&stub.url),
        1 << 20,
        clock.clone(),
    ));
    let got = instances.refresh_targets().await;
    let cluster = "rds_cluster_arn=arn:c rds_cluster_cluster_create_time=2024-01-02T03:04:05Z \
                   rds_cluster_identifier=c rds_cluster_multi_az=true rds_cluster_port=3306 \
                   rds_cluster_tag_a_b=c";
    assert_eq!(
        got,
        [
            format!(
                "i1.rds:80 {cluster} rds_instance_endpoint_address=i1.rds \
                 rds_instance_endpoint_port=3306 rds_instance_engine=aurora-mysql \
                 rds_instance_identifier=i1 rds_instance_is_cluster_writer=true \
                 rds_instance_latest_restorable_time=2024-01-02T03:04:05Z \
                 rds_instance_subnet_group=sg rds_instance_tag_k=v"
            ),
            format!(" {cluster} rds_instance_identifier=i2"),
        ]
    );
    stays(&mut instances, &status, &got).await;
    let named = AwsSettings {
        clusters: vec!["c".into()],
        ..settings(&stub.url)
    };
    let mut instances = ManualRefresh::new(RdsDiscovery::new(&named, 1 << 20, clock));
    assert_eq!(instances.refresh_targets().await, got);
}

fn elasticache(asked: &StubRequest) -> Option<String> {
    let of = |action: &str, inner: &str| {
        format!("<{action}Response><{action}Result>{inner}</{action}Result></{action}Response>")
    };
    let body = asked.body.as_str();
    let serverless = "Action=DescribeServerlessCaches&Version=2015-02-02&MaxResults=50";
    let clusters = "Action=DescribeCacheClusters&Version=2015-02-02&MaxRecords=100\
                    &ShowCacheNodeInfo=true";
    let tags = "Action=ListTagsForResource&Version=2015-02-02&ResourceName=";
    let cluster = "<CacheClusters><CacheCluster><ARN>arn:n</ARN><CacheClusterId>id\
                   </CacheClusterId><Engine>redis</Engine><PendingModifiedValues>\
                   <CacheNodeIdsToRemove><CacheNodeId>0002</CacheNodeId><CacheNodeId>0003\
                   </CacheNodeId></CacheNodeIdsToRemove></PendingModifiedValues>\
                   <SecurityGroups><member><SecurityGroupId>sg</SecurityGroupId><Status>active\
                   </Status></member></SecurityGroups><LogDeliveryConfigurations>\
                   <LogDeliveryConfiguration><LogType>slow-log</LogType><DestinationDetails>\
                   <CloudWatchLogsDetails><LogGroup>lg</LogGroup></CloudWatchLogsDetails>\
                   </DestinationDetails></LogDeliveryConfiguration></LogDeliveryConfigurations>\
                   <CacheNodes><CacheNode><CacheNodeId>0001</CacheNodeId><Endpoint><Address>n1.c\
                   </Address><Port>6379</Port></Endpoint></CacheNode></CacheNodes></CacheCluster>\
                   </CacheClusters>";
    let cache = "<ServerlessCaches><member><ARN>arn:s</ARN><ServerlessCacheName>s\
                 </ServerlessCacheName><CreateTime>2024-01-02T03:04:05.1Z</CreateTime>\
                 <Endpoint><Address>s.c</Address><Port>6380</Port></Endpoint><SubnetIds>\
                 <SubnetId>sn1</SubnetId><SubnetId>sn2</SubnetId></SubnetIds><CacheUsageLimits>\
                 <DataStorage><Maximum>10</Maximum><Unit>GB</Unit></DataStorage>\
                 </CacheUsageLimits></member></ServerlessCaches>";
    Some(match body {
        _ if body == serverless => of(
            "DescribeServerlessCaches",
            &format!("{cache}<NextToken>t</NextToken>"),
        ),
        _ if body == format!("{serverless}&NextToken=t") => {
            of("DescribeServerlessCaches", "<ServerlessCaches/>")
        }
        _ if body == format!("{serverless}&ServerlessCacheName=s") => {
            of("DescribeServerlessCaches", cache)
        }
        _ if body == clusters || body == format!("{clusters}&CacheClusterId=id") => {
            of("DescribeCacheClusters", cluster)
        }
        _ if body.starts_with(tags) => of(
            "ListTagsForResource",
            "<TagList><Tag><Key>a-b</Key><Value>c</Value></Tag></TagList>",
        ),
        _ => return None,
    })
}

#[tokio::test]
async fn elasticache_caches_and_nodes_become_targets() {
    let status = Arc::new(AtomicU16::new(200));
    let stub = stub(&status, elasticache).await;
    let clock = Arc::new(SimClock::default());
    let caches = ElastiCacheDiscovery::new(&settings(&stub.url), 1 << 20, clock.clone());
    let mut caches = ManualRefresh::new(caches);
    let got = caches.refresh_targets().await;
    // Upstream puts no separator between these prefixes and the rest of the label name.
    let of_limit = "elasticache_serverless_cache_cache_usage_limit_data_storage";
    let of_logs = "elasticache_cache_cluster_log_delivery_configuration";
    let of_group = "elasticache_cache_cluster_security_group_membership";
    assert_eq!(
        got,
        [
            format!(
                "s.c:6380 elasticache_deployment_option=serverless \
                 elasticache_serverless_cache_arn=arn:s {of_limit}maximum=10 \
                 {of_limit}unit=GB \
                 elasticache_serverless_cache_create_time=2024-01-02T03:04:05Z \
                 elasticache_serverless_cache_endpoint_address=s.c \
                 elasticache_serverless_cache_endpoint_port=6380 \
                 elasticache_serverless_cache_name=s \
                 elasticache_serverless_cache_subnet_id_0=sn1 \
                 elasticache_serverless_cache_subnet_id_1=sn2 \
                 elasticache_serverless_cache_tag_a_b=c"
            ),
            format!(
                "n1.c:6379 elasticache_cache_cluster_arn=arn:n \
                 elasticache_cache_cluster_cache_cluster_id=id \
                 elasticache_cache_cluster_engine=redis {of_logs}_log_group_0=lg \
                 {of_logs}_log_type_0=slow-log \
                 elasticache_cache_cluster_node_endpoint_address=n1.c \
                 elasticache_cache_cluster_node_endpoint_port=6379 \
                 elasticache_cache_cluster_node_id=0001 \
                 elasticache_cache_cluster_pending_modified_values_cache_node_ids_to_remove=\
                 0002,0003 {of_group}_id_0=sg {of_group}_status_0=active \
                 elasticache_cache_cluster_tag_a_b=c elasticache_deployment_option=node"
            ),
        ]
    );
    stays(&mut caches, &status, &got).await;
    let arn = |kind: &str, name: &str| format!("arn:aws:elasticache:eu-1:1:{kind}:{name}");
    let named = AwsSettings {
        clusters: vec![
            arn("serverlesscache", "s"),
            arn("replicationgroup", "id"),
            "nonsense".into(),
        ],
        ..settings(&stub.url)
    };
    let mut caches = ManualRefresh::new(ElastiCacheDiscovery::new(&named, 1 << 20, clock));
    assert_eq!(caches.refresh_targets().await, got);
}
