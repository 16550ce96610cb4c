//! Tests of the mirror on a simulated disk, with targets that respond according to a script. The
//! clock of tokio is paused: timers advance only when all tasks are waiting.

mod contents;

use super::*;
use bytes::Bytes;
use firn_model::env::sim::{self, SimEnv};
use firn_wire::remote_write::{MergedRequestBounds, WriteRequestContents};
use std::time::Duration;
use tokio::time::sleep;

const DIR: &str = "/mirror";

/// Response of a target to its n-th attempt with a body.
type Script = Box<dyn Fn(usize, &str) -> Says + Send + Sync>;

enum Says {
    Status(u16),
    Wait(&'static str),
    Broken,
    Never,
}

/// A target that records the bodies that it accepted.
struct Scripted {
    script: Script,
    attempts: Mutex<usize>,
    taken: Mutex<Vec<String>>,
    headers: Mutex<Vec<(&'static str, Bytes)>>,
}

impl Scripted {
    fn new(script: impl Fn(usize, &str) -> Says + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            attempts: Mutex::default(),
            taken: Mutex::default(),
            headers: Mutex::default(),
        })
    }

    fn taking() -> Arc<Self> {
        Self::new(|_, _| Says::Status(204))
    }

    fn taken(&self) -> Vec<String> {
        lock(&self.taken).clone()
    }

    fn attempts(&self) -> usize {
        *lock(&self.attempts)
    }
}

impl DeliveryTransport for Scripted {
    fn post(&self, posting: PostAttempt) -> Delivering<'_> {
        let text = String::from_utf8_lossy(&posting.body).into_owned();
        let attempt = {
            let mut attempts = lock(&self.attempts);
            *attempts += 1;
            *attempts - 1
        };
        let said = (self.script)(attempt, &text);
        *lock(&self.headers) = posting.headers;
        Box::pin(async move {
            let (status, retry_after) = match said {
                Says::Status(status) => (status, None),
                Says::Wait(text) => (429, Some(text.to_owned())),
                Says::Broken => return Err("connection reset".to_owned()),
                Says::Never => std::future::pending().await,
            };
            if status < 300 {
                lock(&self.taken).push(text);
            }
            Ok(TargetResponse {
                status,
                retry_after,
                ..TargetResponse::default()
            })
        })
    }
}

fn settings(key: &str, deliver: &Arc<Scripted>) -> TargetSettings {
    TargetSettings {
        key: key.to_owned(),
        label: key.to_owned(),
        queue_bytes_max: 1 << 20,
        queue_age_max: None,
        sample_age_max: None,
        prepare: Arc::new(TargetSeriesFilter::default()),
        fill: Duration::ZERO,
        timeout: Duration::from_secs(30),
        backoff_min: Duration::from_millis(30),
        backoff_max: Duration::from_secs(5),
        manner: DeliveryMode::Patient,
        deliver: deliver.clone(),
    }
}

fn open(sim: &SimEnv) -> Mirror {
    Mirror::open(sim.env.clone(), Path::new(DIR), 1 << 20).expect("a simulated disk that works")
}

async fn push(mirror: &Mirror, bodies: impl Iterator<Item = usize>) {
    for n in bodies {
        let write = ReceivedWrite {
            headers: vec![(0, Bytes::from_static(b"application/x-protobuf"))],
            contents: None,
            body: n.to_string().into(),
        };
        mirror.store_body(write).await.expect("the disk takes it");
    }
}

/// Waits until `condition` is true; time advances as fast as the tasks permit.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("waited for {what}");
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn target(mirror: &Mirror, key: &str) -> Arc<DeliveryTarget> {
    lock(&mirror.targets)[key].target.clone()
}

