//! Rules for every source file.

use std::collections::BTreeSet;

use crate::{files, read, root, with_ending};

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 100;

#[test]
fn files_have_at_most_six_hundred_lines() {
    for path in with_ending("rs", [files("crates"), files("tests")].concat()) {
        let lines = read(&path).lines().count();
        assert!(
            lines <= MAX_FILE_LINES,
            "{} has {lines} lines; split it by idea",
            path.display()
        );
    }
}

/// Relies on rustfmt: a function ends at the first line that is its closing brace, indented like its first line.
#[test]
fn functions_have_at_most_a_hundred_lines() {
    let mut long = Vec::new();
    let sources = with_ending("rs", files("crates"))
        .into_iter()
        .filter(|path| path.components().any(|part| part.as_os_str() == "src"));
    for path in sources {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let is_function = !code.starts_with("//")
                && code.split(' ').take(5).any(|word| word == "fn")
                && !code.ends_with(';');
            if !is_function {
                continue;
            }
            let end = format!("{}}}", &line[..line.len() - code.len()]);
            let length = lines[start..].iter().position(|line| *line == end);
            if let Some(length) = length.filter(|length| *length >= MAX_FUNCTION_LINES) {
                long.push(format!(
                    "{}:{}: {} lines",
                    path.display(),
                    start + 1,
                    length + 1
                ));
            }
        }
    }
    assert!(
        long.is_empty(),
        "split these functions:\n{}",
        long.join("\n")
    );
}

#[test]
fn migration_files_are_embedded_and_have_descriptive_names() {
    for path in with_ending("sql", files("crates")) {
        // `migrations/`, or a folder per schema in it.
        let Some(folder) = path
            .ancestors()
            .skip(1)
            .take(2)
            .find(|folder| folder.file_name().is_some_and(|name| name == "migrations"))
        else {
            continue;
        };
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let (number, words) = name.split_once('_').unwrap_or((&name, ""));
        assert!(
            number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit()),
            "{name}: start with four digits"
        );
        assert!(words.len() > 3, "{name}: describe the migration");
        let lib = folder.join("../src/lib.rs");
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
fn files_contain_no_paths_of_the_development_machine() {
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
                "{} contains a local path: {trace}",
                path.display()
            );
        }
    }
}

#[test]
fn sources_contain_no_todo_comments() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X "),
    ];
    for path in with_ending("rs", [files("crates"), files("tests")].concat()) {
        let text = read(&path);
        for mark in marks {
            assert!(!text.contains(mark), "{} contains {mark}", path.display());
        }
    }
}

/// A test binary may contain the program that its own tests start and kill; everything else runs.
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
            "{}: ignored tests prove nothing",
            path.display()
        );
    }
}

#[test]
fn scripts_are_executable() {
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
