//! Label names and values: from the index for head and pages, and from blocks.
//!
//! If samples in the range may be deleted, the series that have a sample left are selected instead.

use super::StoreReader;
use crate::blocks::OpenBlock;
use crate::sync::lock;
use firn_model::budget::Reservation;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::SelectRequest;
use std::collections::BTreeSet;

impl StoreReader {
    /// Implements [`firn_model::store::Select::label_names`].
    pub(crate) fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        if let Some(names) = self.label_names_of_left(request)? {
            return Ok(names);
        }
        self.collect_names(
            request,
            |range| {
                self.parts
                    .head
                    .index
                    .label_names(request.matchers, range, request.cancel)
            },
            |open, memory| {
                open.block
                    .label_names(request.matchers, request.cancel, memory)
            },
        )
    }

    /// Implements [`firn_model::store::Select::label_values`].
    pub(crate) fn label_values(
        &self,
        name: &str,
        request: SelectRequest<'_>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        if let Some(values) = self.label_values_of_left(name, request)? {
            return Ok(values);
        }
        let (matchers, cancel) = (request.matchers, request.cancel);
        self.collect_names(
            request,
            |range| {
                self.parts
                    .head
                    .index
                    .label_values(name, matchers, range, cancel)
            },
            |open, memory| open.block.label_values(name, matchers, cancel, memory),
        )
    }

    /// Returns whether head and pages begin before the end of `range` and end after its start.
    /// Upstream makes only this check, so an inverted range within the data selects all of it.
    /// Blocks are checked with [`TimeRange::overlaps`].
    fn is_head_in_range(&self, range: TimeRange) -> bool {
        let held = self.parts.oldest().zip(self.parts.head.newest());
        held.is_some_and(|(min, max)| TimeRange::new(min, max).overlaps(&range))
    }

    /// Returns the time from which head and pages own samples: the cut, or all times while earlier
    /// late samples wait for their block.
    fn head_owned_since(&self, cut: TimestampMs) -> TimestampMs {
        let is_before = |range: TimeRange| range.min < cut;
        let waits = self.parts.head.shards.iter().any(|shard| {
            let shard = lock(shard);
            let mut ranges = shard.late.iter().filter_map(|(_, series)| series.range());
            ranges.any(is_before)
        });
        if waits { TimestampMs::MIN } else { cut }
    }

    /// Returns the sorted results of the index, for the part of the request's range that head and
    /// pages own, and of blocks, for the whole range.
    fn collect_names<T: Ord>(
        &self,
        request: SelectRequest<'_>,
        of_index: impl FnOnce(TimeRange) -> Result<Vec<T>, Error>,
        of_block: impl Fn(&OpenBlock, &mut Reservation) -> Result<Vec<T>, Error>,
    ) -> Result<Vec<T>, Error> {
        if *request.tenant != self.parts.options.tenant {
            return Ok(Vec::new());
        }
        request.bind_matchers();
        let view = self.parts.blocks.view();
        let is_inverted = request.range.min > request.range.max;
        let since = if request.range.min < view.cut || is_inverted {
            self.head_owned_since(view.cut)
        } else {
            view.cut
        };
        let range = TimeRange::new(request.range.min.max(since), request.range.max);
        let of_index = if range.min <= range.max {
            of_index(range)?
        } else if is_inverted && self.is_head_in_range(request.range) {
            of_index(TimeRange::new(since, i64::MAX))?
        } else {
            Vec::new()
        };
        // A series that left the index in the meantime is in a block of this view.
        let view = self.parts.blocks.view();
        let mut blocks = view
            .find_matching(request.range, request.matchers)
            .peekable();
        if blocks.peek().is_none() {
            return Ok(of_index);
        }
        let mut all: BTreeSet<T> = of_index.into_iter().collect();
        let mut memory = request.budget.create_reservation();
        for open in blocks {
            match of_block(open, &mut memory) {
                Ok(found) => all.extend(found),
                // From here on, queries of this range return a warning.
                Err(e) if e.kind == ErrorKind::Corrupt => {
                    self.report_lookup_loss(open, &e);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(all.into_iter().collect())
    }
}
