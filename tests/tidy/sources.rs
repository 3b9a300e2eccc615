//! Rules that every source file keeps.

use std::{collections::BTreeSet, path::Path};

use crate::{files, read, root, with_ending};

const MOST_LINES: usize = 600;

#[test]
fn no_file_is_longer_than_six_hundred_lines() {
    for path in with_ending("rs", [files("crates"), files("tests")].concat()) {
        let lines = read(&path).lines().count();
        assert!(
            lines <= MOST_LINES,
            "{} has {lines} lines; split it by idea",
            path.display()
        );
    }
}

#[test]
fn every_migration_file_is_embedded_and_has_a_telling_name() {
    for path in with_ending("sql", files("crates")) {
        if path
            .parent()
            .and_then(Path::file_name)
            .is_none_or(|folder| folder != "migrations")
        {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let (number, words) = name.split_once('_').unwrap_or((&name, ""));
        assert!(
            number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit()),
            "{name}: four digits first"
        );
        assert!(words.len() > 3, "{name}: say in words what it does");
        let lib = path.parent().unwrap().join("../src/lib.rs");
        let text = read(&lib);
        assert!(
            text.contains(&name),
            "{} is not in the migration set of {}",
            path.display(),
            lib.display()
        );
    }
}

#[test]
fn the_tree_says_nothing_of_the_machine_it_was_written_on() {
    let home = concat!("/ro", "ot/");
    let work = concat!("/wo", "rk/");
    let texts = files(".").into_iter().filter(|path| {
        let ending = path
            .extension()
            .map(|e| e.to_string_lossy().into_owned())
            .unwrap_or_default();
        [
            "rs", "md", "toml", "sql", "sh", "yml", "html", "json", "css",
        ]
        .contains(&ending.as_str())
    });
    for path in texts {
        let text = read(&path);
        for trace in [home, work] {
            assert!(
                !text.contains(trace),
                "{} names a path of one machine: {trace}",
                path.display()
            );
        }
    }
}

#[test]
fn a_comment_that_puts_work_off_does_not_land() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X "),
    ];
    for path in with_ending("rs", [files("crates"), files("tests")].concat()) {
        let text = read(&path);
        for mark in marks {
            assert!(!text.contains(mark), "{} holds {mark}", path.display());
        }
    }
}

/// A test binary may carry the program that its own tests start and kill; nothing else is left out of a run.
#[test]
fn no_test_is_ignored() {
    let mark = concat!("#[igno", "re");
    let child = concat!("#[igno", "re = \"the program that other tests start");
    for path in with_ending("rs", [files("crates"), files("tests")].concat()) {
        let text = read(&path);
        let ignored = text.matches(mark).count() - text.matches(child).count();
        assert_eq!(
            ignored,
            0,
            "{}: a test that never runs proves nothing",
            path.display()
        );
    }
}

#[test]
fn scripts_can_be_executed() {
    use std::os::unix::fs::PermissionsExt;
    let scripts: BTreeSet<_> = files("scripts")
        .into_iter()
        .chain([".ci/run".into()])
        .collect();
    for path in scripts
        .into_iter()
        .filter(|path| read(path).starts_with("#!"))
    {
        let mode = std::fs::metadata(root().join(&path))
            .unwrap()
            .permissions()
            .mode();
        assert!(mode & 0o100 != 0, "{} is not executable", path.display());
    }
}
