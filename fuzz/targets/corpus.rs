//! The initial inputs of each fuzz target. `seeds` writes them to a directory, and `tests/fuzz` runs each target
//! on them.

#[path = "cluster_seeds.rs"]
mod cluster_seeds;
#[path = "../../crates/core/ingest/src/metadata/file.rs"]
#[allow(dead_code)]
mod file;
#[path = "folder.rs"]
mod folder;
#[path = "../../crates/edge/remote_write/src/queue/bodies/format.rs"]
#[allow(dead_code)]
mod format;
#[path = "peer_seeds.rs"]
mod peer_seeds;
#[path = "tsdb_seeds.rs"]
mod tsdb_seeds;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firn_model::batch::Batch;
use firn_model::columns::SeriesBatch;
use firn_model::env::sim;
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metadata::{MetricMetadata, MetricType};
use firn_model::sample::TimeRange;
use firn_model::tenant::TenantId;
use firn_storage::block::{BlockId, BlockSpec, BlockWriter, MetricMetadataSet};
use firn_storage::ids::SeriesSlot;
use firn_storage::page::{HistogramFamilyHash, LogSpan, PageBuilder, SampleColumns};
use firn_wire::remote_read::{ChunkedResponseBuilder, OutgoingReadRequest, SamplesResponseBuilder};
use firn_wire::{otlp, remote_write, snappy};
use std::path::Path;

/// Returns the frames of a ZooKeeper session: session start, data, children, a change, and the end.
fn zookeeper() -> Vec<u8> {
    let ints =
        |numbers: &[i32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_be_bytes()).collect() };
    let data = br#"{"serviceEndpoint":{"host":"a","port":1},"status":"ALIVE"}"#;
    let frames = [
        [ints(&[0, 10_000, 0, 7, 16]), vec![0; 16]].concat(),
        [&ints(&[1, 0, 9, 0, data.len() as i32])[..], data].concat(),
        [ints(&[2, 0, 9, 0, 2, 1]), b"x".to_vec(), ints(&[0])].concat(),
        [ints(&[-1, 0, 0, 0, 3, 3, 2]), b"/a".to_vec()].concat(),
        ints(&[-2, 0, 0, 0]),
        ints(&[3, 0, 9, -101]),
        ints(&[-1, 0, 0, 0, -1, -112]),
    ];
    let framed = |frame: Vec<u8>| [ints(&[frame.len() as i32]), frame].concat();
    frames.into_iter().flat_map(framed).collect()
}

/// Returns a remote-read request, and responses in both formats.
fn reads() -> [Vec<u8>; 3] {
    let labels = Labels::from_pairs([("__name__", "m"), ("job", "a")]);
    let mut batch = SeriesBatch::default();
    let times: Vec<i64> = (0..200).map(|i| 1_000 * i).collect();
    batch.push(&times, &vec![1.5; 200], &[], []);
    let matchers = [Matcher::new("job", MatchOp::Regex, b"a|b").expect("the pattern is sound")];
    let question = OutgoingReadRequest {
        range: TimeRange::new(0, 100_000),
        matchers: &matchers,
        is_about_series: true,
    };
    let mut message = SamplesResponseBuilder::default();
    message.push(labels.as_ref(), &Labels::empty(), Some(batch.series(0)));
    message.end_query();
    let mut frames = Vec::new();
    let mut writer = ChunkedResponseBuilder::new(100, Labels::empty());
    let pushed = writer.push(&mut frames, 0, labels.as_ref(), batch.series(0));
    pushed.expect("the samples are sound");
    [question.encode(), message.finish(), frames]
}

/// Name of the file of pushed metadata, which the included module requires.
const FILE_NAME: &str = "pushed";

/// Returns frames of the body log, with and without counts of their contents.
fn bodies() -> Vec<u8> {
    let mut out = Vec::new();
    for contents in [None, Some(remote_write::WriteRequestContents::default())] {
        let write = format::ReceivedWrite {
            headers: vec![(0, "application/x-protobuf".into()), (2, "0.1.0".into())],
            contents,
            body: snappy::compress(&message()).into(),
        };
        format::push_frame(&mut out, 1_700_000_000_000, &write);
    }
    out
}

/// Returns a file of pushed metadata with two metrics.
fn pushed_metadata() -> Vec<u8> {
    let tenant = TenantId::new("team-a").expect("the name is sound");
    let said = |name, kind| MetricMetadata {
        name,
        kind,
        help: "It counts.",
        unit: "seconds",
    };
    let entries = [
        said("a_total", MetricType::Counter),
        said("b", MetricType::Gauge),
    ];
    file::encode(entries.into_iter().map(|said| (&tenant, said)))
}

