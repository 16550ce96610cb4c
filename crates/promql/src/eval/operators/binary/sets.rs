//! The set operators `and`, `or` and `unless`, which keep elements depending on whether the other
//! side has an element with the same signature at the same step.

use super::labels::Signatures;
use crate::ast::BinaryOp;
use crate::eval::account::Account;
use crate::eval::operators::stream::{Collision, merge_equal};
use crate::eval::rows::frame::Frame;
use crate::eval::rows::row::{ABSENT, RowBuffer, is_absent};
use crate::value::QueryError;
use std::sync::Arc;

/// Evaluates a set operation on the rows of two vectors.
pub(super) fn frame(
    op: BinaryOp,
    left: Arc<Frame>,
    right: Arc<Frame>,
    signatures: &Signatures,
    account: &Account<'_>,
) -> Result<Frame, QueryError> {
    let steps = left.steps().max(right.steps());
    let _presence = account.reserve(signatures.count.saturating_mul(steps))?;
    match op {
        BinaryOp::Or => {
            let taken = Presence::of(&left, &signatures.left, signatures.count, account)?;
            let mut rest = taken.filter(&right, &signatures.right, false, account)?;
            rest.replace(right, account)?;
            let mut out = Arc::try_unwrap(left).or_else(|left| left.duplicate(account))?;
            out.append(rest);
            if steps > 1 {
                return merge_equal(out, Collision::Merged, account);
            }
            Ok(out)
        }
        _ => {
            let other = Presence::of(&right, &signatures.right, signatures.count, account)?;
            let mut out = other.filter(&left, &signatures.left, op == BinaryOp::And, account)?;
            out.replace(left, account)?;
            Ok(out)
        }
    }
}

/// The steps at which each signature has an element.
struct Presence {
    steps: usize,
    present: Vec<bool>,
}

impl Presence {
    fn of(
        frame: &Frame,
        ids: &[u32],
        count: usize,
        account: &Account<'_>,
    ) -> Result<Self, QueryError> {
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

    /// Returns the elements of `frame` at the steps at which the presence of their signature equals
    /// `wanted`.
    fn filter(
        &self,
        frame: &Frame,
        ids: &[u32],
        wanted: bool,
        account: &Account<'_>,
    ) -> Result<Frame, QueryError> {
        let mut out = frame.like(frame.steps());
        // Both frames are in memory until the copy is complete.
        let _copied = account.reserve(frame.bytes())?;
        let mut row = RowBuffer::default();
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
            out.push_as(frame, series, row.row());
        }
        Ok(out)
    }
}
