//! The steps of a check. Each compares the answers of the store with the known content.

use super::CheckOptions;
use super::creators::{RaceEnd, content, judge, race};
use super::report::{CheckStep, StepTimes, StoreReport, StoreVerdict};
use crate::blocking::BlockingBucket;
use crate::bucket::{Bucket, ByteRange, Creation, ListRequest};
use crate::error::{BucketError, BucketFailure};
use crate::key::{KeyPrefix, ObjectKey};
use bytes::Bytes;
use firn_model::env::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of times that an operation with an error is tried.
const TRIES: u32 = 6;

/// Objects in a page, so that the list of a complete check has several pages.
const PAGE_OBJECTS: usize = 7;

/// The step with which every check starts.
const FIRST_STEP: &str = "first list";

/// Why a check ends before its end.
#[derive(Debug)]
pub(super) enum CheckFinding {
    /// The store gave a wrong answer.
    Wrong(String),
    /// An operation failed again and again.
    Error(BucketError),
}

impl From<BucketError> for CheckFinding {
    fn from(error: BucketError) -> Self {
        CheckFinding::Error(error)
    }
}

/// A running check.
pub(super) struct StoreCheck<'b> {
    bucket: &'b dyn Bucket,
    clock: &'b Arc<dyn Clock>,
    options: CheckOptions,
    prefix: String,
    /// The objects that exist, by key.
    objects: BTreeMap<ObjectKey, Bytes>,
    /// Keys whose creations had no effect yet, but may have one later.
    open: Vec<ObjectKey>,
    done: Vec<CheckStep>,
    step: StepTimes,
    has_created: bool,
}

impl<'b> StoreCheck<'b> {
    pub(super) fn new(
        bucket: &'b dyn Bucket,
        clock: &'b Arc<dyn Clock>,
        options: &CheckOptions,
        name: &str,
    ) -> Self {
        assert!(
            options.key_count > 0 && options.creator_count > 0,
            "an empty check"
        );
        Self {
            bucket,
            clock,
            prefix: format!("{name}/{:016x}/", options.nonce),
            options: options.clone(),
            objects: BTreeMap::new(),
            open: Vec::new(),
            done: Vec::new(),
            step: StepTimes::new(FIRST_STEP),
            has_created: false,
        }
    }

    /// Runs all steps.
    pub(super) fn all(&mut self) -> Result<(), CheckFinding> {
        self.condition()?;
        self.begin("list");
        self.list_in_pages()?;
        self.ranges()?;
        self.deletions()
    }

    /// Runs the steps that test the condition of creations.
    pub(super) fn condition(&mut self) -> Result<(), CheckFinding> {
        // A list reports a missing bucket and wrong keys with their cause, HEAD does not.
        self.list_in_pages()?;
        self.begin("race");
        for index in 0..self.options.key_count {
            self.race_for(index)?;
        }
        self.create_again()
    }

    /// Deletes all objects and returns the report.
    pub(super) fn finish(mut self, verdict: StoreVerdict) -> StoreReport {
        let leftover = if self.has_created {
            self.begin("clean up");
            self.clean_up().err()
        } else {
            None
        };
        let mut steps = self.done;
        steps.push(self.step.finish());
        steps.retain(|step| step.operation_count > 0);
        StoreReport {
            verdict,
            steps,
            prefix: self.prefix,
            leftover,
        }
    }

    fn begin(&mut self, name: &'static str) {
        let last = std::mem::replace(&mut self.step, StepTimes::new(name));
        self.done.push(last.finish());
    }

