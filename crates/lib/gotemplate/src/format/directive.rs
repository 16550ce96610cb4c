//! Interprets the format string of `printf`: literal text and directives with their arguments.

use super::printer::{PrintfFlags, PrintfPrinter};
use super::text::first_char;
use crate::value::{BasicKind, TemplateValue};

/// Maximum width and precision that Go accepts. Larger ones are not accepted here either.
const SIZE_MAX: usize = 1_000_000;

/// Position in a format string and its arguments, with the state that Go keeps for argument
/// numbers.
struct FormatReader<'f> {
    format: &'f [u8],
    at: usize,
    args: &'f [TemplateValue],
    arg: usize,
    /// True if an argument was selected by its number. Unused arguments are then not reported.
    reordered: bool,
    /// True unless the directive contains an invalid argument number.
    good_number: bool,
    /// True if the previous element of the directive was an argument number in brackets.
    after_number: bool,
}

impl PrintfPrinter {
    pub(super) fn format(&mut self, format: &[u8], args: &[TemplateValue]) {
        let mut reader = FormatReader {
            format,
            at: 0,
            args,
            arg: 0,
            reordered: false,
            good_number: true,
            after_number: false,
        };
        while reader.at < format.len() && !self.is_full {
            reader.good_number = true;
            let rest = &format[reader.at..];
            let text_len = rest.iter().position(|b| *b == b'%').unwrap_or(rest.len());
            self.push(&rest[..text_len]);
            reader.at += text_len;
            if reader.at < format.len() {
                reader.at += 1;
                self.directive(&mut reader);
            }
        }
        if !reader.reordered && reader.arg < args.len() {
            self.flags = PrintfFlags::default();
            self.push(b"%!(EXTRA ");
            for (index, arg) in args[reader.arg..].iter().enumerate() {
                if index > 0 {
                    self.push(b", ");
                }
                self.typed(arg);
            }
            self.push(b")");
        }
    }

    /// Interprets a directive after its percent sign: flags, width, precision and verb, each with
    /// its arguments.
    fn directive(&mut self, reader: &mut FormatReader<'_>) {
        self.flags = PrintfFlags::default();
        while let Some(flag) = reader.peek() {
            match flag {
                b'#' => self.flags.sharp = true,
                b'0' => self.flags.zero = true,
                b'+' => self.flags.plus = true,
                b'-' => self.flags.minus = true,
                b' ' => self.flags.space = true,
                _ => break,
            }
            reader.at += 1;
        }
        reader.argument_number();
        self.width(reader);
        self.precision(reader);
        if !reader.after_number {
            reader.argument_number();
        }
        let rest = &reader.format[reader.at..];
        if rest.is_empty() {
            return self.push(b"%!(NOVERB)");
        }
        let (verb, len) = first_char(rest);
        reader.at += len;
        self.verb(verb, reader);
    }

    fn width(&mut self, reader: &mut FormatReader<'_>) {
        if reader.peek() == Some(b'*') {
            reader.at += 1;
            match reader.star() {
                Some(width) => {
                    self.flags.minus |= width < 0;
                    self.flags.zero &= width >= 0;
                    self.flags.width = Some(width.unsigned_abs() as usize);
                }
                None => self.push(b"%!(BADWIDTH)"),
            }
            reader.after_number = false;
            return;
        }
        let width = reader.number();
        if reader.after_number && width.is_some() {
            reader.good_number = false;
        }
        self.flags.width = width;
    }

    fn precision(&mut self, reader: &mut FormatReader<'_>) {
        // A period at the end of the format is taken as a verb, as in Go.
        if reader.peek() != Some(b'.') || reader.at + 1 == reader.format.len() {
            return;
        }
        reader.at += 1;
        if reader.after_number {
            reader.good_number = false;
        }
        reader.argument_number();
        if reader.peek() == Some(b'*') {
            reader.at += 1;
            match reader.star() {
                Some(precision) if precision >= 0 => {
                    self.flags.precision = Some(precision as usize);
                }
                _ => self.push(b"%!(BADPREC)"),
            }
            reader.after_number = false;
            return;
        }
        self.flags.precision = Some(reader.number().unwrap_or(0));
    }

    fn verb(&mut self, verb: char, reader: &mut FormatReader<'_>) {
        if verb == '%' {
            return self.push(b"%");
        }
        let misuse = match () {
            () if !reader.good_number => "(BADINDEX)",
            () if reader.arg >= reader.args.len() => "(MISSING)",
            () => "",
        };
        if !misuse.is_empty() {
            self.push(b"%!");
            self.push_char(verb);
            return self.push_str(misuse);
        }
        if matches!(verb, 'v' | 'w') {
            self.flags.sharp_v = std::mem::take(&mut self.flags.sharp);
            self.flags.plus_v = std::mem::take(&mut self.flags.plus);
        }
        let arg = &reader.args[reader.arg];
        reader.arg += 1;
        self.value(arg, verb);
    }

    /// Writes an unused or misused argument as `type=value`, or `<nil>` without a value.
    pub(super) fn typed(&mut self, arg: &TemplateValue) {
        let value = arg.clone().unwrap_interface();
        if !value.is_valid() {
            return self.push(b"<nil>");
        }
        self.push_str(&value.type_name());
        self.push(b"=");
        self.value(&value, 'v');
    }
}

impl FormatReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    /// Reads a decimal number. Returns `None` without digits, or if the number exceeds Go's limit.
    fn number(&mut self) -> Option<usize> {
        let rest = &self.format[self.at..];
        let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if len == 0 {
            return None;
        }
        let mut number = 0;
        for digit in &rest[..len] {
            if number > SIZE_MAX {
                // Go gives up on the rest of the format after a number that is too large.
                self.at = self.format.len();
                return None;
            }
            number = number * 10 + usize::from(digit - b'0');
        }
        self.at += len;
        Some(number)
    }

    /// Reads an argument number in brackets like `[3]`, which selects the next argument.
    fn argument_number(&mut self) {
        self.after_number = false;
        let rest = &self.format[self.at..];
        if rest.first() != Some(&b'[') {
            return;
        }
        self.reordered = true;
        let end = rest
            .iter()
            .position(|b| *b == b']')
            .filter(|_| rest.len() >= 3);
        let Some(end) = end else {
            self.good_number = false;
            self.at += 1;
            return;
        };
        let number = std::str::from_utf8(&rest[1..end])
            .ok()
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse::<usize>().ok());
        self.at += end + 1;
        self.after_number = number.is_some();
        match number {
            Some(number) if (1..=self.args.len()).contains(&number) => self.arg = number - 1,
            _ => self.good_number = false,
        }
    }

    /// Consumes the argument of a `*`. Returns its value if it is an integer within Go's limits.
    fn star(&mut self) -> Option<i64> {
        let value = self.args.get(self.arg)?.clone().unwrap_interface();
        self.arg += 1;
        match value {
            TemplateValue::Int(_, number)
                if matches!(value.basic_kind(), BasicKind::Int | BasicKind::Uint)
                    && number.unsigned_abs() as usize <= SIZE_MAX =>
            {
                Some(number)
            }
            _ => None,
        }
    }
}
