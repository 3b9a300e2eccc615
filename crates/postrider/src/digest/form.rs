//! Writes a value in RFC 8785 form: members sorted by UTF-16 units, no white space, numbers as ECMAScript prints
//! doubles.

use serde_json::Value;

pub(super) fn write(value: &Value, text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            // They are sorted by UTF-8 already, which differs only beyond the basic plane.
            members.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            text.push(b'{');
            for (place, (key, value)) in members.into_iter().enumerate() {
                if place > 0 {
                    text.push(b',');
                }
                serde_json::to_writer(&mut *text, key)?;
                text.push(b':');
                write(value, text)?;
            }
            text.push(b'}');
            Ok(())
        }
        Value::Array(values) => {
            text.push(b'[');
            for (place, value) in values.iter().enumerate() {
                if place > 0 {
                    text.push(b',');
                }
                write(value, text)?;
            }
            text.push(b']');
            Ok(())
        }
        Value::Number(number) => serde_json_canonicalizer::to_writer(number, text),
        Value::Null | Value::Bool(_) | Value::String(_) => serde_json::to_writer(text, value),
    }
}
