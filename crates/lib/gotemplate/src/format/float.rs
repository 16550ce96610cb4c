//! Formats floats like Go's `strconv.FormatFloat`.
//!
//! Invariant: without a precision, the output has the fewest digits that parse to the same value.

/// Maximum number of digits after the decimal point that a float can have. Further digits are
/// zeros.
const DIGITS_MAX: usize = 1100;

/// Formats `value` with one of the verbs `b e E f g G x X`. A plus sign is written only before
/// infinity.
pub(super) fn format(value: f64, verb: char, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let lower = verb.to_ascii_lowercase();
    let text = match lower {
        'b' => binary(value),
        'e' => exponential(value, precision),
        'f' => fixed(value, precision),
        'x' => hexadecimal(value, precision),
        _ => general(value, precision),
    };
    if verb.is_ascii_uppercase() {
        text.to_ascii_uppercase()
    } else {
        text
    }
}

/// Returns the decimal digits of the mantissa, the exponent, and the number of zeros that must be
/// appended for the requested precision.
fn scientific(value: f64, digits: Option<usize>) -> (String, i32, usize) {
    let (text, zeros) = match digits {
        None => (format!("{value:e}"), 0),
        Some(digits) => {
            let shown = digits.min(DIGITS_MAX);
            (format!("{value:.shown$e}"), digits - shown)
        }
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.to_owned(), exponent.parse().unwrap_or(0), zeros)
}

fn exponential(value: f64, precision: Option<usize>) -> String {
    let (mantissa, exponent, zeros) = scientific(value, precision);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{mantissa}{}e{sign}{:02}",
        "0".repeat(zeros),
        exponent.abs()
    )
}

fn fixed(value: f64, precision: Option<usize>) -> String {
    match precision {
        None => format!("{value}"),
        Some(precision) => {
            let shown = precision.min(DIGITS_MAX);
            format!("{value:.shown$}{}", "0".repeat(precision - shown))
        }
    }
}

/// Formats with `g`: an exponent only for very large and very small numbers, and no trailing zeros.
fn general(value: f64, precision: Option<usize>) -> String {
    let digits = precision.map(|precision| precision.clamp(1, DIGITS_MAX));
    let (mantissa, exponent, _) = scientific(value, digits.map(|digits| digits - 1));
    let mantissa = if mantissa.contains('.') {
        mantissa.trim_end_matches('0').trim_end_matches('.')
    } else {
        &mantissa
    };
    let digits_count = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    let end = match precision {
        None => 6,
        Some(_) => {
            let digits = digits.unwrap_or(1) as i32;
            if digits > digits_count && digits_count > exponent {
                digits_count
            } else {
                digits
            }
        }
    };
    if exponent < -4 || exponent >= end {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let decimals = (digits_count - 1 - exponent).max(0) as usize;
    match precision {
        None => format!("{value:.decimals$}"),
        // The digits are already rounded to the precision.
        Some(_) => place_point(mantissa, exponent),
    }
}

/// Returns the digits of `mantissa` with the decimal point moved by `exponent`.
fn place_point(mantissa: &str, exponent: i32) -> String {
    let (sign, unsigned) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits = unsigned.replace('.', "");
    let Ok(whole_len) = usize::try_from(exponent + 1) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("{sign}0.{zeros}{digits}");
    };
    match whole_len {
        0 => format!("{sign}0.{digits}"),
        _ if whole_len >= digits.len() => {
            format!("{sign}{digits}{}", "0".repeat(whole_len - digits.len()))
        }
        _ => format!("{sign}{}.{}", &digits[..whole_len], &digits[whole_len..]),
    }
}

/// Returns the mantissa as an integer, including the implicit bit, and the exponent of its lowest
/// bit.
fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52 & 0x7ff) as i32 {
        0 => (fraction, -1074),
        exponent => (fraction | 1 << 52, exponent - 1075),
    }
}

fn sign(value: f64) -> &'static str {
    if value.is_sign_negative() { "-" } else { "" }
}

/// Formats in Go's binary form, for example `4503599627370496p-52`.
fn binary(value: f64) -> String {
    let (mantissa, exponent) = parts(value);
    format!("{}{mantissa}p{exponent:+}", sign(value))
}

/// Formats in hexadecimal form, for example `0x1.8p+01`.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let (mut mantissa, last) = parts(value);
    let mut exponent = match mantissa {
        0 => 0,
        _ => last + 52,
    };
    // Normalizes the mantissa to one bit before the point and 60 bits after it.
    let shift = mantissa.leading_zeros().min(63);
    if mantissa != 0 {
        exponent -= shift as i32 - 11;
        mantissa = mantissa << shift >> 3;
    }
    if let Some(digits) = precision.filter(|digits| *digits < 15) {
        let dropped = 60 - 4 * digits as u32;
        let (half, rest) = (1u64 << (dropped - 1), mantissa & ((1 << dropped) - 1));
        mantissa >>= dropped;
        if rest > half || rest == half && mantissa & 1 == 1 {
            mantissa += 1;
        }
        mantissa <<= dropped;
        if mantissa >> 61 != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let digits = format!("{:015x}", mantissa & ((1 << 60) - 1));
    let fraction = match precision {
        None => digits.trim_end_matches('0').to_owned(),
        Some(precision) if precision < 15 => digits[..precision].to_owned(),
        Some(precision) => format!("{digits}{}", "0".repeat(precision - 15)),
    };
    let point = if fraction.is_empty() { "" } else { "." };
    let sign_of_power = if exponent < 0 { '-' } else { '+' };
    format!(
        "{}0x{}{point}{fraction}p{sign_of_power}{:02}",
        sign(value),
        mantissa >> 60,
        exponent.abs()
    )
}
