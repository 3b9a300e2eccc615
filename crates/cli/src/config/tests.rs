use std::io::Write;

use super::*;

fn load_with(
    file: &str,
    env: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Effective, String> {
    let mut on_disk = tempfile::NamedTempFile::new().expect("a temporary file");
    on_disk.write_all(file.as_bytes()).expect("written");
    let overrides = Overrides {
        file: Some(on_disk.path().to_owned()),
        flags: flags
            .iter()
            .map(|(key, value)| ("--set".into(), (*key).into(), (*value).into()))
            .collect(),
    };
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load(&overrides, env).map_err(|invalid| invalid.to_string())
}

fn origin_of(effective: &Effective, key: &str) -> String {
    let (_, setting) = effective
        .settings
        .iter()
        .find(|(name, _)| name == key)
        .expect("a known key");
    setting.origin.to_string()
}

#[test]
fn a_flag_overrides_the_environment_which_overrides_the_file() {
    let file = "[server]\nlisten = '127.0.0.1:1'\nbody_limit = '1MiB'\nrequest_timeout = 10";
    let env = [
        ("POSTRIDER_SERVER__LISTEN", "127.0.0.1:2"),
        ("POSTRIDER_SERVER__REQUEST_TIMEOUT", "20"),
    ];
    let effective = load_with(file, &env, &[("server.listen", "127.0.0.1:3")]).expect("valid");
    let server = &effective.config.server;
    assert_eq!(
        (server.listen.port(), server.body_limit.as_u64()),
        (3, 1 << 20)
    );
    assert_eq!(server.request_timeout, Duration::from_secs(20));
    assert_eq!(origin_of(&effective, "server.listen"), "flag --set");
    assert_eq!(
        origin_of(&effective, "server.request_timeout"),
        "env POSTRIDER_SERVER__REQUEST_TIMEOUT"
    );
    assert!(origin_of(&effective, "server.body_limit").starts_with("file "));
    assert_eq!(origin_of(&effective, "log.level"), "default");
}

#[test]
fn every_problem_is_reported_at_once_with_its_origin() {
    let file = "[server]\nlisten = 'nowhere'\n[databse]\nurl = 'x'\n[log]\nformat = 'xml'";
    let message = load_with(
        file,
        &[("POSTRIDER_DATABASE__POOL_SIZE", "many")],
        &[("server.drain_timout", "1s")],
    )
    .expect_err("five problems");
    for part in [
        "5 problems",
        "databse.url",
        "did you mean database.url?",
        "server.listen",
        "log.format",
        "env POSTRIDER_DATABASE__POOL_SIZE",
        "did you mean server.drain_timeout?",
    ] {
        assert!(message.contains(part), "{part} is not in:\n{message}");
    }
}

#[test]
fn an_unknown_environment_variable_with_our_prefix_is_a_problem() {
    let message =
        load_with("", &[("POSTRIDER_SERVER__LISTN", "127.0.0.1:1")], &[]).expect_err("unknown");
    assert!(message.contains("did you mean server.listen?"), "{message}");
    load_with(
        "",
        &[
            ("POSTRIDER_SERVER", "http://x"),
            ("POSTRIDER_TOKEN", "t"),
            ("PATH", "/bin"),
        ],
        &[],
    )
    .expect("the client's own variables are no keys");
}

#[test]
fn keys_may_be_camel_case_or_kebab_case() {
    let effective =
        load_with("[server]\nbodyLimit = 5\nrequest-timeout = 7", &[], &[]).expect("valid");
    assert_eq!(effective.config.server.body_limit.as_u64(), 5);
    assert_eq!(effective.config.server.request_timeout.as_secs(), 7);
}

#[test]
fn durations_have_a_unit_or_are_seconds() {
    let file = "[server]\nrequest_timeout = 2\ndrain_timeout = '1m 30s'";
    let effective =
        load_with(file, &[("POSTRIDER_DATABASE__CONNECT_TIMEOUT", "0.5")], &[]).expect("valid");
    assert_eq!(
        effective.config.server.request_timeout,
        Duration::from_secs(2)
    );
    assert_eq!(
        effective.config.server.drain_timeout,
        Duration::from_secs(90)
    );
    assert_eq!(
        effective.config.database.connect_timeout,
        Duration::from_millis(500)
    );
}

#[test]
fn a_public_address_needs_a_token() {
    let message = load_with("", &[], &[("server.listen", "0.0.0.0:8080")]).expect_err("refused");
    assert!(
        message.contains("server.tokens") && message.contains("127.0.0.1"),
        "{message}"
    );
    let token = format!(
        "[{{ name = 'ci', sha256 = '{}', scopes = ['read'] }}]",
        "ab".repeat(32)
    );
    load_with(
        "",
        &[("POSTRIDER_SERVER__TOKENS", &token)],
        &[("server.listen", "0.0.0.0:8080")],
    )
    .expect("valid with a token");
}

#[test]
fn a_secret_appears_neither_in_output_nor_in_errors() {
    let secret = "s3cr3t-hunter2";
    let url = format!("postgres://me:{secret}@db/x");
    let token = format!(
        "[{{ name = 'ci', sha256 = '{}', scopes = ['read'] }}]",
        "ab".repeat(32)
    );
    let env = [
        ("POSTRIDER_DATABASE__URL", url.as_str()),
        ("POSTRIDER_SERVER__TOKENS", &token),
    ];
    let effective = load_with("", &env, &[]).expect("valid");
    for printed in [
        as_toml(&effective),
        as_json(&effective).to_string(),
        format!("{:?}", effective.config.database),
    ] {
        assert!(
            !printed.contains(secret) && !printed.contains("abab"),
            "{printed}"
        );
    }
    assert!(
        as_toml(&effective).contains("\"ci\""),
        "names of callers are no secret"
    );

    let wrong = [
        ("database.url", format!("mysql://me:{secret}@db/x")),
        (
            "server.tokens",
            format!("[{{ name = 'ci', sha256 = '{secret}', scopes = ['read'] }}]"),
        ),
        ("server.tokens", secret.to_owned()),
    ];
    for (key, value) in wrong {
        let message = load_with("", &[], &[(key, &value)]).expect_err("refused");
        assert!(!message.contains(secret), "{message}");
    }
    let broken_file = format!("[database]\nurl = \"postgres://me:{secret}@db/x");
    let message = load_with(&broken_file, &[], &[]).expect_err("not TOML");
    assert!(
        message.contains("line 2") && !message.contains(secret),
        "{message}"
    );
}

#[test]
fn printed_configuration_parses_again() {
    let effective = load_with("[log]\nformat = 'json'", &[], &[]).expect("valid");
    let again = load_with(&as_toml(&effective), &[], &[]).expect("the printed file is valid");
    assert_eq!(again.config.log.format, LogFormat::Json);
}

#[test]
fn an_unknown_log_level_is_rejected() {
    assert!(load_with("", &[], &[("log.level", "verbos")]).is_err());
    assert!(load_with("", &[], &[("log.level", "info,sqlx=warn")]).is_ok());
}

#[test]
fn too_many_attempts_are_rejected() {
    let key = "payments.wallet.max_attempts";
    let message = load_with("", &[], &[(key, "40000")]).expect_err("refused");
    assert!(message.contains("must be between 1 and 30000"), "{message}");
    load_with("", &[], &[(key, "30000")]).expect("the maximum is valid");
}

#[test]
fn a_body_limit_above_the_maximum_is_rejected() {
    let key = "server.body_limit";
    for limit in ["0", "1025MiB", "9000000000000000000"] {
        let message = load_with("", &[], &[(key, limit)]).expect_err("refused");
        assert!(
            message.contains(key) && message.contains("is not between 1 byte and 1.0 GiB"),
            "{message}"
        );
    }
    load_with("", &[], &[(key, "1GiB")]).expect("the maximum is valid");
}

#[test]
fn too_few_connections_are_rejected() {
    for key in ["database.pool_size", "database.worker_connections"] {
        let message = load_with("", &[], &[(key, "1")]).expect_err("refused");
        assert!(
            message.contains(key) && message.contains("1 is not between 2 and 1000"),
            "{message}"
        );
        load_with("", &[], &[(key, "2")]).expect("the minimum is valid");
    }
}