/// Returns the initial inputs of each fuzz target.
pub(crate) fn corpora() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let message = message();
    let requests = OTLP.map(|text| text.as_bytes().to_vec());
    let to_protobuf = |text: &Vec<u8>| {
        let mut message = Vec::new();
        otlp::to_protobuf(text, 1 << 16, &mut message).expect("the seeds are sound");
        message
    };
    let files = folder::Image::make().files.into_iter().enumerate();
    let files = files.map(|(i, (_, bytes))| [&[i as u8][..], &bytes].concat());
    vec![
        ("remote_write", vec![message.clone()]),
        (
            "snappy",
            vec![snappy::compress(&message), snappy::compress(&[7; 300])],
        ),
        ("otlp", requests.iter().map(to_protobuf).collect()),
        ("otlp_json", requests.to_vec()),
        ("remote_read", reads().to_vec()),
        ("exposition", expositions()),
        ("page", pages()),
        ("block", vec![block()]),
        ("store", files.collect()),
        ("zookeeper", vec![zookeeper()]),
        ("bodies", vec![bodies()]),
        ("pushed_metadata", vec![pushed_metadata()]),
        ("tsdb_chunk", tsdb_seeds::chunks()),
        ("tsdb_block", tsdb_seeds::blocks()),
        ("tsdb_wal", tsdb_seeds::logs()),
        ("tsdb_head", tsdb_seeds::heads()),
        ("segment", cluster_seeds::all()),
        ("peer_frame", peer_seeds::all()),
        ("certificates", certificates().collect()),
        ("http_response", responses()),
        ("json", groups()),
        ("promql", expressions()),
        ("yaml", documents()),
    ]
}

/// Returns HTTP responses from the tests of the client.
fn responses() -> Vec<Vec<u8>> {
    let rows = include_str!("../../crates/lib/http_client/src/tests/http1.tsv").lines();
    let responses = rows.filter_map(|row| row.split('\t').nth(2));
    responses.map(unescaped).collect()
}

/// Returns JSON texts from the tests of discoveries.
fn groups() -> Vec<Vec<u8>> {
    let lines = include_str!("../../crates/edge/discovery/src/json/groups.txt").lines();
    let groups = lines.filter_map(|line| line.split_once('\t'));
    groups.map(|(text, _)| unescaped(text)).collect()
}

/// Returns expressions from the tests of the parser.
fn expressions() -> Vec<Vec<u8>> {
    let lines = include_str!("../../crates/core/promql/src/parser/cases/accepted.txt").lines();
    let lines = lines.filter(|line| !line.starts_with(['#', ' ']));
    lines.map(|line| line.as_bytes().to_vec()).collect()
}

/// Returns YAML documents from the tests of the parser.
fn documents() -> Vec<Vec<u8>> {
    let lines = include_str!("../../crates/lib/yaml/src/cases.txt").lines();
    let documents = lines.filter_map(|line| line.split_once('\t'));
    documents.map(|(text, _)| unescaped(text)).collect()
}

/// Replaces the escapes of line ends in the tables of tests.
fn unescaped(text: &str) -> Vec<u8> {
    let text = text.replace("\\r", "\r").replace("\\n", "\n");
    text.into_bytes()
}

/// Returns the first certificate of each example of a rule, and PEM texts.
fn certificates() -> impl Iterator<Item = Vec<u8>> {
    let examples = include_str!("../../crates/lib/x509/tests/rules.jsonl").lines();
    let leaves = examples.filter_map(|line| {
        let (_, chain) = line.split_once("\"chain\":[\"")?;
        BASE64_STANDARD.decode(chain.split('"').next()?).ok()
    });
    let pairs = include_str!("../../crates/lib/x509/tests/pairs.jsonl").lines();
    leaves.chain(pairs.map(|line| line.replace("\\n", "\n").into_bytes()))
}

/// OTLP requests with a data point of each kind.
const OTLP: [&str; 2] = [
    r#"{"resourceMetrics":[{"resource":{"attributes":[
{"key":"service.name","value":{"stringValue":"shop"}},{"key":"n","value":{"intValue":"7"}},
{"key":"l","value":{"arrayValue":{"values":[{"doubleValue":1.5},{"kvlistValue":{"values":[
{"key":"b","value":{"bytesValue":"AQI="}}]}}]}}}]},"scopeMetrics":[{"scope":{"name":"lib",
"attributes":[{"key":"a.b","value":{"boolValue":true}}]},"metrics":[
{"name":"cpu.time","unit":"s","description":"d","gauge":{"dataPoints":[{"timeUnixNano":"1000000000",
"asDouble":1.5,"attributes":[{"key":"x.y","value":{"stringValue":"z"}}]}]}},
{"name":"hits","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{"asInt":"3",
"timeUnixNano":"9000000000","startTimeUnixNano":"1","exemplars":[{"asInt":"1",
"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708"}]}]}}]}]}]}"#,
    r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
{"name":"h","histogram":{"aggregationTemporality":1,"dataPoints":[{"count":"3","sum":2,
"bucketCounts":["1","2"],"explicitBounds":[0.5]}]}},
{"name":"e","exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[{"count":"4",
"scale":9,"zeroCount":"1","positive":{"offset":-1,"bucketCounts":["1","0","1"]},
"negative":{"offset":3,"bucketCounts":["1"]}}]}},
{"name":"s","summary":{"dataPoints":[{"count":"1","sum":2,"quantileValues":[
{"quantile":0.5,"value":1}],"flags":1}]}}]}]}]}"#,
];

