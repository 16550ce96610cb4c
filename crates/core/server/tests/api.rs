//! Tests of queries, look-ups and status documents on the in-process router, as tables of cases.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;
use support::{Fixture, get, post, send};

/// Checks that every path is answered with the given status and body.
async fn check(fixture: &Fixture, cases: &[(&str, u16, &str)]) {
    for (path, status, body) in cases {
        let reply = send(fixture, get(path)).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (*status, *body),
            "{path}"
        );
        assert_eq!(reply.header("content-type"), "application/json", "{path}");
    }
}

fn error(kind: &str, message: &str) -> String {
    let message = message.replace('"', "\\\"");
    format!(r#"{{"status":"error","errorType":"{kind}","error":"{message}"}}"#)
}

#[tokio::test]
async fn statistics_of_a_query_have_its_samples_and_timings() {
    let fixture = Fixture::ready(|_| {});
    let reply = send(&fixture, get("/api/v1/query?query=1&time=1&stats=all")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(
        reply.body.contains(r#""stats":{"timings":{"#),
        "{}",
        reply.body
    );
    let samples = r#""samples":{"totalQueryableSamples":0,"samplesRead":0,"peakSamples":0}}}}"#;
    assert!(reply.body.ends_with(samples), "{}", reply.body);
    for name in ["evalTotalTime", "execQueueTime", "innerEvalTime"] {
        assert!(reply.body.contains(name), "{name}: {}", reply.body);
    }
}

#[tokio::test]
async fn query_with_sound_parameters_answers_as_upstream() {
    let fixture = Fixture::ready(|_| {});
    check(
        &fixture,
        &[
            (
                "/api/v1/query?query=vector+2&time=1435781451.781",
                200,
                concat!(
                    r#"{"status":"success","data":{"resultType":"vector","result":["#,
                    r#"{"metric":{"__name__":"up","i":"0"},"value":[1435781451.781,"0"]},"#,
                    r#"{"metric":{"__name__":"up","i":"1"},"value":[1435781451.781,"1"]}]}}"#
                ),
            ),
            (
                "/api/v1/query?query=vector+3&time=1&limit=1",
                200,
                concat!(
                    r#"{"status":"success","data":{"resultType":"vector","result":["#,
                    r#"{"metric":{"__name__":"up","i":"0"},"value":[1,"0"]}]},"#,
                    r#""warnings":["results truncated due to limit"]}"#
                ),
            ),
            (
                "/api/v1/query?query=noted&time=0.5",
                200,
                concat!(
                    r#"{"status":"success","data":{"resultType":"scalar","result":[0.5,"1"]},"#,
                    r#""warnings":["PromQL warning: w"],"infos":["PromQL info: \u003ci\u003e"]}"#
                ),
            ),
            (
                "/api/v1/query_range?query=matrix+2&start=0&end=60&step=1m",
                200,
                concat!(
                    r#"{"status":"success","data":{"resultType":"matrix","result":["#,
                    r#"{"metric":{"__name__":"up","i":"0"},"values":[[0,"0.5"],[60,"0"]]},"#,
                    r#"{"metric":{"__name__":"up","i":"1"},"values":[[0,"0.5"],[60,"1"]]}]}}"#
                ),
            ),
            (
                "/api/v1/format_query?query=sum(a,b)",
                200,
                r#"{"status":"success","data":"sum(a,\nb)"}"#,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn query_with_bad_parameters_is_refused_in_upstreams_words() {
    let fixture = Fixture::ready(|_| {});
    let range = "/api/v1/query_range?query=1";
    let cases = [
        (
            "/api/v1/query?query=1&time=x".to_owned(),
            r#"invalid parameter "time": invalid time value for 'time': cannot parse "x" to a valid timestamp"#,
        ),
        (
            "/api/v1/query?query=1&limit=-1".into(),
            r#"invalid parameter "limit": limit must be non-negative"#,
        ),
        (
            "/api/v1/query?query=1&timeout=x".into(),
            r#"invalid parameter "timeout": cannot parse "x" to a valid duration"#,
        ),
        (
            "/api/v1/query?query=1&lookback_delta=x".into(),
            r#"error parsing lookback delta duration: cannot parse "x" to a valid duration"#,
        ),
        (
            "/api/v1/query?query=parse+error".into(),
            r#"invalid parameter "query": 1:7: parse error: no"#,
        ),
        (
            format!("{range}&start=x&end=1&step=1"),
            r#"invalid parameter "start": cannot parse "x" to a valid timestamp"#,
        ),
        (
            format!("{range}&start=0&step=1"),
            r#"invalid parameter "end": cannot parse "" to a valid timestamp"#,
        ),
        (
            format!("{range}&start=2&end=1&step=1"),
            r#"invalid parameter "end": end timestamp must not be before start time"#,
        ),
        (
            format!("{range}&start=0&end=1&step="),
            r#"invalid parameter "step": cannot parse "" to a valid duration"#,
        ),
        (
            format!("{range}&start=0&end=1&step=-1"),
            concat!(
                r#"invalid parameter "step": zero or negative query resolution step widths "#,
                "are not accepted. Try a positive integer"
            ),
        ),
        (
            format!("{range}&start=0&end=11001&step=1"),
            concat!(
                "exceeded maximum resolution of 11,000 points per timeseries. ",
                "Try decreasing the query resolution (?step=XX)"
            ),
        ),
    ];
    for (path, message) in cases {
        check(&fixture, &[(&path, 400, &error("bad_data", message))]).await;
    }
    check(
        &fixture,
        &[(
            "/api/v1/query_range?query=1&start=0&end=11000&step=1",
            200,
            r#"{"status":"success","data":{"resultType":"scalar","result":[0,"1"]}}"#,
        )],
    )
    .await;
}

#[tokio::test]
async fn query_that_fails_has_upstreams_status_and_type() {
    let fixture = Fixture::ready(|_| {});
    let cases = [
        ("execution", 422, "execution"),
        ("limited", 422, "execution"),
        ("timeout", 503, "timeout"),
        ("canceled", 499, "canceled"),
        ("storage", 500, "internal"),
    ];
    for (query, status, kind) in cases {
        let path = format!("/api/v1/query?query={query}");
        check(&fixture, &[(&path, status, &error(kind, query))]).await;
    }
}

#[tokio::test]
async fn query_options_reach_the_engine() {
    let fixture = Fixture::ready(|_| {});
    let form = "query=1&start=2015-06-03T13:21:58.555Z&end=1433337719&step=0.1&lookback_delta=1m";
    let reply = send(&fixture, post("/api/v1/query_range?step=7", form)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let _ = send(
        &fixture,
        get("/api/v1/query?query=1&time=7&lookback_delta=0"),
    )
    .await;
    let asked = fixture.engine.asked.lock().unwrap().clone();
    let range = firn_promql::EvalTime::range(1_433_337_718_555, 1_433_337_719_000, 100);
    let instant = firn_promql::EvalTime::Instant(7_000);
    assert_eq!(asked, [(range, 60_000), (instant, 300_000)]);
}

#[tokio::test]
async fn query_timeout_parameter_cancels_the_evaluation() {
    let fixture = Fixture::ready(|_| {});
    check(
        &fixture,
        &[(
            "/api/v1/query?query=block&timeout=50ms",
            503,
            &error("timeout", "query timed out in expression evaluation"),
        )],
    )
    .await;
    support::eventually("cancel", || {
        *fixture.engine.reasons.lock().unwrap() == [firn_model::cancel::CancelReason::Timeout]
    })
    .await;
}

#[tokio::test]
async fn query_beyond_the_slots_times_out_in_the_queue() {
    let fixture = Fixture::ready(|parts| {
        parts.limits.queries_max = 1;
        parts.limits.query_timeout = Duration::from_millis(300);
    });
    let blocked = send(&fixture, get("/api/v1/query?query=block"));
    let queued = send(&fixture, get("/api/v1/query?query=1&timeout=20ms"));
    let (blocked, queued) = tokio::join!(blocked, queued);
    assert_eq!(blocked.status, 503);
    assert_eq!(
        queued.body,
        error("timeout", "query timed out in query queue")
    );
}

#[tokio::test]
async fn query_beyond_the_queue_is_refused_at_once() {
    let fixture = Fixture::ready(|parts| {
        parts.limits.queries_max = 1;
        parts.limits.queries_waiting_max = 1;
        parts.limits.query_timeout = Duration::from_millis(300);
    });
    let blocked = send(&fixture, get("/api/v1/query?query=block"));
    let queued = send(&fixture, get("/api/v1/query?query=1&timeout=100ms"));
    let refused = send(&fixture, get("/api/v1/query?query=2"));
    let (_, queued, refused) = tokio::join!(blocked, queued, refused);
    assert!(queued.body.contains("query timed out in query queue"));
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
    let full = "query queue is full: 1 queries wait, limit 1";
    assert_eq!(refused.body, error("unavailable", full));
    let metrics = send(&fixture, get("/metrics")).await.body;
    assert!(
        metrics.contains("firn_server_queries_refused_total 1\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn panic_in_a_query_is_a_500_and_the_server_goes_on() {
    let fixture = Fixture::ready(|_| {});
    check(
        &fixture,
        &[
            (
                "/api/v1/query?query=panic",
                500,
                &error("internal", "the query failed: see the log"),
            ),
            (
                "/api/v1/query?query=1&time=0",
                200,
                r#"{"status":"success","data":{"resultType":"scalar","result":[0,"1"]}}"#,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn series_and_labels_answer_as_upstream() {
    let fixture = Fixture::ready(|_| {});
    check(
        &fixture,
        &[
            (
                "/api/v1/series?match[]=up",
                200,
                concat!(
                    r#"{"status":"success","data":["#,
                    r#"{"__name__":"up","job":"b"},{"__name__":"up","job":"a"}]}"#
                ),
            ),
            (
                "/api/v1/series?match[]=up&match[]={job=\"a\"}&limit=2",
                200,
                concat!(
                    r#"{"status":"success","data":["#,
                    r#"{"__name__":"http_requests_total","job":"a","path":"/<x>&\"y\""},"#,
                    r#"{"__name__":"up","job":"a"}],"#,
                    r#""warnings":["results truncated due to limit"]}"#
                ),
            ),
            (
                "/api/v1/series?match[]=nothing",
                200,
                r#"{"status":"success","data":[]}"#,
            ),
            (
                "/api/v1/labels",
                200,
                r#"{"status":"success","data":["__name__","job","path"]}"#,
            ),
            (
                "/api/v1/labels?match[]=up&limit=1",
                200,
                concat!(
                    r#"{"status":"success","data":["__name__"],"#,
                    r#""warnings":["results truncated due to limit"]}"#
                ),
            ),
            (
                "/api/v1/label/job/values",
                200,
                r#"{"status":"success","data":["a","b"]}"#,
            ),
            (
                "/api/v1/label/U__job/values?match[]=http_requests_total",
                200,
                r#"{"status":"success","data":["a"]}"#,
            ),
            (
                "/api/v1/label/path/values",
                200,
                r#"{"status":"success","data":["/\u003cx\u003e\u0026\"y\""]}"#,
            ),
            (
                "/api/v1/label/none/values",
                200,
                r#"{"status":"success","data":[]}"#,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn series_and_labels_with_bad_parameters_are_refused_in_upstreams_words() {
    let fixture = Fixture::ready(|_| {});
    let cases = [
        ("/api/v1/series", "no match[] parameter provided"),
        (
            "/api/v1/series?x=%zz",
            r#"error parsing form values: invalid URL escape "%zz""#,
        ),
        (
            "/api/v1/series?match[]={job=~\".*\"}",
            r#"invalid parameter "match[]": match[] must contain at least one non-empty matcher"#,
        ),
        (
            "/api/v1/labels?match[]={job!=\"x\"}",
            "match[] must contain at least one non-empty matcher",
        ),
        (
            "/api/v1/labels?start=x",
            r#"invalid parameter "start": invalid time value for 'start': cannot parse "x" to a valid timestamp"#,
        ),
        ("/api/v1/label/%ff/values", r#"invalid label name: "\\xff""#),
    ];
    for (path, message) in cases {
        check(&fixture, &[(path, 400, &error("bad_data", message))]).await;
    }
    let many = |count| {
        let selectors: String = (0..count)
            .map(|i| format!("match[]=m{i}&match[]=up&"))
            .collect();
        format!("/api/v1/series?{selectors}")
    };
    let refused = error(
        "bad_data",
        "too many different match[] selectors among 200, limit 100",
    );
    check(&fixture, &[(&many(100), 400, &refused)]).await;
    assert_eq!(send(&fixture, get(&many(99))).await.status, 200);
    let unavailable = error("unavailable", "store is not open");
    let path = "/api/v1/series?match[]=up&start=2&end=1";
    check(&fixture, &[(path, 503, &unavailable)]).await;
}

#[tokio::test]
async fn status_documents_have_upstreams_fields() {
    let fixture = Fixture::ready(|_| {});
    check(
        &fixture,
        &[
            (
                "/api/v1/status/buildinfo",
                200,
                concat!(
                    r#"{"status":"success","data":{"version":"3.14.0","revision":"r","#,
                    r#""branch":"b","buildUser":"u","buildDate":"d","goVersion":"rustc","#,
                    r#""firn_version":"0.1.0"}}"#
                ),
            ),
            (
                "/api/v1/status/flags",
                200,
                r#"{"status":"success","data":{"web.listen-address":"\u003caddr\u003e"}}"#,
            ),
            (
                "/api/v1/status/config",
                200,
                r#"{"status":"success","data":{"yaml":"global: {}\n"}}"#,
            ),
            (
                "/api/v1/status/tsdb?limit=0",
                400,
                &error("bad_data", "limit must be a positive number"),
            ),
            (
                "/api/v1/status/tsdb?limit=10001",
                400,
                &error("bad_data", "limit must not exceed 10000"),
            ),
        ],
    )
    .await;
    let tsdb = send(&fixture, get("/api/v1/status/tsdb")).await;
    let want = concat!(
        r#"{"status":"success","data":{"headStats":{"numSeries":3,"numLabelPairs":5,"#,
        r#""chunkCount":4,"minTime":1000,"maxTime":2000},"#,
        r#""seriesCountByMetricName":[{"name":"up","value":2}],"#,
        r#""labelValueCountByLabelName":[],"memoryInBytesByLabelName":[],"#,
        r#""seriesCountByLabelValuePair":[]}}"#
    );
    assert_eq!(tsdb.body, want);
    let blocks = send(&fixture, get("/api/v1/status/tsdb/blocks")).await;
    let want = concat!(
        r#"{"status":"success","data":{"blocks":[{"ulid":"01K9XFT7G0000000000000002D","#,
        r#""minTime":0,"maxTime":7200000,"stats":{"numSamples":10,"numFloatSamples":7,"#,
        r#""numHistogramSamples":3,"numSeries":2,"numChunks":2},"compaction":{"level":1,"#,
        r#""sources":["01K9XFT7G0000000000000002D"]},"version":1,"firn":{"bytes":4096,"#,
        r#""late":false,"bad":false,"firstTime":5,"lastTime":7185000,"numExemplars":4}},"#,
        r#"{"ulid":"01K9XFT7G0000000000000003D","minTime":0,"maxTime":7200000,"stats":{"#,
        r#""numSamples":10,"numFloatSamples":10,"numSeries":2,"numChunks":2},"compaction":{"#,
        r#""level":2},"version":1,"firn":{"bytes":4096,"late":true,"bad":true,"firstTime":5,"#,
        r#""lastTime":7185000,"numExemplars":4,"shard":1}}],"firn":{"cutTime":7200000,"cut":{"#,
        r#""running":false,"series":0,"seriesDone":0,"writtenBytes":0,"#,
        r#""lastDurationSeconds":1.5},"compaction":{"running":true,"series":9,"seriesDone":4,"#,
        r#""writtenBytes":77,"lastDurationSeconds":0.0}}}}"#
    );
    assert_eq!(blocks.body, want);
    let runtime = send(&fixture, get("/api/v1/status/runtimeinfo")).await;
    let start = r#"{"status":"success","data":{"startTime":"1970-01-01T00:00:01Z","CWD":"/data","#;
    assert!(runtime.body.starts_with(start), "{}", runtime.body);
    assert!(
        runtime.body.contains(r#""GOMAXPROCS":2,"GOMEMLIMIT":42,"#),
        "{}",
        runtime.body
    );
}

#[tokio::test]
async fn answer_over_the_memory_of_queries_is_refused() {
    let fixture = Fixture::ready(|parts| parts.limits.queries_bytes_max = 1000);
    let reply = send(&fixture, get("/api/v1/query?query=vector+1000")).await;
    assert_eq!(reply.status, 422);
    assert!(
        reply.body.contains("queries memory limit reached"),
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn query_exemplars_answers_as_upstream() {
    let fixture = Fixture::ready(|_| {});
    let refused = |message: &str| error("bad_data", message);
    check(
        &fixture,
        &[
            (
                "/api/v1/query_exemplars?query=rate(up{job=%22b%22}[5m])%2Bnone&start=1.6",
                200,
                concat!(
                    r#"{"status":"success","data":[{"seriesLabels":{"__name__":"up","job":"b"},"#,
                    r#""exemplars":[{"labels":{"trace_id":"<1>"},"value":"+Inf","#,
                    r#""timestamp":2}]}]}"#
                ),
            ),
            (
                "/api/v1/query_exemplars?query=none",
                200,
                r#"{"status":"success","data":[]}"#,
            ),
            (
                "/api/v1/query_exemplars?query=up&start=2&end=1",
                400,
                &refused("end timestamp must not be before start timestamp"),
            ),
            (
                "/api/v1/query_exemplars?query=up{",
                400,
                &refused("1:4: parse error: unexpected end of input inside braces"),
            ),
            (
                "/api/v1/query_exemplars",
                400,
                &refused("unknown position: parse error: no expression found in input"),
            ),
            (
                "/api/v1/query_exemplars?query=up&start=x",
                400,
                &refused(
                    "invalid parameter \"start\": invalid time value for 'start': cannot parse \
                     \"x\" to a valid timestamp",
                ),
            ),
        ],
    )
    .await;
    let reply = send(&fixture, get("/api/v1/query_exemplars?query=1")).await;
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
}
