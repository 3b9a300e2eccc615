//! The dependency rule: who may know whom.

use std::collections::BTreeSet;

use crate::{files, read, root};

const SLICES: [&str; 5] = ["exports", "orders", "payments", "evidence", "protocols"];

/// The crates of ours that a crate may name; the program may name all.
fn allowed(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "crashpoint" | "embedded" => &[],
        "engine" => &["crashpoint"],
        "transports" => &["engine", "crashpoint"],
        "store" | "web" => &["engine"],
        "testkit" => &["crashpoint", "embedded"],
        slice if SLICES.contains(&slice) => &["engine", "web", "store", "crashpoint"],
        "bench" => &["engine", "embedded", "transports", "payments", "web"],
        "app" => return None,
        other => panic!(
            "the crate {other} is not on the map: add it to ARCHITECTURE.md and to this rule"
        ),
    })
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn manifest(name: &str) -> toml::Table {
    read(format!("crates/{name}/Cargo.toml")).parse().unwrap()
}

fn own_dependencies(name: &str, kind: &str) -> BTreeSet<String> {
    let manifest = manifest(name);
    let table = manifest.get(kind).and_then(toml::Value::as_table);
    table
        .into_iter()
        .flat_map(toml::Table::keys)
        .filter_map(|key| key.strip_prefix("postrider-").map(str::to_owned))
        .collect()
}

#[test]
fn a_crate_knows_only_those_that_the_rule_allows() {
    for name in names() {
        let Some(allowed) = allowed(&name) else {
            continue;
        };
        for other in own_dependencies(&name, "dependencies") {
            assert!(
                allowed.contains(&other.as_str()),
                "{name} may not depend on {other}; it may on {allowed:?}"
            );
        }
    }
}

#[test]
fn no_crate_but_the_program_is_tested_through_a_slice_of_another() {
    for name in names() {
        for other in own_dependencies(&name, "dev-dependencies") {
            let foreign_slice = SLICES.contains(&other.as_str()) && name != "app";
            assert!(!foreign_slice, "the tests of {name} name the slice {other}");
        }
    }
}

#[test]
fn a_slice_never_names_another_slice_in_its_code() {
    for slice in SLICES {
        for path in files(&format!("crates/{slice}")) {
            // Samples of a slice need not be text.
            let text = std::fs::read(root().join(&path)).unwrap();
            let text = String::from_utf8_lossy(&text);
            for other in SLICES.iter().filter(|other| **other != slice) {
                assert!(
                    !text.contains(&format!("postrider_{other}")),
                    "{} names {other}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn every_crate_obeys_the_lints_and_shares_version_and_dependencies() {
    for name in names() {
        let manifest = manifest(&name);
        assert_eq!(
            manifest["lints"]["workspace"].as_bool(),
            Some(true),
            "{name} must inherit the lints"
        );
        assert_eq!(
            manifest["package"]["version"]["workspace"].as_bool(),
            Some(true),
            "{name} has its own version"
        );
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(table) = manifest.get(kind).and_then(toml::Value::as_table) else {
                continue;
            };
            for (dependency, value) in table {
                let shared = value.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                assert!(
                    shared,
                    "{name}: declare {dependency} once, in the root Cargo.toml"
                );
            }
        }
    }
}

#[test]
fn every_crate_is_on_the_map() {
    let map = read("ARCHITECTURE.md");
    for name in names() {
        assert!(
            map.contains(&format!("crates/{name}")),
            "ARCHITECTURE.md does not name crates/{name}"
        );
    }
}
