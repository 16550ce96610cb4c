//! The set operators `and`, `or` and `unless`, which keep elements depending on whether the other
//! side has an element with the same signature at the same step.

use super::labels::MatchSignatures;
use crate::ast::BinaryOp;
use crate::eval::account::QueryAccount;
use crate::eval::operators::stream::{NameCollisionRule, merge_equal};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::row::{ABSENT, StepRowBuffer, is_absent};
use crate::value::PromqlError;
use std::sync::Arc;

/// Evaluates a set operation on the rows of two vectors.
pub(super) fn evaluate_set_operation(
    op: BinaryOp,
    left: Arc<SeriesFrame>,
    right: Arc<SeriesFrame>,
    signatures: &MatchSignatures,
    account: &QueryAccount<'_>,
) -> Result<SeriesFrame, PromqlError> {
    let steps = left.steps().max(right.steps());
    let _presence = account.reserve(signatures.count.saturating_mul(steps))?;
    match op {
        BinaryOp::Or => {
            let taken =
                SignaturePresence::from_frame(&left, &signatures.left, signatures.count, account)?;
            let mut rest = taken.filter(&right, &signatures.right, false, account)?;
            rest.take_memory_of(right, account)?;
            let mut out = Arc::try_unwrap(left).or_else(|left| left.duplicate(account))?;
            out.append(rest);
            if steps > 1 {
                return merge_equal(out, NameCollisionRule::Merged, account);
            }
            Ok(out)
        }
        _ => {
            let other = SignaturePresence::from_frame(
                &right,
                &signatures.right,
                signatures.count,
                account,
            )?;
            let mut out = other.filter(&left, &signatures.left, op == BinaryOp::And, account)?;
            out.take_memory_of(left, account)?;
            Ok(out)
        }
    }
}

/// The steps at which each signature has an element.
struct SignaturePresence {
    steps: usize,
    present: Vec<bool>,
}

impl SignaturePresence {
    fn from_frame(
        frame: &SeriesFrame,
        ids: &[u32],
        count: usize,
        account: &QueryAccount<'_>,
    ) -> Result<Self, PromqlError> {
        let steps = frame.steps();
        let mut present = vec![false; count * steps];
        for (series, id) in ids.iter().enumerate() {
            account.check()?;
            let row = frame.row(series);
            let at = *id as usize * steps;
            for (present, value) in present[at..at + steps].iter_mut().zip(row.values) {
                *present |= !is_absent(*value);
            }
            for (step, _) in row.histograms {
                present[at + *step as usize] = true;
            }
        }
        Ok(Self { steps, present })
    }

    /// Returns the elements of `frame` at the steps at which the presence of their
    /// signature equals `wanted`.
    fn filter(
        &self,
        frame: &SeriesFrame,
        ids: &[u32],
        wanted: bool,
        account: &QueryAccount<'_>,
    ) -> Result<SeriesFrame, PromqlError> {
        let mut out = frame.new_like(frame.steps());
        // Both frames are in memory until the copy is complete.
        let _copied = account.reserve(frame.bytes())?;
        let mut row = StepRowBuffer::default();
        for (series, id) in ids.iter().enumerate() {
            account.check()?;
            let at = *id as usize * self.steps;
            let present = &self.present[at..at + self.steps];
            row.copy_from(frame.row(series));
            for (value, present) in row.values.iter_mut().zip(present) {
                if *present != wanted {
                    *value = ABSENT;
                }
            }
            row.histograms
                .retain(|(step, _)| present[*step as usize] == wanted);
            out.push_with_labels_of(frame, series, row.row());
        }
        Ok(out)
    }
}
