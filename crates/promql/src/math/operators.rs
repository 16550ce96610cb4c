//! Binary operators between two floats.

use crate::ast::BinaryOp;
use crate::math::trig;
use firn_model::log_exp;

/// Calls `f` with the arithmetic of `op`, so that the caller's loop is compiled for each operator.
/// Operators that are no arithmetic of floats have none.
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

/// A loop over an operator.
pub(crate) trait ArithmeticLoop<T> {
    /// Runs it.
    fn run(self, op: impl Fn(f64, f64) -> f64) -> T;
}

/// What a comparison says.
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

/// The operator's result for two scalars.
pub(crate) fn of_scalars(op: BinaryOp, left: f64, right: f64) -> f64 {
    struct Once(f64, f64);
    impl ArithmeticLoop<f64> for Once {
        fn run(self, op: impl Fn(f64, f64) -> f64) -> f64 {
            op(self.0, self.1)
        }
    }
    with_arithmetic(op, Once(left, right))
        .unwrap_or_else(|| f64::from(u8::from(compare(op, left, right))))
}
