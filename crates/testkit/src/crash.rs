//! Makes the program fail at named crash points; see [`postrider_crashpoint`].
//!
//! A test that visits all crash points of a crate reads their names from its source, so that it
//! covers new ones:
//!
//! ```no_run
//! # use postrider_testkit::crash;
//! # async fn test() {
//! for point in crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")) {
//!     let trap = crash::at(&point).error();
//!     // … do the work, check the invariants …
//!     assert_eq!(trap.fired(), 1, "{point} was never passed");
//! }
//! # }
//! ```

use std::collections::BTreeSet;
use std::path::Path;

pub use postrider_crashpoint::{Arm, Armed, Injected, at, seen, seen_anywhere};

/// The environment variable that arms points in a child process, for example
/// `lease.before_settle=kill@3`.
pub const VARIABLE: &str = "POSTRIDER_CRASH";

/// Names of all crash points in the Rust files under a directory, sorted. Fails the test if a name
/// is used twice: it would be ambiguous.
pub fn declared_in(dir: impl AsRef<Path>) -> Vec<String> {
    let mut names = BTreeSet::new();
    collect(dir.as_ref(), &mut names);
    names.into_iter().collect()
}

fn collect(dir: &Path, names: &mut BTreeSet<String>) {
    let entries = std::fs::read_dir(dir)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", dir.display()));
    for entry in entries {
        let path = entry.expect("read a directory entry").path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).expect("read a source file");
            for name in points(&source) {
                assert!(
                    names.insert(name.to_owned()),
                    "the crash point {name} is declared twice, again in {}",
                    path.display()
                );
            }
        }
    }
}

/// Names after `point!(` or `blocking_point!(`, except in comments.
fn points(source: &str) -> impl Iterator<Item = &str> {
    source
        .lines()
        .map(|line| line.split("//").next().unwrap_or(line))
        .flat_map(|line| line.split("point!(\"").skip(1))
        .filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::points;

    #[test]
    fn points_are_found_in_source_and_not_in_comments() {
        let source = "crashpoint::point!(\"a.b\")?;\n// point!(\"not\")\nblocking_point!(\"c\")?;";
        assert_eq!(points(source).collect::<Vec<_>>(), ["a.b", "c"]);
    }
}