    /// Lets the creators race until one of them has won.
    fn race_for(&mut self, index: usize) -> Result<(), CheckFinding> {
        let creators = 0..self.options.creator_count;
        let contents: Vec<Bytes> = creators
            .map(|creator| content(self.options.nonce, index, creator))
            .collect();
        let mut last = None;
        for attempt in 0..TRIES {
            let key = ObjectKey::new(&format!("{}{index:04}-{attempt}", self.prefix))?;
            self.expect_missing(&key)?;
            self.has_created = true;
            let entries = race(self.bucket, self.clock, &key, &contents)?;
            for entry in &entries {
                self.step
                    .add(entry.latency, entry.creation.error().is_some());
            }
            let found = self.read(&key)?;
            match judge(&key, &entries, &contents, found.as_ref()) {
                RaceEnd::Won(creator) => {
                    self.expect_head(&key, contents[creator].len())?;
                    self.objects.insert(key, contents[creator].clone());
                    return Ok(());
                }
                RaceEnd::Broken(reason) => return Err(CheckFinding::Wrong(reason)),
                RaceEnd::Open(error) => {
                    self.open.push(key);
                    last = Some(error);
                }
            }
            self.pause(attempt);
        }
        let error = last.expect("at least one try was made");
        Err(CheckFinding::Error(error))
    }

    /// Creates each object again, with another content that must not appear.
    fn create_again(&mut self) -> Result<(), CheckFinding> {
        self.begin("create again");
        let other = Bytes::from_static(b"this content must never appear");
        for (key, expected) in self.objects.clone() {
            let created = self.until_certain(&key, &other)?;
            if created != Creation::Exists {
                return Err(CheckFinding::Wrong(format!(
                    "the store ignores the condition If-None-Match: {key} was created twice"
                )));
            }
            self.expect_content(&key, &expected)?;
        }
        Ok(())
    }

    /// Creates an object until the result is neither ambiguous nor an error.
    fn until_certain(&mut self, key: &ObjectKey, bytes: &Bytes) -> Result<Creation, CheckFinding> {
        let mut last = None;
        for attempt in 0..TRIES {
            let created = self.timed(
                |bucket| bucket.put_new(key, bytes.clone()),
                |created| created.error().is_some(),
            );
            let Some(error) = created.error() else {
                return Ok(created);
            };
            last = Some(error.clone());
            self.pause(attempt);
        }
        Err(CheckFinding::Error(
            last.expect("at least one try was made"),
        ))
    }

    /// Lists all objects in small pages, which must be the known objects.
    fn list_in_pages(&mut self) -> Result<(), CheckFinding> {
        let prefix = KeyPrefix::new(&self.prefix)?;
        let mut next = Some(ListRequest {
            limit: PAGE_OBJECTS,
            ..ListRequest::all(prefix)
        });
        let mut found = Vec::new();
        while let Some(request) = next {
            let page = self.tried(|bucket| bucket.list(&request))?;
            next = page.next(&request);
            found.extend(page.objects);
        }
        let (open, mut expected) = (&self.open, self.objects.iter());
        found.retain(|object| !open.contains(&object.key));
        for object in &found {
            let Some((key, content)) = expected.next() else {
                return Err(wrong_list(&format!("{} is too much", object.key)));
            };
            if *key != object.key || content.len() as u64 != object.head.bytes {
                return Err(wrong_list(&format!("found {}, expected {key}", object.key)));
            }
        }
        match expected.next() {
            Some((key, _)) => Err(wrong_list(&format!("{key} is missing"))),
            None => Ok(()),
        }
    }

    /// Reads ranges at the start, in the middle, and over and behind the end of each object.
    fn ranges(&mut self) -> Result<(), CheckFinding> {
        self.begin("range");
        for (key, expected) in self.objects.clone() {
            let bytes = expected.len() as u64;
            let ranges = [
                ByteRange::new(0, 96),
                ByteRange::new(bytes / 2, 1000),
                ByteRange::new(bytes - 10, 100),
                ByteRange::new(bytes + 5, 10),
            ];
            let found = self.tried(|bucket| bucket.get_ranges(&key, &ranges))?;
            let expected: Vec<Bytes> = ranges.iter().map(|range| range.of(&expected)).collect();
            if found.as_ref() != Some(&expected) {
                let text = format!("ranges of {key} differ from its content");
                return Err(CheckFinding::Wrong(text));
            }
        }
        Ok(())
    }

