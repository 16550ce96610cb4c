//! Binary operators on two floats.

use crate::ast::BinaryOp;
use crate::math::trig;
use firn_model::log_exp;

/// Calls `f` with the arithmetic of `op`, so that the compiler creates a specialized loop for each
/// operator. Returns `None` if `op` is not arithmetic on floats.
pub(crate) fn with_arithmetic<T>(op: BinaryOp, f: impl ArithmeticLoop<T>) -> Option<T> {
    Some(match op {
        BinaryOp::Add => f.run(|a, b| a + b),
        BinaryOp::Sub => f.run(|a, b| a - b),
        BinaryOp::Mul => f.run(|a, b| a * b),
        BinaryOp::Div => f.run(|a, b| a / b),
        BinaryOp::Mod => f.run(|a, b| a % b),
        BinaryOp::Pow => f.run(log_exp::pow),
        BinaryOp::Atan2 => f.run(trig::atan2),
        _ => return None,
    })
}

/// A loop that is generic over the arithmetic operator.
pub(crate) trait ArithmeticLoop<T> {
    /// Runs the loop with the operator `op`, which is inlined into it.
    fn run(self, op: impl Fn(f64, f64) -> f64) -> T;
}

/// Returns the result of a comparison, and false if `op` is not a comparison.
pub(crate) fn compare(op: BinaryOp, left: f64, right: f64) -> bool {
    match op {
        BinaryOp::Equal => left == right,
        BinaryOp::NotEqual => left != right,
        BinaryOp::Greater => left > right,
        BinaryOp::Less => left < right,
        BinaryOp::GreaterOrEqual => left >= right,
        BinaryOp::LessOrEqual => left <= right,
        _ => false,
    }
}

/// Returns the result of the operator for two scalars. Comparisons return 0 or 1.
pub(crate) fn apply_to_scalars(op: BinaryOp, left: f64, right: f64) -> f64 {
    struct ScalarPair(f64, f64);
    impl ArithmeticLoop<f64> for ScalarPair {
        fn run(self, op: impl Fn(f64, f64) -> f64) -> f64 {
            op(self.0, self.1)
        }
    }
    with_arithmetic(op, ScalarPair(left, right))
        .unwrap_or_else(|| f64::from(u8::from(compare(op, left, right))))
}
