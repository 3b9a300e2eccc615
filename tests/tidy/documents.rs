//! Documents agree with the program.

use std::collections::BTreeSet;

use postrider_cli::{config, exit, http};

use crate::{files, read, root, with_ending};

#[test]
fn configuration_keys_have_a_comment() {
    let mut commented = false;
    let mut keys = 0;
    for (number, line) in config::DEFAULTS.lines().enumerate() {
        if line.trim_start().starts_with('#') {
            commented = true;
        } else if line.contains('=') {
            assert!(
                commented,
                "config/default.toml:{}: {line} needs a comment above it",
                number + 1
            );
            commented = false;
            keys += 1;
        } else {
            commented = false;
        }
    }
    assert!(keys > 0);
}

#[test]
fn configuration_file_and_program_have_the_same_keys() {
    let effective = config::load(&config::Overrides::default(), std::iter::empty());
    // The structs deny unknown fields and have no defaults of their own, so loading the bare file fails if the keys differ.
    effective.expect("config/default.toml and the structs must have the same keys");
}

#[test]
fn error_codes_and_error_pages_correspond() {
    let codes: BTreeSet<String> = http::error_catalogue()
        .unwrap()
        .iter()
        .map(|c| c.code.to_owned())
        .collect();
    let pages: BTreeSet<String> = files("crates")
        .iter()
        .filter(|path| {
            path.parent()
                .is_some_and(|folder| folder.ends_with("errors"))
        })
        .map(|p| p.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        codes, pages,
        "the errors folders of the crates must contain exactly one page per error code"
    );
}

#[test]
fn error_pages_explain_the_error_and_name_its_status() {
    for code in http::error_catalogue().unwrap().iter() {
        assert!(
            code.page.starts_with("# "),
            "{}: start with a title",
            code.code
        );
        assert!(code.page.lines().count() >= 5, "{}: explain it", code.code);
        assert!(
            code.page.contains(&code.status.as_u16().to_string()),
            "{}: name the status",
            code.code
        );
    }
}

#[test]
fn committed_openapi_document_matches_the_program() {
    let committed = read("docs/openapi.json");
    let served = http::openapi_json().unwrap();
    assert!(
        committed == served,
        "docs/openapi.json is out of date: run `make openapi` and review the diff"
    );
}

#[test]
fn readme_shows_the_two_commands_and_ci_runs_the_checks() {
    let readme = read("README.md");
    for command in ["make demo", "make test"] {
        assert!(
            readme.contains(command),
            "README.md does not show `{command}`"
        );
    }
    let ci = read(".ci/run");
    assert!(ci.contains("make test") && ci.contains("make check"));
}

#[test]
fn exit_codes_are_documented() {
    let page = read("docs/operations/command-line.md");
    for line in exit::HELP.lines().skip(1) {
        let (number, meaning) = line.trim().split_once("  ").unwrap();
        assert!(
            page.contains(&format!("| {number} | {meaning} |")),
            "command-line.md lacks exit code {number}"
        );
    }
}

#[test]
fn readme_shows_the_quickstart_example() {
    let readme = read("README.md");
    let (_, rest) = readme.split_once("\n```rust\n").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let example = read("crates/postrider/examples/quickstart.rs");
    assert_eq!(
        shown, example,
        "the first Rust block of README.md must be crates/postrider/examples/quickstart.rs"
    );
}

#[test]
fn relative_links_resolve() {
    let mut broken = Vec::new();
    for path in with_ending("md", files(".")) {
        let folder = root().join(path.parent().unwrap());
        let text = read(&path);
        for (_, rest) in text
            .match_indices("](")
            .map(|(at, mark)| text.split_at(at + mark.len()))
        {
            let target = rest.split([')', '#', ' ', '\n']).next().unwrap();
            let external =
                target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !external && !folder.join(target).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}
