//! Tests of requests with counted contents: rejected and expired samples, samples that a full queue
//! drops, and the log without targets.

use super::*;
use firn_model::batch::Batch;
use firn_model::labels::Labels;
use firn_wire::WireLimits;
use firn_wire::remote_write::{MergedBody, RemoteWriteDecoder, RemoteWriteOptions, encode};
use firn_wire::snappy;

/// Decodes each body for its scripted target: `name time` for each sample, separated by commas.
struct Reading(Arc<Scripted>);

impl DeliveryTransport for Reading {
    fn post(&self, mut posting: PostAttempt) -> Delivering<'_> {
        let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
        let decoded = decoder.decode(RemoteWriteOptions::default(), &posting.body);
        let decoded = decoded.expect("a request of 1.0");
        let mut shown = Vec::new();
        for series in decoded.batch.iter() {
            let name = String::from_utf8_lossy(series.labels.get("__name__")).into_owned();
            shown.extend(series.times.iter().map(|time| format!("{name} {time}")));
        }
        posting.body = shown.join(",").into();
        self.0.post(posting)
    }
}

/// Joins all available bodies into one request.
struct Joining;

impl RequestPreparer for Joining {
    fn is_quick(&self, _: &[&ReceivedWrite], _: bool) -> bool {
        true
    }

    fn prepare(&self, writes: &[&ReceivedWrite], bytes_max: usize, _: bool) -> Vec<RequestParcel> {
        let bodies = writes.iter().map(|write| &write.body[..]);
        let body = snappy::join_blocks(bodies, bytes_max).unwrap();
        let seam = |write: &&ReceivedWrite| {
            let (message_bytes, element_bytes) = snappy::block_bytes(&write.body, 1 << 20).unwrap();
            MergedBody {
                message_bytes,
                element_bytes,
                contents: write.contents.unwrap(),
            }
        };
        let contents = writes.iter().filter_map(|write| write.contents);
        let request = Request {
            write: ReceivedWrite {
                headers: writes[0].headers.clone(),
                contents: None,
                body: body.into(),
            },
            contents: contents.reduce(WriteRequestContents::merged_with).unwrap(),
            seams: MergedRequestBounds::Bodies(writes.iter().map(seam).collect()),
        };
        vec![RequestParcel {
            bodies: writes.len(),
            wanted: WantedBodies::Lanes(vec![vec![request]]),
            dropped: WriteRequestContents::default(),
            is_full: writes.len() >= 6,
        }]
    }
}

fn joining(key: &str, deliver: &Arc<Scripted>) -> TargetSettings {
    TargetSettings {
        prepare: Arc::new(Joining),
        fill: Duration::from_secs(5),
        deliver: Arc::new(Reading(deliver.clone())),
        manner: DeliveryMode::Sender,
        ..settings(key, deliver)
    }
}

/// Returns a request with one series `name` that has samples at `times`.
fn write(name: &str, times: &[i64]) -> ReceivedWrite {
    let mut batch = Batch::default();
    let labels = Labels::from_pairs([("__name__", name)]);
    let samples: Vec<_> = times.iter().map(|time| (*time, 1.0)).collect();
    batch.push_series(labels.as_ref(), &samples);
    ReceivedWrite {
        headers: vec![(0, Bytes::from_static(b"application/x-protobuf"))],
        contents: Some(WriteRequestContents::from_batch(&batch, 0..1)),
        body: encode(&batch).into(),
    }
}

async fn take(mirror: &Mirror, name: &str, times: &[i64]) {
    let taken = mirror.store_body(write(name, times)).await;
    taken.expect("the disk takes it");
}

/// Checks the requests that a target receives for six bodies in one request. The target rejects
/// requests that contain `bad` with `status`.
async fn check(status: u16, taken: &[&str], attempts: usize, refused: u64) {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let strict = Scripted::new(move |_, body| {
        if body.contains("bad") {
            Says::Status(status)
        } else {
            Says::Status(204)
        }
    });
    mirror.apply(vec![joining("strict", &strict)]);
    for name in ["a", "b", "bad", "c", "bad", "d"] {
        take(&mirror, name, &[5, 6]).await;
    }
    let target = target(&mirror, "strict");
    until("all bodies", || target.cursor() == mirror.bodies.end()).await;
    assert_eq!(strict.taken(), taken, "{status}");
    assert_eq!(strict.attempts(), attempts, "{status}");
    assert_eq!(target.refused.samples.get(), refused, "{status}");
    assert_eq!(target.taken.samples.get(), 12 - refused, "{status}");
    // There is no backlog: rejected samples count as completed.
    assert_eq!(target.newest.get(), 6, "{status}");
}

