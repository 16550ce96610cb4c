//! Tests that numbers are parsed and formatted like in Go.

use super::super::number::{
    format_openmetrics_float, format_shortest, parse_any_notation, parse_value,
};
use firn_model::env::sim::SimRng;

#[test]
fn number_value_reads_as_the_standard_library_reads_it() {
    for word in [
        "0",
        "-0",
        "1.",
        ".5",
        "-.5",
        "1.50",
        "00012",
        "123456789012345",
        "1234567890123456",
        "0.000000000000001",
        "99999999999999.9",
        "1e5",
        "1E-5",
        "5e-324",
        "+7",
        "Inf",
        "-inf",
        "+Infinity",
        "9007199254740993",
        "2.2250738585072011e-308",
        "1e-400",
    ] {
        let wanted: f64 = word.parse().unwrap();
        let found = parse_value(word.as_bytes()).unwrap();
        assert_eq!(found.to_bits(), wanted.to_bits(), "{word}");
    }
    assert!(parse_value(b"NaN").unwrap().is_nan());
    for word in [
        "", "-", ".", "-.", "1..2", "1e", "0x1", "infin", "-nan", "1 ", "é",
    ] {
        assert!(parse_value(word.as_bytes()).is_err(), "{word}");
    }
    for seed in 1..=2_000 {
        let random = SimRng::new(seed);
        let digits = random.next_below(1_000_000_000_000_000);
        let text = format!("{digits}");
        let at = random.next_below(text.len() as u64 + 1) as usize;
        let word = format!("{}.{}", &text[..at], &text[at..]);
        let wanted: f64 = word.parse().unwrap();
        assert_eq!(
            parse_value(word.as_bytes()),
            Ok(wanted),
            "seed {seed}: {word}"
        );
    }
}

#[test]
fn number_any_notation_reads_as_go() {
    let cases = [
        ("1_000", Some(1000.0)),
        ("1__0", None),
        ("_1", None),
        ("1_", None),
        ("0x_1p4", Some(16.0)),
        ("0x1p-2", Some(0.25)),
        ("-0X1.8P+1", Some(-3.0)),
        ("0x1", None),
        ("0xp1", None),
        ("0x1p", None),
        ("0x1.1.1p1", None),
        ("0x1p1024", None),
        ("0x1p-1074", Some(5e-324)),
        ("0x1p-1075", Some(0.0)),
        ("0x1.8p-1075", Some(5e-324)),
        ("0x1.fffffffffffff7p0", Some(1.9999999999999998)),
        ("0x1.fffffffffffff8p0", Some(2.0)),
        ("0x1.00000000000008p0", Some(1.0)),
        ("0x1.0000000000000800000000001p0", Some(1.0000000000000002)),
        ("0x0p0", Some(0.0)),
        ("0x1p999999999999", None),
        ("1e3", Some(1000.0)),
        ("1e400", None),
    ];
    for (word, wanted) in cases {
        assert_eq!(parse_any_notation(word.as_bytes()), wanted, "{word}");
    }
}

#[test]
fn number_writes_as_go() {
    for (value, wanted) in [
        (100_000.0, "100000"),
        (1e6, "1e+06"),
        (123_456.0, "123456"),
        (1_234_567.0, "1.234567e+06"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (1e100, "1e+100"),
        (-2.5, "-2.5"),
        (f64::INFINITY, "+Inf"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(format_shortest(value), wanted);
    }
    // Output of Go's strconv.FormatFloat(value, 'g', -1, 64); in the first five the digits end in a
    // tie.
    for (bits, wanted) in [
        (0x3e600000_00000000, "2.9802322387695312e-08"),
        (0x3ea40000_00000000, "5.960464477539062e-07"),
        (0x3eb20000_00000000, "1.0728836059570312e-06"),
        (0x3eba0000_00000000, "1.5497207641601562e-06"),
        (0x3ec10000_00000000, "2.0265579223632812e-06"),
        (0x00000000_00000001, "5e-324"),
        (0x3f500000_00000000, "0.0009765625"),
        (0x41a00000_00000000, "1.34217728e+08"),
        (0x7fe00000_00000000, "8.98846567431158e+307"),
        (0x4306b33a_8573f867, "7.986891770099329e+14"),
        (0x43b6d3bd_82bbe5e2, "1.6448666581161661e+18"),
    ] {
        assert_eq!(format_shortest(f64::from_bits(bits)), wanted);
        assert_eq!(format_shortest(-f64::from_bits(bits)), format!("-{wanted}"));
    }
    for (value, wanted) in [
        (1.0, "1.0"),
        (-0.0, "0.0"),
        (0.25, "0.25"),
        (1e6, "1e+06"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(format_openmetrics_float(value), wanted);
    }
}
