//! Just enough of the PostgreSQL protocol to detect a COMMIT and its response.
//!
//! A message is a type byte, a length and a body; startup messages have no type. A COMMIT is a simple
//! query, or a bind of a statement that was prepared as one.

use std::collections::HashSet;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// Protocol state of one connection.
#[derive(Debug, Default)]
pub(super) struct Wire {
    client: Frames,
    server: Frames,
    started: bool,
    /// Pending one-byte responses to encryption requests.
    bare_answers: usize,
    /// Names of prepared statements that commit; "" is the unnamed one.
    commits: HashSet<Vec<u8>>,
    withholding: bool,
}

impl Wire {
    /// Offset of the first committing message that ends in this chunk of the client's bytes. (The
    /// server can't act on a message before its last byte.)
    pub(super) fn commit_in(&mut self, chunk: &[u8]) -> Option<usize> {
        let mut found = None;
        let mut start = 0;
        for (index, byte) in chunk.iter().enumerate() {
            if self.client.is_empty() {
                start = index;
            }
            if let Some(message) = self.client.push(*byte, self.started)
                && self.is_commit(&message)
            {
                found = found.or(Some(start));
            }
        }
        found
    }

    /// Whether this chunk of the server's bytes completes the response to a COMMIT, failed or not.
    pub(super) fn commit_answered_in(&mut self, chunk: &[u8]) -> bool {
        let mut answered = false;
        for byte in chunk {
            if self.bare_answers > 0 {
                self.bare_answers -= 1;
                continue;
            }
            if let Some(message) = self.server.push(*byte, true) {
                answered |= match message.first() {
                    Some(b'C') => {
                        message[5..].starts_with(b"COMMIT") || message[5..].starts_with(b"ROLLBACK")
                    }
                    Some(b'E') => true,
                    _ => false,
                };
            }
        }
        answered
    }

    /// Withholds the server's responses from now on.
    pub(super) fn withhold(&mut self) {
        self.withholding = true;
    }

    pub(super) fn is_withholding(&self) -> bool {
        self.withholding
    }

    fn is_commit(&mut self, message: &[u8]) -> bool {
        if !self.started {
            let code = message.get(4..8).and_then(|code| code.try_into().ok());
            match code.map(u32::from_be_bytes) {
                Some(SSL_REQUEST | GSS_REQUEST) => self.bare_answers += 1,
                _ => self.started = true,
            }
            return false;
        }
        let mut fields = message[5..].split(|byte| *byte == 0);
        let mut field = || fields.next().unwrap_or_default();
        match message[0] {
            b'Q' => commits(field()),
            b'P' => {
                let name = field().to_owned();
                if commits(field()) {
                    self.commits.insert(name);
                } else {
                    self.commits.remove(&name);
                }
                false
            }
            b'B' => {
                let _portal = field();
                self.commits.contains(field())
            }
            _ => false,
        }
    }
}

/// Whether one of these statements is a COMMIT.
fn commits(sql: &[u8]) -> bool {
    String::from_utf8_lossy(sql)
        .split(';')
        .filter_map(|statement| statement.split_whitespace().next())
        .any(|word| word.eq_ignore_ascii_case("commit") || word.eq_ignore_ascii_case("end"))
}

/// Assembles the messages of one direction.
#[derive(Debug, Default)]
struct Frames {
    message: Vec<u8>,
}

impl Frames {
    fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    /// The message that this byte completes, if any.
    fn push(&mut self, byte: u8, typed: bool) -> Option<Vec<u8>> {
        self.message.push(byte);
        let before_length = usize::from(typed);
        let length = self.message.get(before_length..before_length + 4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        (self.message.len() >= before_length + length.max(4))
            .then(|| std::mem::take(&mut self.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    fn startup(code: u32) -> Vec<u8> {
        [8_u32.to_be_bytes(), code.to_be_bytes()].concat()
    }

    fn started() -> Wire {
        let mut wire = Wire::default();
        assert_eq!(wire.commit_in(&startup(SSL_REQUEST)), None);
        assert!(!wire.commit_answered_in(b"N"));
        assert_eq!(wire.commit_in(&startup(196_608)), None);
        wire
    }

    #[test]
    fn a_simple_commit_is_found_at_its_start() {
        let mut wire = started();
        let insert = message(b'Q', b"INSERT INTO t VALUES ('commit')\0");
        assert_eq!(wire.commit_in(&insert), None);
        let both = [insert.clone(), message(b'Q', b" commit ;\0")].concat();
        assert_eq!(wire.commit_in(&both), Some(insert.len()));
    }

    #[test]
    fn a_split_commit_is_found_at_its_last_byte() {
        let mut wire = started();
        let commit = message(b'Q', b"COMMIT\0");
        let (last, first) = commit.split_last().unwrap();
        assert_eq!(wire.commit_in(first), None);
        assert_eq!(wire.commit_in(&[*last]), Some(0));
    }

    #[test]
    fn a_prepared_commit_is_found_at_its_bind() {
        let mut wire = started();
        assert_eq!(wire.commit_in(&message(b'P', b"s1\0COMMIT\0\0\0")), None);
        assert_eq!(wire.commit_in(&message(b'B', b"\0s2\0")), None);
        assert_eq!(wire.commit_in(&message(b'B', b"\0s1\0")), Some(0));
    }

    #[test]
    fn the_response_to_a_commit_is_recognized() {
        let mut wire = started();
        assert!(!wire.commit_answered_in(&message(b'C', b"INSERT 0 1\0")));
        assert!(wire.commit_answered_in(&message(b'C', b"COMMIT\0")));
    }
}
