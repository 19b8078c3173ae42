use super::*;

const LINE: Line = Line { what: "a line", characters_min: 1, characters_max: 40 };

#[test]
fn ordinary_text_of_every_script_and_emoji_is_accepted() {
    for text in [
        "ann",
        "Ann O'Neill <ann@example.com>",
        "Zoë Müller",
        "Ådå e\u{301}",
        "Анна",
        "Άννα",
        "أحمد",
        "דנה",
        "अनन्या",
        "แอน",
        "安娜",
        "アンナ\u{3000}太郎",
        "안나",
        "🚀 release",
        "👍🏽",
        "🇩🇪",
        "❤\u{fe0f} ops",
        "⚠\u{fe0e}",
        "1\u{fe0f}\u{20e3}",
        "a  b",
        "a\u{a0}b",
        "\u{fffd}",
    ] {
        assert_eq!(LINE.check(text), Ok(()), "{text:?}");
    }
}

#[test]
fn invisible_characters_are_escaped_and_others_unchanged() {
    assert_eq!(visible("Zoë 安娜 🚀"), "Zoë 安娜 🚀");
    assert_eq!(visible("a\u{1b}[2J\u{202e}b\n"), r"a\u{1b}[2J\u{202e}b\u{a}");
}

#[test]
fn invisible_characters_are_refused_with_character_and_position() {
    let directional = (0x200b..=0x200f).chain(0x202a..=0x202e).chain(0x2060..=0x2064).chain(0x2066..=0x2069);
    let others = [
        0x0, 0x7, 0x9, 0xa, 0xd, 0x1b, 0x7f, 0x85, 0x9b, 0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x180b, 0x180e,
        0x2028, 0x2029, 0x206a, 0x206f, 0x2800, 0x3164, 0xfe00, 0xfe0e, 0xfe0f, 0xfeff, 0xffa0, 0xfff9, 0xffff, 0xe000,
        0xf8ff, 0x378, 0x1d173, 0xe0001, 0xe0041, 0xe007f, 0xe0100, 0xf0000, 0x10_ffff,
    ];
    for character in directional.chain(others).map(|number| char::from_u32(number).unwrap()) {
        for (text, position) in
            [(format!("å{character}b"), 2), (format!("{character}"), 1), (format!("ab{character}"), 3)]
        {
            let wanted = LineError::InvisibleCharacter { what: "a line", character, position };
            assert_eq!(LINE.check(&text), Err(wanted), "{text:?}");
        }
    }
    let message = LINE.check("ops\u{202e}nimda").unwrap_err().to_string();
    assert!(
        message.contains("a line must have only printable characters") && message.contains("character 4 is U+202E"),
        "{message}"
    );
    assert!(LINE.check("\u{1f468}\u{200d}\u{1f469}").unwrap_err().to_string().contains("character 2 is U+200D"));
}

#[test]
fn variation_selector_is_accepted_only_after_an_emoji() {
    for text in ["a\u{fe0f}", "1\u{fe0f}", "1\u{fe0f}2", "❤\u{fe0f}\u{fe0f}", "ü\u{fe0e}", "#\u{fe0f}"] {
        assert!(matches!(LINE.check(text), Err(LineError::InvisibleCharacter { .. })), "{text:?}");
    }
}

#[test]
fn blank_padded_and_overlong_lines_are_refused() {
    for (text, character, position) in
        [(" a", ' ', 1), ("a ", ' ', 2), ("   ", ' ', 1), ("ü\u{3000}", '\u{3000}', 2), ("\u{a0}", '\u{a0}', 1)]
    {
        assert_eq!(
            LINE.check(text),
            Err(LineError::SurroundingSpace { what: "a line", character, position }),
            "{text:?}"
        );
    }
    for text in ["", &"a".repeat(41), &"ü".repeat(41)] {
        assert!(matches!(LINE.check(text), Err(LineError::Length { .. })), "{text:?}");
    }
    assert_eq!((LINE.check(&"ü".repeat(40)), Line::LABEL_VALUE.check("")), (Ok(()), Ok(())));
}
