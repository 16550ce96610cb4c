//! A bucket that is gone for a while.

use super::{FAST, SERIES, SpreadSeries, result_count};
use crate::harness::cluster::{TestCluster, wait_within};
use crate::harness::server::wait_for;
use crate::harness::write::{Series, body};
use crate::now_ms;
use std::time::Duration;

/// The longest time until writes are accepted after the bucket is back.
const BACK_MAX: Duration = Duration::from_secs(15);

#[test]
fn nodes_without_their_bucket_reject_writes_and_go_on_afterwards() {
    let cluster = TestCluster::new(FAST, &[]);
    let servers = cluster.start_all();
    let spread = SpreadSeries::store(&servers);
    let (bucket, gone) = (cluster.bucket(), cluster.spare("bucket"));
    std::fs::rename(&bucket, &gone).unwrap();
    let write = |http: &crate::harness::http::Http| {
        let numbers: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let series = numbers.iter().map(|number| {
            let labels = [("__name__", "outage"), ("n", number)];
            Series::new(&labels, &[(now_ms(), 1.0)])
        });
        http.write(&body(&series.collect::<Vec<_>>()))
    };
    // Requests that wait for a partition at another node are sent at the same time.
    std::thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| {
                let http = server.http();
                wait_for("a write to be rejected", || {
                    let answer = write(&http);
                    let is_stored = answer.status == 204;
                    assert!(is_stored || answer.status == 503, "{answer:?}");
                    let delay = answer.header("retry-after");
                    assert!(is_stored || !delay.is_empty(), "{answer:?}");
                    !is_stored
                });
                wait_for("a query to be rejected", || {
                    http.get(&spread.path("")).status == 503
                });
                let headers = [("X-Firn-Consistency", "eventual")];
                let answer = http.get_with(&spread.path(""), &headers);
                assert_eq!(answer.status, 200, "{}", answer.body);
                assert_eq!(result_count(&answer.json()), SERIES, "{}", answer.body);
            });
        }
    });
    std::fs::rename(&gone, &bucket).unwrap();
    for server in &servers {
        let http = server.http();
        wait_within("writes to be accepted", BACK_MAX, || {
            write(&http).status == 204
        });
        wait_within("answers", BACK_MAX, || {
            http.get(&spread.path("")).status == 200
        });
        spread.check(&http);
    }
}
