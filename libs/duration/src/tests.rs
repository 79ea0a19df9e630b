use super::*;

/// Compares with the results of Go 1.26.
#[test]
fn durations_are_those_of_go() {
    for (text, nanos) in [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("0s", 0),
        ("500ms", 500_000_000),
        ("1h30m", 5_400_000_000_000),
        ("-1m30.5s", -90_500_000_000),
        (".5h", 1_800_000_000_000),
        ("5.s", 5_000_000_000),
        ("1\u{b5}s", 1_000),
        ("1\u{3bc}s1us", 2_000),
        ("39h9m14.425s", 140_954_425_000_000),
        // Exact where a floating-point number is not.
        ("9007199254740993ns", 9_007_199_254_740_993),
        ("0.3333333333333333333h", 1_200_000_000_000),
        ("0.100000000000000000000h", 360_000_000_000),
        ("0.830103483285477580700h", 2_988_372_539_827),
        // The longest durations.
        ("9223372036854775807ns", i64::MAX),
        ("-9223372036854775808ns", i64::MIN),
        ("2562047h47m16.854775807s", i64::MAX),
        ("-2562047h47m16.854775808s", i64::MIN),
    ] {
        assert_eq!(parse(text), Ok(SignedDuration::from_nanos(nanos)), "{text}");
    }
}

#[test]
fn errors_are_those_of_go() {
    for (text, want) in [
        ("", r#"time: invalid duration """#),
        ("+", r#"time: invalid duration "+""#),
        (".", r#"time: invalid duration ".""#),
        ("-.s", r#"time: invalid duration "-.s""#),
        ("--1s", r#"time: invalid duration "--1s""#),
        ("x", r#"time: invalid duration "x""#),
        ("PT1H", r#"time: invalid duration "PT1H""#),
        (" 1h", r#"time: invalid duration " 1h""#),
        ("5", r#"time: missing unit in duration "5""#),
        ("1h5", r#"time: missing unit in duration "1h5""#),
        ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
        ("5d", r#"time: unknown unit "d" in duration "5d""#),
        ("1 hour", r#"time: unknown unit " hour" in duration "1 hour""#),
        ("1h 30m", r#"time: unknown unit "h " in duration "1h 30m""#),
        ("\n1s", r#"time: invalid duration "\x0a1s""#),
        ("1\u{80}s", r#"time: unknown unit "\xc2\x80s" in duration "1\xc2\x80s""#),
        ("\\\"", r#"time: invalid duration "\\\"""#),
        // One nanosecond too many, and far too many.
        ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
        ("-9223372036854775809ns", r#"time: invalid duration "-9223372036854775809ns""#),
        ("2562047h47m16.854775808s", r#"time: invalid duration "2562047h47m16.854775808s""#),
        ("99999999999999999999x", r#"time: invalid duration "99999999999999999999x""#),
    ] {
        assert_eq!(parse(text).map_err(|error| error.to_string()), Err(want.to_owned()), "{text:?}");
    }
}

#[test]
fn durations_are_printed_as_go_prints_them() {
    for text in ["0s", "1ns", "1.5\u{b5}s", "250ms", "1.000000001s", "1m30s", "1h0m0.5s", "-26h0m1s"] {
        assert_eq!(parse(text).map(print), Ok(text.to_owned()));
    }
    assert_eq!(print(SignedDuration::MAX), "2562047h47m16.854775807s");
}