#[tokio::test(start_paused = true)]
async fn request_that_is_refused_costs_no_body_but_those_that_are_refused_alone() {
    let singly = ["a 5,a 6", "b 5,b 6", "c 5,c 6", "d 5,d 6"];
    for status in [400, 409, 413, 422] {
        check(status, &singly, 7, 4).await;
    }
    // The status does not depend on the bodies.
    for status in [401, 404] {
        check(status, &[], 1, 12).await;
    }
}

#[tokio::test(start_paused = true)]
async fn samples_that_become_too_old_while_a_target_is_away_are_left_out_one_by_one() {
    let sim = sim::sim_env(1);
    sim.clock.set_ms(1_000_000);
    let mirror = open(&sim);
    let is_back = Arc::new(Mutex::new(false));
    let back = is_back.clone();
    let away = Scripted::new(move |_, _| {
        if *lock(&back) {
            Says::Status(204)
        } else {
            Says::Broken
        }
    });
    let bounded = TargetSettings {
        sample_age_max: Some(Duration::from_secs(60)),
        ..joining("away", &away)
    };
    mirror.apply(vec![bounded]);
    take(&mirror, "gone", &[900_000, 930_000]).await;
    take(&mirror, "a", &[930_000, 950_000, 990_000]).await;
    take(&mirror, "b", &[1_000_000]).await;
    until("attempts", || away.attempts() > 3).await;
    let target = target(&mirror, "away");
    assert_eq!(target.too_old.samples.get(), 3);
    sim.clock.advance_ms(20_000);
    *lock(&is_back) = true;
    until("the rest", || target.cursor() == mirror.bodies.end()).await;
    assert_eq!(away.taken(), ["a 990000,b 1000000"]);
    assert_eq!(target.too_old.samples.get(), 4);
    assert_eq!(target.taken.samples.get(), 2);
    // Bodies in which all samples are too old are not decoded.
    take(&mirror, "gone", &[900_000]).await;
    until("the last", || target.cursor() == mirror.bodies.end()).await;
    assert_eq!(target.too_old.samples.get(), 5);
    assert_eq!(away.taken().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn samples_that_wait_or_that_a_full_queue_gave_up_are_counted() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let away = Scripted::new(|_, _| Says::Never);
    let frame = super::super::bodies::frame_bytes(&write("m", &[1, 2])) as u64;
    let bounded = TargetSettings {
        queue_bytes_max: 10 * frame,
        ..joining("away", &away)
    };
    mirror.apply(vec![bounded]);
    for _ in 0..6 {
        take(&mirror, "m", &[1, 2]).await;
    }
    let target = target(&mirror, "away");
    let waiting = || target.waiting(mirror.waiting_bytes(&target)).samples;
    until("an attempt", || away.attempts() > 0).await;
    assert_eq!(waiting(), 12);
    for _ in 0..10 {
        take(&mirror, "m", &[1, 2]).await;
    }
    until("losses", || {
        target.lost_bodies(target::BodyLossReason::QueueFull) == 6
    })
    .await;
    assert_eq!(target.overflowed.samples.get(), 12);
    assert_eq!(waiting(), 20);
}

fn segments(sim: &SimEnv) -> usize {
    let names = sim.env.disk.list(Path::new(DIR)).unwrap();
    names
        .iter()
        .filter(|name| Mirror::is_of_queue(name))
        .count()
}

#[tokio::test(start_paused = true)]
async fn queue_without_a_target_is_freed_in_this_process_and_in_the_next() {
    let sim = sim::sim_env(1);
    let away = Scripted::new(|_, _| Says::Never);
    let mirror = open(&sim);
    mirror.apply(vec![settings("away", &away)]);
    push(&mirror, 0..5).await;
    mirror.stop().await;
    drop(mirror);
    sim.disk.kill();
    assert_eq!(segments(&sim), 1);

    let mirror = open(&sim);
    // Before the first configuration, it is unknown which targets need the bodies.
    mirror.store_cursors();
    assert_eq!(segments(&sim), 1);
    mirror.apply(Vec::new());
    mirror.store_cursors();
    assert_eq!((segments(&sim), mirror.bodies.bytes()), (0, 0));
    let cursors = cursors::load(&*sim.env.disk, Path::new(DIR)).unwrap();
    assert_eq!(cursors, Some(cursors::Cursors::new()));

    // A target that is added again begins with the next body.
    let good = Scripted::taking();
    mirror.apply(vec![settings("away", &good)]);
    push(&mirror, 5..8).await;
    until("all bodies", || good.taken().len() == 3).await;
    assert_eq!(good.taken(), numbers(5..8));
    mirror.apply(Vec::new());
    mirror.store_cursors();
    assert_eq!(segments(&sim), 0);
    mirror.apply(vec![settings("away", &good)]);
    push(&mirror, 8..9).await;
    until("the last one", || good.taken().len() == 4).await;
}