#[tokio::test(start_paused = true)]
async fn bodies_reach_every_target_once_in_order_whatever_another_one_does() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let good = Scripted::taking();
    let hung = Scripted::new(|_, _| Says::Never);
    // All responses that cause a retry, several times per body.
    let bad = Scripted::new(|attempt, _| match attempt % 7 {
        0 => Says::Broken,
        1 => Says::Status(500),
        2 => Says::Status(302),
        3 => Says::Status(503),
        4 => Says::Wait("1"),
        5 => Says::Wait("Thu, 01 Jan 1970 00:00:02 GMT"),
        _ => Says::Status(200),
    });
    mirror.apply(vec![
        settings("good", &good),
        settings("hung", &hung),
        settings("bad", &bad),
    ]);
    push(&mirror, 0..50).await;
    until("all bodies", || {
        good.taken().len() == 50 && bad.taken().len() == 50
    })
    .await;
    assert_eq!(good.taken(), numbers(0..50));
    assert_eq!(bad.taken(), numbers(0..50));
    assert_eq!(good.attempts(), 50);
    assert_eq!(bad.attempts(), 350);
    assert_eq!(hung.taken(), numbers(0..0));
    let media_type = Bytes::from_static(b"application/x-protobuf");
    assert_eq!(*lock(&bad.headers), [("content-type", media_type)]);
    let bad = target(&mirror, "bad");
    for trouble in [
        verdict::RetryReason::Connection,
        verdict::RetryReason::Redirect,
    ] {
        assert_eq!(bad.repeated_attempts(trouble), 50, "{trouble:?}");
    }
    assert_eq!(bad.repeated_attempts(verdict::RetryReason::Throttled), 100);
    until("an attempt without an answer", || {
        target(&mirror, "hung").repeated_attempts(verdict::RetryReason::Timeout) > 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn body_that_a_target_refuses_is_counted_and_the_next_one_follows() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let picky = Scripted::new(|_, body| match body {
        "3" => Says::Status(400),
        "5" => Says::Status(413),
        _ => Says::Status(204),
    });
    mirror.apply(vec![settings("picky", &picky)]);
    push(&mirror, 0..8).await;
    until("all bodies", || picky.attempts() == 8).await;
    until("all counted", || target(&mirror, "picky").sent.get() == 6).await;
    assert_eq!(picky.taken(), ["0", "1", "2", "4", "6", "7"]);
    assert_eq!(
        target(&mirror, "picky").lost_bodies(target::BodyLossReason::Refused),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn target_that_fails_is_asked_again_after_growing_pauses() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let begun = tokio::time::Instant::now();
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = times.clone();
    let failing = Scripted::new(move |_, _| {
        lock(&seen).push(begun.elapsed());
        Says::Status(500)
    });
    mirror.apply(vec![settings("failing", &failing)]);
    push(&mirror, 0..1).await;
    until("some attempts", || failing.attempts() == 14).await;
    let times = lock(&times).clone();
    let mut pause = Duration::from_millis(30);
    for pair in times.windows(2) {
        let waited = pair[1].saturating_sub(pair[0]);
        let most = pause + Duration::from_millis(2);
        assert!((pause / 2..=most).contains(&waited), "{waited:?} {pause:?}");
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

#[tokio::test(start_paused = true)]
async fn target_without_access_gets_what_waits_once_it_has_it() {
    for status in [401, 403, 404, 405, 407, 408] {
        let sim = sim::sim_env(1);
        let mirror = open(&sim);
        let locked = Scripted::new(move |attempt, _| match attempt {
            0..5 => Says::Status(status),
            _ => Says::Status(204),
        });
        let sender = Scripted::new(move |_, body| match body {
            "0" => Says::Status(status),
            _ => Says::Status(204),
        });
        mirror.apply(vec![
            settings("locked", &locked),
            TargetSettings {
                manner: DeliveryMode::Sender,
                ..settings("sender", &sender)
            },
        ]);
        push(&mirror, 0..4).await;
        until("all bodies", || {
            locked.taken().len() == 4 && sender.taken().len() == 3
        })
        .await;
        assert_eq!(locked.taken(), numbers(0..4), "{status}");
        let target = target(&mirror, "locked");
        let trouble = match status {
            408 => verdict::RetryReason::Timeout,
            _ => verdict::RetryReason::Access,
        };
        let seen = (
            target.repeated_attempts(trouble),
            target.lost_bodies(target::BodyLossReason::Refused),
        );
        assert_eq!(seen, (5, 0), "{status}");
        // In the sender manner, statuses are final as in Prometheus.
        assert_eq!(sender.taken(), numbers(1..4), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn target_that_is_away_loses_its_oldest_bodies_at_its_bound_and_no_other_does() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let good = Scripted::taking();
    let is_back = Arc::new(Mutex::new(false));
    let back = is_back.clone();
    let away = Scripted::new(move |_, _| {
        if *lock(&back) {
            Says::Status(204)
        } else {
            Says::Never
        }
    });
    let bounded = TargetSettings {
        queue_bytes_max: 400,
        ..settings("away", &away)
    };
    mirror.apply(vec![settings("good", &good), bounded]);
    push(&mirror, 100..150).await;
    let lost = || target(&mirror, "away").lost_bodies(target::BodyLossReason::QueueFull);
    until("the other's bodies", || good.taken().len() == 50).await;
    until("losses", || {
        mirror.bodies.end() - target(&mirror, "away").cursor() <= 400
    })
    .await;
    *lock(&is_back) = true;
    until("the rest", || {
        away.taken().len() as u64 + lost() == 50 && !away.taken().is_empty()
    })
    .await;
    let kept = away.taken();
    assert_eq!(kept, numbers(150 - kept.len()..150));
    assert!((5..12).contains(&kept.len()), "{kept:?}");
    assert_eq!(good.taken(), numbers(100..150));
}

#[tokio::test(start_paused = true)]
async fn body_that_waited_for_too_long_is_given_up() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let away = Scripted::new(|_, body| match body {
        "0" | "1" => Says::Broken,
        _ => Says::Status(204),
    });
    let bounded = TargetSettings {
        queue_age_max: Some(Duration::from_secs(60)),
        ..settings("away", &away)
    };
    mirror.apply(vec![bounded]);
    push(&mirror, 0..2).await;
    until("attempts", || away.attempts() > 3).await;
    sim.clock.advance_ms(61_000);
    push(&mirror, 2..4).await;
    until("what is young", || away.taken().len() == 2).await;
    assert_eq!(away.taken(), ["2", "3"]);
    assert_eq!(
        target(&mirror, "away").lost_bodies(target::BodyLossReason::TooOld),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn target_goes_on_where_it_was_after_a_stop_and_again_in_order_after_a_kill() {
    let sim = sim::sim_env(1);
    let good = Scripted::taking();
    let mirror = open(&sim);
    mirror.apply(vec![settings("good", &good)]);
    push(&mirror, 0..10).await;
    until("all bodies", || good.taken().len() == 10).await;
    mirror.stop().await;
    drop(mirror);
    sim.disk.kill();

    let mirror = open(&sim);
    mirror.apply(vec![settings("good", &good)]);
    push(&mirror, 10..15).await;
    until("all bodies", || good.taken().len() == 15).await;
    assert_eq!(good.taken(), numbers(0..15));
    mirror.store_cursors();
    push(&mirror, 15..20).await;
    until("all bodies", || good.taken().len() == 20).await;
    // The process ends without a clean stop, and the disk loses unsynced data.
    lock(&mirror.targets)
        .values()
        .for_each(RunningTarget::abort);
    drop(mirror);
    sim.disk.crash();

    let again = Scripted::taking();
    let mirror = open(&sim);
    mirror.apply(vec![settings("good", &again)]);
    push(&mirror, 20..22).await;
    until("all bodies", || again.taken().len() == 7).await;
    assert_eq!(again.taken(), numbers(15..22));
}

#[tokio::test(start_paused = true)]
async fn cursors_that_are_gone_or_damaged_send_all_that_is_stored_again() {
    for damage in [true, false] {
        let sim = sim::sim_env(1);
        let mirror = open(&sim);
        let good = Scripted::taking();
        mirror.apply(vec![settings("good", &good)]);
        push(&mirror, 0..5).await;
        until("all bodies", || good.taken().len() == 5).await;
        mirror.stop().await;
        drop(mirror);
        sim.disk.kill();
        let file = Path::new(DIR).join("cursors");
        if damage {
            sim.disk.overwrite(&file, b"firn mirror cursors 1\n")
        } else {
            sim.disk.remove_durably(&file)
        }
        let again = Scripted::taking();
        let mirror = open(&sim);
        mirror.apply(vec![settings("good", &again)]);
        until("all bodies", || again.taken().len() == 5).await;
        assert_eq!(again.taken(), numbers(0..5));
    }
}

#[tokio::test(start_paused = true)]
async fn reload_keeps_what_stays_begins_anew_with_what_is_new_and_forgets_the_rest() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let (stays, goes, comes) = (
        Scripted::new(|attempt, _| match attempt {
            0..5 => Says::Broken,
            _ => Says::Status(204),
        }),
        Scripted::new(|_, _| Says::Never),
        Scripted::taking(),
    );
    mirror.apply(vec![settings("stays", &stays), settings("goes", &goes)]);
    push(&mirror, 0..5).await;
    mirror.apply(vec![settings("stays", &stays), settings("comes", &comes)]);
    push(&mirror, 5..10).await;
    until("all bodies", || {
        stays.taken().len() == 10 && comes.taken().len() == 5
    })
    .await;
    assert_eq!(stays.taken(), numbers(0..10));
    assert_eq!(comes.taken(), numbers(5..10));
    // A target that is added again begins with the next body.
    let back = Scripted::taking();
    mirror.apply(vec![settings("goes", &back)]);
    push(&mirror, 10..12).await;
    until("all bodies", || back.taken().len() == 2).await;
    assert_eq!(back.taken(), numbers(10..12));
    assert_eq!(goes.taken(), numbers(0..0));
}

#[tokio::test(start_paused = true)]
async fn log_holds_what_the_slowest_target_needs_and_no_more() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let good = Scripted::taking();
    let opens = Arc::new(Mutex::new(false));
    let is_open = opens.clone();
    let slow = Scripted::new(move |_, _| {
        if *lock(&is_open) {
            Says::Status(204)
        } else {
            Says::Broken
        }
    });
    let patient = |settings: TargetSettings| TargetSettings {
        queue_bytes_max: 1 << 30,
        ..settings
    };
    mirror.apply(vec![
        patient(settings("good", &good)),
        patient(settings("slow", &slow)),
    ]);
    // The bodies fill several segments.
    for _ in 0..40 {
        let write = ReceivedWrite {
            headers: Vec::new(),
            contents: None,
            body: vec![b'x'; 1 << 20].into(),
        };
        mirror.store_body(write).await.expect("the disk takes it");
    }
    until("the fast one", || good.taken().len() == 40).await;
    mirror.store_cursors();
    assert!(mirror.bodies.bytes() >= 40 << 20);
    *lock(&opens) = true;
    until("the slow one", || target(&mirror, "slow").sent.get() == 40).await;
    mirror.store_cursors();
    assert!(
        mirror.bodies.bytes() <= 18 << 20,
        "{}",
        mirror.bodies.bytes()
    );
}

#[tokio::test(start_paused = true)]
async fn body_of_2_0_is_taken_whatever_it_holds_and_counted_if_it_can_be() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let good = Scripted::taking();
    mirror.apply(vec![settings("good", &good)]);
    let v2 = b"application/x-protobuf;proto=io.prometheus.write.v2.Request";
    // A message with one series that has two samples.
    let message = b"\x22\x00\x2a\x08\x12\x02\x10\x01\x12\x02\x10\x02";
    let write = |body: Vec<u8>| ReceivedWrite {
        headers: vec![(0, Bytes::from_static(v2))],
        contents: None,
        body: body.into(),
    };
    let counted = mirror
        .store_body(write(firn_wire::snappy::compress(message)))
        .await;
    let expected = WriteMessageCounts {
        samples: 2,
        ..WriteMessageCounts::default()
    };
    assert_eq!(counted, Ok(Some(expected)));
    let junk = mirror.store_body(write(b"junk".to_vec())).await;
    assert_eq!(junk, Ok(None));
    until("both", || good.taken().len() == 2).await;
    assert_eq!(good.taken()[1], "junk");
}

#[tokio::test(start_paused = true)]
async fn full_disk_refuses_bodies_and_ends_by_itself() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let good = Scripted::taking();
    mirror.apply(vec![settings("good", &good)]);
    push(&mirror, 0..2).await;
    until("both", || good.taken().len() == 2).await;
    sim.disk.set_free_bytes(0);
    let write = || ReceivedWrite {
        headers: Vec::new(),
        contents: None,
        body: Bytes::from_static(b"late"),
    };
    let refused = mirror.store_body(write()).await;
    assert!(refused.is_err_and(|e| e.message.contains(DIR)));
    mirror.store_cursors();
    sim.disk.set_free_bytes(1 << 20);
    sim.clock.advance_ms(1_000);
    assert_eq!(mirror.store_body(write()).await, Ok(None));
    until("the late one", || good.taken().len() == 3).await;
    assert_eq!(good.taken(), ["0", "1", "late"]);
    mirror.store_cursors();
    let cursors = cursors::load(&*sim.env.disk, Path::new(DIR)).unwrap();
    assert_eq!(cursors.unwrap()["good"], mirror.bodies.end());
}

/// Prepares one parcel from all available bodies: odd numbers in one lane, even ones in another.
/// The parcel is full with `full` bodies.
struct Bundles {
    full: usize,
}

impl RequestPreparer for Bundles {
    fn is_quick(&self, _: &[&ReceivedWrite], _: bool) -> bool {
        false
    }

    fn prepare(&self, writes: &[&ReceivedWrite], _: usize, _is_behind: bool) -> Vec<RequestParcel> {
        let mut lanes = vec![Vec::new(), Vec::new()];
        for write in writes {
            let is_odd = write.body.last().is_some_and(|digit| digit % 2 == 1);
            lanes[usize::from(is_odd)].push(Request {
                write: (*write).clone(),
                contents: WriteRequestContents {
                    samples: 10,
                    ..WriteRequestContents::default()
                },
                seams: MergedRequestBounds::None,
            });
        }
        vec![RequestParcel {
            bodies: writes.len(),
            wanted: WantedBodies::Lanes(lanes),
            dropped: WriteRequestContents {
                samples: 1,
                ..WriteRequestContents::default()
            },
            is_full: writes.len() >= self.full,
        }]
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_go_side_by_side_and_the_cursor_waits_for_all_of_them() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let is_open = Arc::new(Mutex::new(false));
    let opens = is_open.clone();
    let target_of_lanes = Scripted::new(move |_, body| match body {
        "3" if !*lock(&opens) => Says::Status(503),
        "5" => Says::Status(400),
        _ => Says::Status(204),
    });
    let bundling = TargetSettings {
        prepare: Arc::new(Bundles { full: 8 }),
        fill: Duration::from_secs(5),
        ..settings("lanes", &target_of_lanes)
    };
    mirror.apply(vec![bundling]);
    push(&mirror, 0..8).await;
    until("the even lane", || target_of_lanes.taken().len() == 5).await;
    let even = |text: &String| text.parse().is_ok_and(|n: u32| n.is_multiple_of(2));
    let mut taken = target_of_lanes.taken();
    taken.retain(even);
    assert_eq!(taken, ["0", "2", "4", "6"]);
    assert_eq!(target(&mirror, "lanes").cursor(), mirror.bodies.start());
    *lock(&is_open) = true;
    let at_work = target(&mirror, "lanes");
    until("all of them", || at_work.cursor() == mirror.bodies.end()).await;
    let mut taken = target_of_lanes.taken();
    taken.retain(|text| !even(text));
    assert_eq!(taken, ["1", "3", "7"]);
    assert_eq!(at_work.taken.samples.get(), 70);
    assert_eq!(at_work.refused.samples.get(), 10);
    assert!(at_work.repeated.samples.get() >= 10);
    assert_eq!((at_work.lanes.get(), at_work.dropped.samples.get()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn bodies_wait_for_others_until_the_parcel_is_full_or_the_time_is_over() {
    let sim = sim::sim_env(1);
    let mirror = open(&sim);
    let patient = Scripted::taking();
    let bundling = TargetSettings {
        prepare: Arc::new(Bundles { full: 6 }),
        fill: Duration::from_secs(5),
        ..settings("patient", &patient)
    };
    mirror.apply(vec![bundling]);
    push(&mirror, 0..2).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(patient.taken(), numbers(0..0));
    push(&mirror, 2..6).await;
    until("a full parcel", || patient.taken().len() == 6).await;
    push(&mirror, 6..8).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(patient.attempts(), 6);
    until("the rest, which waited", || patient.taken().len() == 8).await;
    let dropped = target(&mirror, "patient").dropped.samples.get();
    assert_eq!(dropped, 2, "once for each parcel");
}
