//! Finds blocks that contain series whose samples the retention rules no longer keep.
//!
//! A merge leaves expired samples out, but the largest blocks are not merged again. This module
//! plans their rewrite, once all samples of a set of blocks are older than the cutoff of a rule.
//! Invariant: after the rewrite, the set contains no series of the rule, so a set is rewritten at
//! most once for each rule.

use super::Compactor;
use crate::block::{BlockId, LabelsReader};
use crate::blocks::plan::{self, MergePlan};
use crate::blocks::{BlockList, BlockSet, OpenBlock};
use crate::parts::retention_rules::{RetentionCutoffs, RetentionRules};
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use std::collections::BTreeSet;

/// Maximum memory of a look-up in a block, in bytes: lists of all series of the largest block.
const LOOKUP_BYTES_MAX: usize = 256 << 20;

/// The blocks that contain no series of a rule.
#[derive(Debug, Default)]
pub(super) struct ExpiryChecks {
    rules: RetentionRules,
    /// Pairs of block and number of a rule. A block never gets another series.
    without: BTreeSet<(BlockId, usize)>,
}

impl ExpiryChecks {
    /// Discards the checks of previous rules and of blocks that no longer exist.
    fn update(&mut self, rules: &RetentionRules, list: &BlockList) {
        if self.rules != *rules {
            self.without.clear();
            self.rules = rules.clone();
        }
        self.without.retain(|(id, _)| list.contains(*id));
    }
}

impl Compactor<'_> {
    /// Returns the rewrite of the first set of blocks that contains only expired samples of a
    /// series.
    pub(super) fn plan_expiry(
        &self,
        list: &BlockList,
        checks: &mut ExpiryChecks,
    ) -> Option<MergePlan> {
        let cutoffs = self.policy.cutoffs()?;
        checks.update(cutoffs.rules(), list);
        let view = self.blocks.view();
        let mut sets = BlockSet::split_into_sets(&list.blocks);
        let expired = sets.find(|set| {
            let is_in_set = |open: &&OpenBlock| set.blocks().iter().any(|b| b.id == open.entry.id);
            let mut blocks = view.blocks.iter().map(|open| &**open).filter(is_in_set);
            !set.is_bad() && blocks.any(|open| has_expired_series(open, &cutoffs, checks))
        });
        expired.map(plan::plan_rewrite)
    }
}

/// Returns whether a block contains a series all of whose samples in it are expired.
fn has_expired_series(
    open: &OpenBlock,
    cutoffs: &RetentionCutoffs,
    checks: &mut ExpiryChecks,
) -> bool {
    let id = open.entry.id;
    cutoffs
        .rules_without(open.entry.range.max)
        .any(|(rule, matchers)| {
            if checks.without.contains(&(id, rule)) {
                return false;
            }
            let found = has_series_of_rule(open, cutoffs.rules(), rule, matchers);
            let found = found.unwrap_or_else(|error| {
                tracing::warn!(block = %id, %error, "cannot check a block for expired series");
                false
            });
            if !found {
                checks.without.insert((id, rule));
            }
            found
        })
}

/// Returns whether `rule` is the first one that matches a series of the block.
fn has_series_of_rule(
    open: &OpenBlock,
    rules: &RetentionRules,
    rule: usize,
    matchers: &[Matcher],
) -> Result<bool, Error> {
    if !open.may_match(matchers) {
        return Ok(false);
    }
    let mut memory = Budget::new("expired series", LOOKUP_BYTES_MAX).create_reservation();
    let ordinals = open
        .block
        .lookup(matchers, &CancelToken::new(), &mut memory)?;
    let mut labels = LabelsReader::for_whole_block();
    let mut found = false;
    for ordinal in ordinals {
        labels.read(&open.block, [ordinal], &mut |_, labels| {
            found = rules.find(labels) == rule;
        })?;
        if found {
            break;
        }
    }
    Ok(found)
}
