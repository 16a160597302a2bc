use proptest::prelude::*;

use super::*;

fn check_name(name: &str, is_good: bool) {
    let result = visible("name", name);
    assert_eq!(result.is_ok(), is_good, "{name:?}: {result:?}");
    if let Err(invalid) = result {
        assert_eq!(invalid.field(), "name");
        let detail = invalid.to_string();
        let hidden = detail.chars().find(|&c| is_hidden(c));
        assert_eq!(hidden, None, "the detail repeats a hidden character: {:?}", detail);
        assert!(detail.len() < 500, "{:?}", detail);
    }
}

#[test]
fn names() {
    let (longest, too_long, too_long_in_bytes) =
        ("x".repeat(200), "x".repeat(201), "é".repeat(101));
    for good in
        ["a", "cleanup", "a b", "größe", "名前", "a/b:c", "..", "{}%s", "👩\u{200d}🔬", &longest]
    {
        check_name(good, true);
    }
    for bad in [
        "",
        " ",
        " a",
        "a ",
        "\ta",
        "a\u{a0}",
        "a\nb",
        "a\0b",
        "a\u{7f}",
        "a\u{85}b",
        "a\u{2028}b",
        "a\u{2029}b",
        "a\u{202e}b",
        "a\u{2066}b",
        "a\u{200f}b",
        "a\u{61c}b",
        "\u{feff}a",
        "a\u{200b}b",
        "a\u{fffd}b",
        "a\u{e0041}b",
        "\u{200d}",
        "a\u{2060}",
        "a\u{ad}b",
        "\u{2800}",
        "\u{115f}",
        "\u{1160}",
        "\u{3164}",
        "\u{ffa0}",
        "\u{17b4}x",
        "prod\u{34f}",
        "prod\u{fe0f}",
        "prod\u{200d}",
        "pr\u{200d}od",
        "a\u{a0}b",
        "a\u{3000}b",
        "👩\u{200d}\u{200d}🔬",
        "東\u{200d}京",
        "größ\u{200d}ß",
        "a\u{1d173}b",
        "a\u{1bca0}b",
        "\u{13000}\u{13430}\u{13000}",
        &too_long,
        &too_long_in_bytes,
    ] {
        check_name(bad, false);
    }
}

#[test]
fn what_looks_the_same_is_the_same() {
    // An accent after its letter, of Hangul a syllable in parts, two marks in the wrong order, and signs that stand for others.
    let others = [
        "cafe\u{301}",
        "\u{1112}\u{1161}\u{11ab}",
        "a\u{307}\u{323}",
        "\u{212b}",
        "\u{2126}",
        "\u{f900}",
    ];
    for other in others {
        let invalid = visible("name", other).unwrap_err();
        assert!(invalid.to_string().contains("normalise it"), "{invalid}");
        assert_eq!(visible("name", &normal(other)), Ok(()), "{other:?}");
        assert_eq!(existing("name", other), Ok(()), "{other:?}");
    }
    // Nothing is put together in these.
    for good in ["café", "한", "ạ\u{307}", "नमस्ते", "e\u{0329}", "ก็", "👩\u{200d}🔬"]
    {
        assert_eq!(visible("name", good), Ok(()), "{good:?}");
    }
}

#[test]
fn tenants_and_projects_have_no_colon() {
    assert!(scope("tenant", "a:b").is_err());
    assert!(scope("tenant", "a/b").is_ok());
    assert!(scope("tenant", "tenure.agents").is_err());
    assert!(scope("tenant", "tenure.gateways").is_err());
    assert!(scope("project", "tenure.agents").is_ok());
    assert!(scope("tenant", "").is_err());
}

#[test]
fn quotes_are_short_and_on_one_line() {
    assert_eq!(quote("7"), "7");
    assert_eq!(quote("a\nb\u{202e}"), "'a\\nb\\u{202e}'");
    assert_eq!(quote(&"x".repeat(1000)).chars().count(), QUOTED_MAX + 3);
}

#[test]
fn names_of_what_is_there_are_those_of_other_programs_too() {
    let longest = "x".repeat(NAME_MAX);
    for good in ["a", " a", "a\u{a0}", "a\u{200b}b", "\u{1b}[2J", "a\r\nb", &longest] {
        assert!(existing_part("name", good).is_ok(), "{good:?}");
    }
    for bad in ["", "a\0b", &format!("{longest}x")] {
        assert!(existing("name", bad).is_err(), "{bad:?}");
    }
    assert!(existing("name", "a:b").is_ok() && existing_part("name", "a:b").is_err());
}

