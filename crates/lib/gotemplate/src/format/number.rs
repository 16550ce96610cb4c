//! Formats booleans, integers, floats and complex numbers by `printf` verb.

use super::float;
use super::printer::PrintfPrinter;

impl PrintfPrinter {
    /// Writes `true` or `false` with padding. Returns whether `verb` applies to booleans; otherwise
    /// writes nothing.
    pub(super) fn boolean(&mut self, value: bool, verb: char) -> bool {
        let is_fit = matches!(verb, 't' | 'v');
        if is_fit {
            self.pad(if value { b"true" } else { b"false" });
        }
        is_fit
    }

    /// Writes an integer in the base of the verb. Returns whether `verb` applies to integers;
    /// otherwise writes nothing.
    pub(super) fn integer(&mut self, value: i64, is_signed: bool, verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v && !is_signed => {
                self.flags.sharp = true;
                self.digits(value, is_signed, 16, 'v');
                self.flags.sharp = false;
            }
            'v' | 'd' => self.digits(value, is_signed, 10, verb),
            'b' => self.digits(value, is_signed, 2, verb),
            'o' | 'O' => self.digits(value, is_signed, 8, verb),
            'x' | 'X' => self.digits(value, is_signed, 16, verb),
            'c' => self.character(value as u64),
            'q' => self.quoted_character(value as u64),
            'U' => self.unicode(value as u64),
            _ => return false,
        }
        true
    }

    fn digits(&mut self, value: i64, is_signed: bool, radix: u32, verb: char) {
        let is_negative = is_signed && value < 0;
        let magnitude = if is_negative {
            value.unsigned_abs()
        } else {
            value as u64
        };
        let flags = self.flags;
        let zeros = match flags.precision {
            Some(0) if magnitude == 0 => return self.repeat(b' ', flags.width.unwrap_or(0)),
            Some(precision) => precision,
            None if flags.zero && !flags.minus => {
                let has_sign = is_negative || flags.plus || flags.space;
                flags
                    .width
                    .unwrap_or(0)
                    .saturating_sub(usize::from(has_sign))
            }
            None => 0,
        };
        let digits = match (radix, verb) {
            (2, _) => format!("{magnitude:b}"),
            (8, _) => format!("{magnitude:o}"),
            (16, 'X') => format!("{magnitude:X}"),
            (16, _) => format!("{magnitude:x}"),
            _ => magnitude.to_string(),
        };
        if zeros > self.bytes_max {
            self.is_full = true;
            return;
        }
        let digits = "0".repeat(zeros.saturating_sub(digits.len())) + &digits;
        let prefix = match radix {
            2 if flags.sharp => "0b",
            8 if flags.sharp && !digits.starts_with('0') => "0",
            16 if flags.sharp && verb == 'X' => "0X",
            16 if flags.sharp => "0x",
            _ => "",
        };
        let octal = if verb == 'O' { "0o" } else { "" };
        let sign = match () {
            () if is_negative => "-",
            () if flags.plus => "+",
            () if flags.space => " ",
            () => "",
        };
        self.flags.zero = false;
        self.pad(format!("{sign}{octal}{prefix}{digits}").as_bytes());
        self.flags.zero = flags.zero;
    }

    /// Writes a float with the default precision of the verb. Returns whether `verb` applies to
    /// floats; otherwise writes nothing.
    pub(super) fn float(&mut self, value: f64, verb: char) -> bool {
        match verb {
            'v' => self.float_digits(value, 'g', None),
            'b' | 'g' | 'G' | 'x' | 'X' => self.float_digits(value, verb, None),
            'f' | 'e' | 'E' => self.float_digits(value, verb, Some(6)),
            'F' => self.float_digits(value, 'f', Some(6)),
            _ => return false,
        }
        true
    }

    /// Writes a complex number. Returns whether `verb` applies to complex numbers.
    pub(super) fn complex(&mut self, real: f64, imaginary: f64, verb: char) -> bool {
        if !"vbgGxXfFeE".contains(verb) {
            return false;
        }
        let plus = self.flags.plus;
        self.push(b"(");
        self.float(real, verb);
        self.flags.plus = true;
        self.float(imaginary, verb);
        self.push(b"i)");
        self.flags.plus = plus;
        true
    }

    fn float_digits(&mut self, value: f64, verb: char, precision: Option<usize>) {
        let flags = self.flags;
        let precision = flags.precision.or(precision);
        if precision.is_some_and(|precision| precision > self.bytes_max) {
            self.is_full = true;
            return;
        }
        let text = float::format(value, verb, precision);
        let (sign, digits) = match text.strip_prefix(['+', '-']) {
            Some(rest) => (&text[..1], rest.to_owned()),
            None => ("+", text.clone()),
        };
        let sign = match sign {
            "+" if flags.space && !flags.plus => " ",
            sign => sign,
        };
        if !value.is_finite() {
            let shows_sign = !value.is_nan() || flags.space || flags.plus;
            self.flags.zero = false;
            let sign = if shows_sign { sign } else { "" };
            let shows_plus = flags.plus || sign != "+" || value.is_infinite();
            let sign = if shows_plus { sign } else { "" };
            self.pad(format!("{sign}{digits}").as_bytes());
            self.flags.zero = flags.zero;
            return;
        }
        let digits = if flags.sharp && verb != 'b' {
            with_point(&digits, verb, precision)
        } else {
            digits
        };
        if !flags.plus && sign == "+" {
            return self.pad(digits.as_bytes());
        }
        let len = digits.len() + 1;
        match flags.width {
            Some(width) if flags.zero && !flags.minus && width > len => {
                self.push_str(sign);
                self.repeat(b'0', width - len);
                self.push_str(&digits);
            }
            _ => self.pad(format!("{sign}{digits}").as_bytes()),
        }
    }
}

/// Adds a decimal point to `digits` and, for `g` and `x`, the trailing zeros that the precision
/// requests: the effect of the flag `#`.
fn with_point(digits: &str, verb: char, precision: Option<usize>) -> String {
    let is_hex = matches!(verb, 'x' | 'X');
    let ends = |c: char| {
        if is_hex {
            matches!(c, 'p' | 'P')
        } else {
            matches!(c, 'e' | 'E')
        }
    };
    let (number, tail) = digits.split_at(digits.find(ends).unwrap_or(digits.len()));
    let mut missing = match verb {
        'g' | 'G' | 'x' => precision.map_or(6, |precision| precision as i64),
        _ => 0,
    };
    let significant = number.trim_start_matches(['0', '.']);
    missing -= significant.bytes().filter(|b| *b != b'.').count() as i64;
    let mut out = number.to_owned();
    if !number.contains('.') {
        if number == "0" {
            missing -= 1;
        }
        out.push('.');
    }
    out + &"0".repeat(missing.max(0) as usize) + tail
}
