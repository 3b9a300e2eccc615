//! The dependency rules between crates.

use std::collections::BTreeSet;

use crate::{files, read, root};

const SERVICES: [&str; 5] = ["exports", "orders", "payments", "evidence", "protocols"];

/// The workspace crates that a crate may depend on; the program may depend on all.
fn allowed(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "crashpoint" | "embedded" => &[],
        "postrider" => &["crashpoint"],
        "transports" => &["postrider", "crashpoint"],
        "blob" | "inspect" => &["postrider"],
        "web" => &["postrider", "inspect"],
        "testkit" => &["crashpoint", "embedded"],
        service if SERVICES.contains(&service) => {
            &["postrider", "inspect", "web", "blob", "crashpoint"]
        }
        "sim" => &[
            "postrider",
            "embedded",
            "web",
            "exports",
            "orders",
            "payments",
            "evidence",
            "protocols",
        ],
        "bench" => &["postrider", "embedded", "transports", "payments", "web"],
        "cli" => return None,
        other => panic!(
            "the crate {other} is not on the map: add it to ARCHITECTURE.md and to this rule"
        ),
    })
}

/// The name and folder of every crate.
fn crates() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["crates", "crates/services"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            if root().join(&path).join("Cargo.toml").exists() {
                found.push((name, path));
            }
        }
    }
    found.sort();
    found
}

fn manifest(path: &str) -> toml::Table {
    read(format!("{path}/Cargo.toml")).parse().unwrap()
}

fn own_dependencies(path: &str, kind: &str) -> BTreeSet<String> {
    let manifest = manifest(path);
    let table = manifest.get(kind).and_then(toml::Value::as_table);
    table
        .into_iter()
        .flat_map(toml::Table::keys)
        .filter_map(|key| match key.as_str() {
            "postrider" => Some(key.clone()),
            _ => key.strip_prefix("postrider-").map(str::to_owned),
        })
        .collect()
}

#[test]
fn crates_depend_only_on_what_the_rules_allow() {
    for (name, path) in crates() {
        let Some(allowed) = allowed(&name) else {
            continue;
        };
        for other in own_dependencies(&path, "dependencies") {
            assert!(
                allowed.contains(&other.as_str()),
                "{name} must not depend on {other}, only on {allowed:?}"
            );
        }
    }
}

#[test]
fn only_services_test_against_the_simulators() {
    for (name, path) in crates() {
        let uses_sim = own_dependencies(&path, "dev-dependencies").contains("sim");
        assert!(
            !uses_sim || SERVICES.contains(&name.as_str()),
            "the tests of {name} depend on sim"
        );
    }
}

#[test]
fn only_the_program_tests_through_services() {
    for (name, path) in crates() {
        for other in own_dependencies(&path, "dev-dependencies") {
            let foreign = SERVICES.contains(&other.as_str()) && name != "cli";
            assert!(!foreign, "the tests of {name} use the service {other}");
        }
    }
}

#[test]
fn services_never_name_each_other() {
    for service in SERVICES {
        for path in files(&format!("crates/services/{service}")) {
            // Samples may be binary.
            let text = std::fs::read(root().join(&path)).unwrap();
            let text = String::from_utf8_lossy(&text);
            for other in SERVICES.iter().filter(|other| **other != service) {
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
fn crates_inherit_lints_version_and_dependencies() {
    for (name, path) in crates() {
        let manifest = manifest(&path);
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
                // `cargo package` strips dev-dependencies without a version: ours need not be published first.
                let own = kind == "dev-dependencies" && dependency.starts_with("postrider");
                assert!(
                    shared || own,
                    "{name}: declare {dependency} once, in the root Cargo.toml"
                );
            }
        }
    }
}

#[test]
fn every_crate_is_on_the_map() {
    let map = read("ARCHITECTURE.md");
    for (_, path) in crates() {
        assert!(map.contains(&path), "ARCHITECTURE.md does not name {path}");
    }
}

/// A sixth service is a crate and a line in `services.rs` (docs/adding-a-service.md): everything that the console, the
/// timeline and the operators' API show about a service comes from its description.
#[test]
fn the_program_names_services_only_where_it_starts_them() {
    for folder in ["console", "operate", "http", "roles"] {
        for path in files(&format!("crates/cli/src/{folder}")) {
            let text = read(&path);
            for service in SERVICES {
                assert!(
                    !text.contains(&format!("postrider_{service}")),
                    "{} names the service {service}; use its description instead",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn crates_have_the_metadata_of_a_package() {
    for (_, path) in crates() {
        let manifest = manifest(&path);
        for key in ["description", "keywords", "categories", "readme"] {
            let value = manifest["package"].get(key);
            assert!(value.is_some(), "{path}/Cargo.toml has no {key}");
        }
        let readme = manifest["package"]["readme"].as_str().unwrap();
        assert!(
            root().join(&path).join(readme).exists(),
            "{path}: {readme} does not exist"
        );
    }
}
