//! Plain text in its usual encodings.

/// Windows-1252 from 0x80 to 0x9F; all other bytes are Latin-1. The five unused ones become U+FFFD.
const WINDOWS: [char; 32] = [
    '€', '\u{FFFD}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{FFFD}', 'Ž',
    '\u{FFFD}', '\u{FFFD}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{FFFD}',
    'ž', 'Ÿ',
];

/// Text with a larger share of control characters, in percent, is binary data.
const MAX_CONTROL_PERCENT: usize = 2;

/// Decodes UTF-8, UTF-16 with a byte order mark, or Windows-1252. Drops control characters; line breaks and page breaks
/// become `\n`.
#[must_use]
pub fn decode(bytes: &[u8]) -> String {
    let text = decode_raw(bytes);
    let text = text.replace("\r\n", "\n").replace(['\r', '\u{0C}'], "\n");
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !c.is_control())
        .collect()
}

/// Is this text rather than binary data? NUL does not count: UTF-16 without a byte order mark is full of it.
#[must_use]
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let text = decode_raw(bytes);
    let is_odd = |c: &char| match c {
        '\n' | '\r' | '\t' | '\0' | '\u{0B}' | '\u{0C}' | '\u{1A}' => false,
        _ => c.is_control() || *c == char::REPLACEMENT_CHARACTER,
    };
    let odd = text.chars().filter(is_odd).count();
    odd * 100 <= text.chars().count() * MAX_CONTROL_PERCENT
}

fn decode_raw(bytes: &[u8]) -> String {
    match bytes {
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(|byte| decode_windows(*byte)).collect(),
        },
    }
}

fn utf16(bytes: &[u8], read: fn([u8; 2]) -> u16) -> String {
    let units = bytes.as_chunks::<2>().0.iter().map(|pair| read(*pair));
    char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

fn decode_windows(byte: u8) -> char {
    match byte {
        0x80..=0x9F => WINDOWS[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn common_encodings_are_decoded() {
        assert_eq!(decode("Größe ≥ 5".as_bytes()), "Größe ≥ 5");
        assert_eq!(decode(b"\xEF\xBB\xBFage"), "age");
        assert_eq!(decode(b"\xFF\xFEa\0\x65\x22"), "a≥");
        assert_eq!(decode(b"\xFE\xFF\0a\x22\x65"), "a≥");
        assert_eq!(decode(b"\x93quoted\x94 \x96 5 \xB5g"), "“quoted” – 5 µg");
        assert_eq!(decode(b"a\r\nb\rc\0d\x0Ce"), "a\nb\ncd\ne");
    }
}
