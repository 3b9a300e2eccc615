//! Plain text in whatever encoding it came.

/// Windows-1252 between 0x80 and 0x9F; the other bytes are those of Latin-1. The five unused ones become U+FFFD.
const WINDOWS: [char; 32] = [
    '€', '\u{FFFD}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{FFFD}', 'Ž',
    '\u{FFFD}', '\u{FFFD}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{FFFD}',
    'ž', 'Ÿ',
];

/// The text of these bytes: UTF-8, UTF-16 with its mark, or what a Windows machine saved. Characters that can't be
/// stored or shown are left out; line ends are `\n`, and a page break is one, too.
#[must_use]
pub fn decode(bytes: &[u8]) -> String {
    let text = match bytes {
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(|byte| of_windows(*byte)).collect(),
        },
    };
    let text = text.replace("\r\n", "\n").replace(['\r', '\u{0C}'], "\n");
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !c.is_control())
        .collect()
}

fn utf16(bytes: &[u8], read: fn([u8; 2]) -> u16) -> String {
    let units = bytes.as_chunks::<2>().0.iter().map(|pair| read(*pair));
    char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

fn of_windows(byte: u8) -> char {
    match byte {
        0x80..=0x9F => WINDOWS[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn text_is_read_in_the_encodings_that_people_save_it_in() {
        assert_eq!(decode("Größe ≥ 5".as_bytes()), "Größe ≥ 5");
        assert_eq!(decode(b"\xEF\xBB\xBFage"), "age");
        assert_eq!(decode(b"\xFF\xFEa\0\x65\x22"), "a≥");
        assert_eq!(decode(b"\xFE\xFF\0a\x22\x65"), "a≥");
        assert_eq!(decode(b"\x93quoted\x94 \x96 5 \xB5g"), "“quoted” – 5 µg");
        assert_eq!(decode(b"a\r\nb\rc\0d\x0Ce"), "a\nb\ncd\ne");
    }
}
