//! Go's `fmt`: values as text, alone and by the verbs of `printf`.
//!
//! ```text
//! printf -- directive --> flags, width, precision, verb -- verb --> number or text, padded
//! print, println, {{ }} -------------------------------- plain --/
//! ```
//!
//! Invariant: no more than the bytes that are left are written, whatever width a format asks for.
//! Texts follow Go's `fmt/print.go` and `fmt/format.go`, those of misuse included.

mod directive;
mod float;
mod number;
mod printer;
mod shown;
mod text;

pub(super) use printer::TooLong;
pub(super) use shown::own_text;
pub(super) use text::can_back_quote;

use super::value::Value;
use printer::Printer;

/// `fmt.Sprint`: blanks between neighbours of which neither is a string.
pub(super) fn print(args: &[Value], bytes_max: usize) -> Result<Vec<u8>, TooLong> {
    let mut printer = Printer::new(bytes_max);
    let is_string = |value: &Value| matches!(value, Value::String(_) | Value::Html(_));
    for (index, arg) in args.iter().enumerate() {
        let follows_string = index == 0 || is_string(&args[index - 1]);
        if !follows_string && !is_string(arg) {
            printer.push(b" ");
        }
        printer.value(arg, 'v');
    }
    printer.finish()
}

/// As an action writes values: nothing as `<no value>`, pointers as what they lead to.
pub(super) fn print_plain(values: &[Value], bytes_max: usize) -> Result<Vec<u8>, TooLong> {
    if let [Value::Sample(Some(sample))] = values {
        let mut printer = Printer::new(bytes_max);
        printer.sample(sample, 'v', 0);
        return printer.finish();
    }
    let plain = |value: &Value| match value.clone().inside() {
        Value::Invalid => Value::string(*b"<no value>"),
        value => value,
    };
    print(&values.iter().map(plain).collect::<Vec<_>>(), bytes_max)
}

/// `fmt.Sprintln`: blanks between all, and the end of a line.
pub(super) fn println(args: &[Value], bytes_max: usize) -> Result<Vec<u8>, TooLong> {
    let mut printer = Printer::new(bytes_max);
    for (index, arg) in args.iter().enumerate() {
        if index > 0 {
            printer.push(b" ");
        }
        printer.value(arg, 'v');
    }
    printer.push(b"\n");
    printer.finish()
}

/// `fmt.Sprintf`.
pub(super) fn printf(format: &[u8], args: &[Value], bytes_max: usize) -> Result<Vec<u8>, TooLong> {
    let mut printer = Printer::new(bytes_max);
    printer.format(format, args);
    printer.finish()
}

/// `%.4g`.
pub(super) fn four_digits(value: f64) -> String {
    float::format(value, 'g', Some(4))
}
