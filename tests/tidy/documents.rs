//! Documents that must agree with the program.

use std::collections::BTreeSet;

use postrider_cli::{config, exit, http};

use crate::{files, read};

#[test]
fn every_configuration_key_is_explained_in_the_file_that_lists_them() {
    let mut commented = false;
    let mut keys = 0;
    for (number, line) in config::DEFAULTS.lines().enumerate() {
        if line.trim_start().starts_with('#') {
            commented = true;
        } else if line.contains('=') {
            assert!(
                commented,
                "config/default.toml:{}: {line} has no line of meaning above it",
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
fn the_program_takes_every_key_of_the_file_and_no_other() {
    let effective = config::load(&config::Overrides::default(), std::iter::empty());
    // Every struct denies unknown fields and gives no field a default of its own, so that loading the bare file
    // fails when either side has a key that the other lacks.
    effective.expect("config/default.toml and the structs must name the same keys");
}

#[test]
fn every_error_code_has_its_page_and_every_page_its_code() {
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
        "the errors folders of the crates must hold exactly one page per error code"
    );
}

#[test]
fn an_error_page_says_what_happened_and_what_to_do() {
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
fn the_committed_openapi_document_is_what_the_program_serves() {
    let committed = read("docs/openapi.json");
    let served = http::openapi_json().unwrap();
    assert!(
        committed == served,
        "docs/openapi.json is out of date: run `make openapi` and read the difference"
    );
}

#[test]
fn the_readme_shows_the_two_commands_and_ci_runs_them() {
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
fn the_exit_codes_are_documented() {
    let page = read("docs/operations/command-line.md");
    for line in exit::HELP.lines().skip(1) {
        let (number, meaning) = line.trim().split_once("  ").unwrap();
        assert!(
            page.contains(&format!("| {number} | {meaning} |")),
            "command-line.md lacks exit code {number}"
        );
    }
}
