//! The API conforms to its OpenAPI document, tested with thousands of generated requests.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use postrider_testkit::builders::Serve;
use serde_json::Value;

use crate::program::{BINARY, Serving, data_dir, run_with, stdout};

/// No server error, no undocumented status, content type, header, body or method,
/// and no response without a token.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
response_headers_conformance,response_schema_conformance,unsupported_method,allow_header_conformance,ignored_auth";

/// Number of random requests per operation, in addition to those that cover its boundaries;
/// override with `POSTRIDER_TEST_REQUESTS`.
const REQUESTS: &str = "15";

/// Long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(900);

/// The binary that scripts/schemathesis/install installs.
fn schemathesis() -> Option<PathBuf> {
    let pinned = include_str!("../../scripts/schemathesis/requirements.txt");
    let version = pinned
        .lines()
        .find_map(|line| line.strip_prefix("schemathesis=="))
        .unwrap();
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    let home = cache.join(format!("postrider/schemathesis-{version}"));
    home.join("ready")
        .exists()
        .then(|| home.join("bin/schemathesis"))
}

#[tokio::test]
async fn api_conforms_to_its_openapi_document_under_generated_requests() {
    let Some(program) = schemathesis() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "scripts/setup installs schemathesis"
        );
        eprintln!("skipped: schemathesis is not installed; `make setup` does it");
        return;
    };
    let made = run_with(&[
        "token",
        "--name",
        "all",
        "--scopes",
        "submit,read,operate,internal",
        "--json",
    ])
    .await;
    let made: Value = serde_json::from_str(&stdout(&made)).unwrap();
    let word = |name: &str| made[name].as_str().unwrap().to_owned();
    let dir = data_dir();
    let mut command = Serve::new(BINARY, dir.path()).command();
    let allowed = format!(
        "[{{ name = \"all\", sha256 = \"{}\", scopes = [\"submit\", \"read\", \"operate\", \"internal\"] }}]",
        word("sha256")
    );
    command
        .env("POSTRIDER_SERVER__TOKENS", allowed)
        // Slow is not broken: a busy machine must not turn into a 503.
        .env("POSTRIDER_SERVER__REQUEST_TIMEOUT", "5m")
        .env("POSTRIDER_DATABASE__ACQUIRE_TIMEOUT", "2m");
    let serving = Serving::start(&command).await;
    let requests = std::env::var("POSTRIDER_TEST_REQUESTS").unwrap_or(REQUESTS.to_owned());
    let mut command = Command::new(program);
    command
        .current_dir(dir.path())
        .args(["run", &format!("{}/openapi.json", serving.base())])
        .args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", &requests, "--seed", "20261116"])
        .args([
            "--header",
            &format!("Authorization:Bearer {}", word("token")),
        ])
        .args([
            "--request-timeout",
            "300",
            "--continue-on-failure",
            "--no-color",
        ])
        // One thread: with several, Python 3.11 now and then trips over itself where it parses (python/cpython#106905).
        .args(["--workers", "1", "--warnings", "off"])
        .args(["--suppress-health-check", "all"]);
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TIMEOUT, output)
        .await
        .expect("it ends")
        .expect("it starts");
    assert!(output.status.success(), "{}", stdout(&output));
    assert!(serving.terminate().await.success());
}