    /// Deletes all objects, which must not be readable or listed afterwards.
    fn deletions(&mut self) -> Result<(), CheckFinding> {
        self.begin("delete");
        for key in std::mem::take(&mut self.objects).into_keys() {
            self.tried(|bucket| bucket.delete(&key))?;
            self.expect_missing(&key)?;
            if self.read(&key)?.is_some() {
                return Err(CheckFinding::Wrong(format!(
                    "{key} was deleted, and then read"
                )));
            }
        }
        self.begin("last list");
        self.list_in_pages()
    }

    fn clean_up(&mut self) -> Result<(), BucketError> {
        let prefix = KeyPrefix::new(&self.prefix)?;
        let objects_max = self.options.key_count * TRIES as usize;
        let tries = |finding| match finding {
            CheckFinding::Error(error) => error,
            CheckFinding::Wrong(reason) => BucketError::new(BucketFailure::Invalid, reason),
        };
        let left = self
            .tried(|bucket| bucket.list_all(&prefix, objects_max))
            .map_err(tries)?;
        for object in left {
            self.tried(|bucket| bucket.delete(&object.key))
                .map_err(tries)?;
        }
        Ok(())
    }

    fn read(&mut self, key: &ObjectKey) -> Result<Option<Bytes>, CheckFinding> {
        self.tried(|bucket| bucket.get(key))
    }

    fn expect_content(&mut self, key: &ObjectKey, expected: &Bytes) -> Result<(), CheckFinding> {
        if self.read(key)?.as_ref() == Some(expected) {
            return Ok(());
        }
        let text = format!("{key} exists, and its content changed");
        Err(CheckFinding::Wrong(text))
    }

    fn expect_missing(&mut self, key: &ObjectKey) -> Result<(), CheckFinding> {
        match self.tried(|bucket| bucket.head(key))? {
            None => Ok(()),
            Some(_) => Err(CheckFinding::Wrong(format!(
                "the store reports {key}, which is missing"
            ))),
        }
    }

    fn expect_head(&mut self, key: &ObjectKey, bytes: usize) -> Result<(), CheckFinding> {
        match self.tried(|bucket| bucket.head(key))? {
            Some(head) if head.bytes == bytes as u64 => Ok(()),
            Some(head) => Err(CheckFinding::Wrong(format!(
                "the store reports {} bytes of {key}, which has {bytes}",
                head.bytes
            ))),
            None => Err(CheckFinding::Wrong(format!(
                "{key} was read, and then reported as missing by HEAD"
            ))),
        }
    }

    /// Runs an operation and adds its latency to the step.
    fn timed<T>(
        &mut self,
        run: impl FnOnce(BlockingBucket<'b>) -> T,
        is_error: fn(&T) -> bool,
    ) -> T {
        let start = self.clock.monotonic();
        let result = run(BlockingBucket(self.bucket));
        let latency = self.clock.monotonic().saturating_sub(start);
        self.step.add(latency, is_error(&result));
        result
    }

    /// Runs an operation until it succeeds, a few times.
    fn tried<T>(
        &mut self,
        mut run: impl FnMut(BlockingBucket<'b>) -> Result<T, BucketError>,
    ) -> Result<T, CheckFinding> {
        let mut attempt = 0;
        loop {
            let error = match self.timed(&mut run, Result::is_err) {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            attempt += 1;
            if error.failure == BucketFailure::WrongAnswer {
                return Err(CheckFinding::Wrong(error.message));
            }
            if attempt == TRIES || error.failure == BucketFailure::Denied {
                return Err(CheckFinding::Error(error));
            }
            self.pause(attempt);
        }
    }

    fn pause(&self, attempt: u32) {
        if !self.options.pause.is_zero() {
            std::thread::sleep(self.options.pause * 2_u32.pow(attempt.min(TRIES)));
        }
    }
}

fn wrong_list(reason: &str) -> CheckFinding {
    CheckFinding::Wrong(format!(
        "the list is not that of the existing objects: {reason}"
    ))
}