/// Returns a remote-write message with a few series.
fn message() -> Vec<u8> {
    let mut batch = Batch::default();
    for series in 0..4 {
        let labels = Labels::from_pairs([
            ("__name__", "http_requests_total".to_owned()),
            ("instance", format!("host-{series}")),
            ("job", "api".to_owned()),
        ]);
        batch.push_series(labels.as_ref(), &[(1_700_000_000_000, f64::from(series))]);
    }
    let body = remote_write::encode(&batch);
    let mut message = Vec::new();
    snappy::decompress(&body, 1 << 16, &mut message).expect("it was compressed here");
    message
}

/// Returns the index and the pages of a block.
fn block() -> Vec<u8> {
    let (sim, dir) = (sim::sim_env(1), Path::new("block"));
    let source = BlockSpec {
        id: BlockId::new(7, 7),
        is_late: false,
        level: 1,
        sources: Vec::new(),
        range: None,
    };
    let mut writer = BlockWriter::create(&sim.env, dir, source).expect("the disk is sound");
    for series in 0..40_i64 {
        let labels = Labels::from_pairs([
            ("__name__", format!("metric_{}", series / 10)),
            ("job", "node".to_owned()),
            ("pod", format!("pod-{:02}", series % 10)),
        ]);
        let columns = SampleColumns {
            times: (0..60).map(|i| i * 15_000 + series % 3).collect(),
            values: (0..60)
                .map(|i| ((i * series) % 100) as f64 / 10.0)
                .collect(),
            ..SampleColumns::default()
        };
        writer
            .push(labels.as_ref(), &columns)
            .expect("the disk is sound");
        let trace = Labels::from_pairs([("trace_id", format!("{series:x}"))]);
        let exemplars = (0..series % 3).map(|i| TimedExemplar {
            labels: trace.as_ref(),
            value: 0.5,
            time: i * 15_000,
            has_own_time: i == 1,
        });
        writer.push_exemplars(exemplars).expect("the disk is sound");
    }
    let mut sayings = MetricMetadataSet::default();
    for (name, help, last) in [
        ("metric_1", "New.", 9),
        ("metric_1", "Old.", 5),
        ("metric_3", "", 9),
    ] {
        let said = MetricMetadata {
            name,
            kind: MetricType::Gauge,
            help,
            unit: "seconds",
        };
        sayings.add(TimeRange::new(0, last), said);
    }
    writer.push_metadata(&sayings).expect("the disk is sound");
    writer.finish().expect("the disk is sound");
    let file = |name: &str| sim.disk.contents(&dir.join(name)).expect("it was written");
    let index = file("index");
    [
        &(index.len() as u32).to_le_bytes(),
        &index[..],
        &file("data-000"),
    ]
    .concat()
}

/// Returns scraped pages, mostly in text formats. Most protobuf inputs are reached by mutation.
fn expositions() -> Vec<Vec<u8>> {
    const TEXT: &str = "# HELP a_total It counts.\n# TYPE a_total counter\na_total{b=\"c\\n\"} 1 2\n\
        # TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
    const OPEN: &str = "# TYPE a counter\n# UNIT a seconds\na_total 1 # {t=\"x\"} 2 3\na_created 4\n\
        # TYPE h histogram\nh_bucket{le=\"+Inf\"} 2 # {t=\"y\"} 1\nh_count 2\nh_sum 3\n# EOF\n";
    let mut seeds = Vec::new();
    for switches in [0, 0b0_1000, 0b1_1111] {
        seeds.push([&[0, switches], TEXT.as_bytes()].concat());
        seeds.push([&[1, switches], OPEN.as_bytes()].concat());
        let family =
            b"\x19\x0a\x01a\x12\x01h\x18\x00\x22\x0f\x0a\x06\x0a\x01b\x12\x01c\x1a\x05\x09";
        seeds.push([&[2, switches], &family[..], &[0; 4]].concat());
    }
    seeds
}

/// Returns pages with floats of several kinds.
fn pages() -> Vec<Vec<u8>> {
    let value = |kind: u32, i: i64| match kind {
        0 => 5.0,
        1 => (i * 3) as f64,
        2 => i as f64 / 100.0,
        3 => 1.0 / (i + 1) as f64,
        _ => f64::NAN,
    };
    let page = |count: i64| {
        let mut builder = PageBuilder::new(LogSpan::default());
        for kind in 0..5 {
            let columns = SampleColumns {
                times: (0..count).map(|i| i * 15_000 + i % 3).collect(),
                values: (0..count).map(|i| value(kind, i)).collect(),
                ..SampleColumns::default()
            };
            let pushed = builder.push(
                SeriesSlot(kind.into()),
                Some(HistogramFamilyHash(1)),
                &columns,
            );
            pushed.expect("no series is too long");
        }
        builder.finish().expect("there are series")
    };
    [1, 7, 130].map(page).to_vec()
}
