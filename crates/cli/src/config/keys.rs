//! Key names: which exist, how other spellings map to ours, which one was probably meant.

use toml::{Table, Value};

/// Every key with its default, in the order of the file: `server.listen`, not `[server] listen`.
pub(super) fn flatten(table: &Table) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    walk(table, "", &mut found);
    found
}

fn walk(table: &Table, prefix: &str, found: &mut Vec<(String, Value)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            snake(name)
        } else {
            format!("{prefix}.{}", snake(name))
        };
        match value {
            Value::Table(inner) => walk(inner, &key, found),
            leaf => found.push((key, leaf.clone())),
        }
    }
}

/// Sets a value at a dotted key, creating the tables on the way.
pub(super) fn put(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = table
                .entry(section)
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// `batchSize` and `batch-size` are `batch_size`.
pub(super) fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut after_lower = false;
    for c in name.chars() {
        match c {
            '-' => out.push('_'),
            c if c.is_ascii_uppercase() => {
                if after_lower {
                    out.push('_');
                }
                out.push(c.to_ascii_lowercase());
            }
            c => out.push(c),
        }
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    out
}

/// The most similar known key, if one is similar enough.
pub(super) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| {
            // `listen` alone finds `server.listen`.
            let last = candidate.rsplit('.').next().unwrap_or(candidate);
            let own_last = key.rsplit('.').next().unwrap_or(key);
            let whole = strsim::normalized_damerau_levenshtein(key, candidate);
            let tail = 0.9 * strsim::normalized_damerau_levenshtein(own_last, last);
            (whole.max(tail), candidate)
        })
        .filter(|(likeness, _)| *likeness > 0.55)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_key_is_one_key() {
        for name in ["batchSize", "batch-size", "batch_size", "BatchSize"] {
            assert_eq!(snake(name), "batch_size");
        }
        assert_eq!(snake("base_delay_ms"), "base_delay_ms");
    }

    #[test]
    fn a_misspelt_key_finds_the_one_that_was_meant() {
        let known = ["server.listen", "server.body_limit", "database.url"];
        let near = |key| nearest(key, known.into_iter());
        assert_eq!(near("server.lisen"), Some("server.listen"));
        assert_eq!(near("listen"), Some("server.listen"));
        assert_eq!(near("databse.url"), Some("database.url"));
        assert_eq!(near("quite.other.thing"), None);
    }
}