#[test]
fn numbers_and_times_are_within_their_ranges() {
    for (token_of, is_good) in [(0, false), (1, true), (TOKEN_MAX, true), (TOKEN_MAX + 1, false)] {
        assert_eq!(token("token", token_of).is_ok(), is_good, "{token_of}");
    }
    let rule = duration("ttl", Duration::ZERO, Duration::from_millis(1)..=TIME_MAX).unwrap_err();
    let said = "ttl is '0 ms'; the rule: 1 to 31536000000 ms; choose a time in between";
    assert_eq!(rule.to_string(), said);
    let nested = token("token", 0).unwrap_err().within("changes[3]");
    assert_eq!(nested.field(), "changes[3].token");
    assert!(nested.to_string().starts_with("changes[3].token is 0; the rule: 1 to "), "{nested}");
    for (limit, is_good) in [(0, false), (1, true), (PERMITS_MAX, true), (PERMITS_MAX + 1, false)] {
        assert_eq!(permits("limit", limit).is_ok(), is_good, "{limit}");
    }
    assert!(cursor("cursor", &"x".repeat(CURSOR_MAX)).is_ok());
    assert!(cursor("cursor", &"x".repeat(CURSOR_MAX + 1)).is_err());
    assert!(cursor("cursor", "a\0").is_err());
    for (tenants, is_good) in [("acme-*", true), ("a:*", false), ("{a,b:c}", true), ("[!:]*", true)]
    {
        assert_eq!(scope_glob("tenants", tenants).is_ok(), is_good, "{tenants}");
    }
    assert!(glob("names", "a:*").is_ok() && glob("names", "a\u{1b}").is_err());
}

/// Texts of single bytes, of controls and separators, and of any characters.
fn texts() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        '\0',
        '\r',
        '\n',
        '\u{1b}',
        '\u{9b}',
        '\u{7f}',
        ' ',
        '\t',
        ':',
        '\'',
        '"',
        '\\',
        '%',
        '$',
        '*',
        'a',
        'ü',
        '\u{202e}',
        '\u{2028}',
        '\u{200d}',
        '\u{feff}',
        '\u{fffd}',
        '\u{10ffff}',
    ]);
    prop_oneof![
        prop::collection::vec(odd, 0..12).prop_map(String::from_iter),
        prop::collection::vec(any::<char>(), 0..220).prop_map(String::from_iter),
        prop::collection::vec(0_u8..128, 0..220)
            .prop_map(|bytes| bytes.into_iter().map(char::from).collect()),
    ]
}

/// A line of a log is ended by none of them, a terminal obeys none of them, and a protocol of lines (RESP, HTTP, SMTP)
/// or a C string (SQL) ends at none of them.
fn is_interpreted(c: char) -> bool {
    c.is_control() || crate::steers_terminal(c) || matches!(c, '\u{feff}' | '\u{fffd}')
}

proptest! {
    #[test]
    fn what_passes_is_interpreted_by_nothing(text in texts()) {
        if visible("name", &text).is_ok() {
            prop_assert!((1..=NAME_MAX).contains(&text.len()));
            prop_assert!(!text.chars().any(is_interpreted), "{:?}", text);
            prop_assert_eq!(text.trim(), &text);
            prop_assert!(existing("name", &text).is_ok(), "what is made can be released: {:?}", text);
        }
        if part("tenant", &text).is_ok() {
            prop_assert!(!text.contains(':'));
            prop_assert!(existing_part("tenant", &text).is_ok());
        }
    }

    #[test]
    fn a_refusal_repeats_nothing_that_is_interpreted(text in texts()) {
        let checks = [visible, part, scope, existing, existing_part, glob, scope_glob, cursor];
        for refused in checks.into_iter().filter_map(|check| check("name", &text).err()) {
            let said = refused.to_string();
            prop_assert!(!said.chars().any(is_interpreted), "{:?}", said);
            prop_assert!(said.len() < 1000);
        }
    }

    #[test]
    fn the_short_way_of_ascii_says_the_same(text in texts()) {
        let is_short = (1..=NAME_MAX).contains(&text.len());
        let is_trimmed = text.trim() == text;
        let slow = is_short && is_trimmed && !text.chars().any(is_hidden)
            && misplaced_joiner(&text).is_none();
        prop_assert_eq!(visible("name", &text).is_ok(), slow);
    }
}
