//! Checks a store: `cargo run -p firn-bucket --example check_store -- URL`.
//!
//! The endpoint, the region and the credentials are taken from the environment (`AWS_*`).

use firn_bucket::{
    AwsEnvironment, BucketMetrics, BucketOptions, CheckOptions, ObjectStoreBucket, StoreVerdict,
    check_store,
};
use firn_model::env::real;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let url = std::env::args()
        .nth(1)
        .expect("the URL of a bucket, such as s3://bucket/prefix");
    let runtime = tokio::runtime::Runtime::new().expect("threads start");
    let environment = AwsEnvironment::of_process();
    let metrics = Arc::new(BucketMetrics::default());
    let options = BucketOptions::default();
    let opened = ObjectStoreBucket::open(&url, &options, &environment, runtime.handle(), metrics);
    let bucket = match opened {
        Ok(bucket) => bucket,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            return ExitCode::from(2);
        }
    };
    let env = real::system_env().expect("the clock and random numbers of the system");
    let report = check_store(&bucket, &env.clock, &CheckOptions::new(env.rng.next_u64()));
    let _ = writeln!(std::io::stdout(), "{report}");
    if report.verdict == StoreVerdict::Accepted {
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}
