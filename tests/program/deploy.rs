//! The files in `deploy/` work: least-privilege roles, the systemd unit, and a restored backup.

use std::path::{Path, PathBuf};
use std::process::Command;

use postrider_testkit::{TestDb, builders::Serve};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions};

use crate::program::{BINARY, Serving, data_dir, postrider, run, run_with, stderr, stdout};

const PASSWORD: &str = "only-in-this-test";

fn ops(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(name)
}

/// Runs deploy/roles.sql as superuser.
async fn make_roles(db: &TestDb) {
    let script = std::fs::read_to_string(ops("roles.sql")).unwrap();
    let mut connection = db.connect().await;
    sqlx::raw_sql(AssertSqlSafe(script))
        .execute(&mut connection)
        .await
        .unwrap();
    for role in ["owner", "runtime", "reader"] {
        let sql = format!("alter role postrider_{role} password '{PASSWORD}'");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .unwrap();
    }
}

fn as_role(db: &TestDb, role: &str) -> PgConnectOptions {
    db.connect_options()
        .username(&format!("postrider_{role}"))
        .password(PASSWORD)
}

fn url(options: &PgConnectOptions) -> String {
    use sqlx::ConnectOptions as _;
    options.to_url_lossy().to_string()
}

/// Completes one item in each service; returns the ids for later comparison.
async fn work(server: &str, dir: &Path) -> Vec<[String; 3]> {
    let ask = async |words: &[&str]| {
        let output = run_with(&[words, &["--server", server, "--json"]].concat()).await;
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        serde_json::from_str::<Value>(&stdout(&output)).unwrap()
    };
    let words = |text: &'static str| text.split(' ').collect::<Vec<_>>();
    let order = "orders send --key k-1 --account A1 --symbol ACME --side buy --quantity 10 --wait";
    assert_eq!(ask(&words(order)).await["status"], "succeeded");
    ask(&words("wallet open acc-1 --currency USD --balance 100")).await;
    let pay = "payments pay --account acc-1 --amount 12.50 --currency USD --wait";
    let paid = ask(&words(pay)).await;
    assert_eq!(paid["status"], "SUCCEED");
    let inputs = dir.join("inputs.json");
    let input = json!([{ "indexKey": "ABC", "effectiveDate": 20_240_202, "asofindicator": "CLS" }]);
    std::fs::write(&inputs, input.to_string()).unwrap();
    let job = ask(&["exports", "submit", inputs.to_str().unwrap(), "--wait"]).await;
    assert_eq!(job["status"], "COMPLETED");
    let archive = dir.join("e.zip");
    std::fs::write(&archive, crate::evidence::archive(1)).unwrap();
    let path = archive.to_str().unwrap();
    let submit = ["evidence", "submit", path, "--merchant", "m-1", "--wait"];
    let attached = ask(&submit).await;
    assert_eq!(attached["status"], "COMPLETED");
    let text = dir.join("p.txt");
    std::fs::write(&text, "Inclusion Criteria\n1. Age 18 years or older\n").unwrap();
    let path = text.to_str().unwrap();
    let protocol = ask(&["protocols", "upload", path, "--wait"]).await;
    assert_eq!(protocol["status"], "pending_review");
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    let show = |group: &str, id: String| [group.to_owned(), "show".to_owned(), id];
    vec![
        show("orders", "k-1".to_owned()),
        show("payments", id(&paid["uuid"])),
        show("exports", id(&job["jobId"])),
        show("evidence", id(&attached["file_job_id"])),
        show("protocols", id(&protocol["id"])),
    ]
}

async fn assert_rejected(connection: &mut PgConnection, sql: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await;
    let error = done.expect_err(sql);
    let code = error.as_database_error().and_then(|e| e.code());
    assert_eq!(code.as_deref(), Some("42501"), "{sql}: {error}");
}

#[tokio::test]
async fn services_work_as_the_runtime_role_and_the_reader_role_only_reads() {
    let (db, dir) = (TestDb::new().await, data_dir());
    make_roles(&db).await;
    let owner = url(&as_role(&db, "owner"));
    let migrated = run_with(&["migrate", "--database-url", &owner]).await;
    assert!(migrated.status.success(), "{}", stderr(&migrated));
    make_roles(&db).await;

    let runtime = url(&as_role(&db, "runtime"));
    let mut command = Serve::new(BINARY, dir.path())
        .args(&["--database-url", &runtime])
        .command();
    command.env("POSTRIDER_DATABASE__MIGRATE", "false");
    let serving = Serving::start(&command).await;
    work(serving.base(), dir.path()).await;

    let mut runtime = PgConnection::connect_with(&as_role(&db, "runtime"))
        .await
        .unwrap();
    // Housekeeping turns and drops segments of the log, which are tables: the owner lends its rights for just that.
    let turned: Option<i32> = sqlx::query_scalar("select postrider.turn_segment('0 seconds')")
        .fetch_one(&mut runtime)
        .await
        .unwrap();
    assert_eq!(turned, Some(2));
    for sql in [
        "create table postrider.mine (id int)",
        "drop table orders.outbox_orders",
        "alter table payments.request add column x int",
        "create schema mine",
        "delete from postrider.schema_migration",
        "update postrider.audit set actor = 'nobody'",
        "create table public.mine (id int)",
    ] {
        assert_rejected(&mut runtime, sql).await;
    }

    let mut reader = PgConnection::connect_with(&as_role(&db, "reader"))
        .await
        .unwrap();
    let tables: Vec<(String, String)> = sqlx::query_as(
        "select schemaname::text, tablename::text from pg_tables
         where schemaname not in ('pg_catalog', 'information_schema')",
    )
    .fetch_all(&mut reader)
    .await
    .unwrap();
    assert!(tables.len() > 30, "{tables:?}");
    for (schema, table) in &tables {
        let name = format!("{schema}.{table}");
        sqlx::raw_sql(AssertSqlSafe(format!("select * from {name} limit 1")))
            .execute(&mut reader)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_rejected(&mut reader, &format!("delete from {name}")).await;
    }
    assert_rejected(&mut reader, "select postrider.enqueue('t')").await;
    assert_rejected(&mut reader, "select postrider.turn_segment('0 seconds')").await;
    assert_rejected(&mut reader, "select postrider.drop_segments('0 seconds')").await;
    let doctor = url(&as_role(&db, "reader"));
    let examined = run_with(&["doctor", "--database-url", &doctor, "--json"]).await;
    assert_eq!(critical(&examined), Vec::<String>::new());
    assert!(serving.terminate().await.success());
}

/// The doctor's critical findings, except those about the test server, which isn't durable.
fn critical(examined: &std::process::Output) -> Vec<String> {
    let said: Value = serde_json::from_str(&stdout(examined)).expect("one document");
    let findings = said["findings"].as_array().expect("findings").iter();
    findings
        .filter(|finding| {
            finding["severity"] == "critical" && finding["check"] != "server/settings"
        })
        .map(ToString::to_string)
        .collect()
}

/// The database URL without options that libpq doesn't know.
fn for_libpq(db: &TestDb) -> String {
    db.url().split('?').next().unwrap_or_default().to_owned()
}

/// A PostgreSQL client program from the distribution's directory.
fn pg(name: &str) -> Command {
    let dirs = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut found: Vec<PathBuf> = dirs
        .flatten()
        .map(|entry| entry.path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    Command::new(found.pop().unwrap_or_else(|| name.into()))
}

#[tokio::test]
async fn restored_backup_of_database_and_store_knows_every_item() {
    let (db, copy) = (TestDb::new().await, TestDb::new().await);
    let (dir, elsewhere) = (data_dir(), data_dir());
    let serve = |db: &TestDb, data: &Path| {
        Serve::new(BINARY, data)
            .args(&["--database-url", &db.url()])
            .command()
    };
    let serving = Serving::start(&serve(&db, dir.path())).await;
    let known = work(serving.base(), dir.path()).await;
    let show = async |server: &str| {
        let mut shown = Vec::new();
        for words in &known {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = run_with(&[&words[..], &["--server", server, "--json"]].concat()).await;
            assert!(output.status.success(), "{words:?}: {}", stderr(&output));
            // An address in the store may tell where the store is.
            let places = [dir.path(), elsewhere.path()].map(|path| path.to_str().unwrap());
            let text = stdout(&output);
            shown.push(
                places
                    .iter()
                    .fold(text, |text, place| text.replace(place, "")),
            );
        }
        shown
    };
    let before = show(serving.base()).await;
    assert!(serving.terminate().await.success());

    // The database first, then the store: files that the database knows are there, files too many are swept.
    let dump = dir.path().join("postrider.dump");
    let mut save = pg("pg_dump");
    save.args(["--format=custom", "--file"])
        .arg(&dump)
        .arg(for_libpq(&db));
    let saved = run(save).await;
    assert!(saved.status.success(), "{}", stderr(&saved));
    let mut take = Command::new("cp");
    take.arg("-a")
        .arg(dir.path().join("store"))
        .arg(elsewhere.path());
    assert!(run(take).await.status.success());
    let mut restore = pg("pg_restore");
    restore
        .args([
            "--exit-on-error",
            "--no-owner",
            "--dbname",
            &for_libpq(&copy),
        ])
        .arg(&dump);
    let restored = run(restore).await;
    assert!(restored.status.success(), "{}", stderr(&restored));

    let serving = Serving::start(&serve(&copy, elsewhere.path())).await;
    assert_eq!(show(serving.base()).await, before);
    let examined = run_with(&["doctor", "--database-url", &copy.url(), "--json"]).await;
    assert_eq!(critical(&examined), Vec::<String>::new());
    // A key that was used stays used: the order is not sent again.
    let again = "orders send --key k-1 --account A1 --symbol ACME --side buy --quantity 11";
    let words: Vec<&str> = again.split(' ').collect();
    let assert_rejected = run_with(&[&words[..], &["--server", serving.base()]].concat()).await;
    assert_eq!(
        assert_rejected.status.code(),
        Some(7),
        "{}",
        stderr(&assert_rejected)
    );
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn systemd_accepts_the_unit() {
    let unit = std::fs::read_to_string(ops("postrider.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/postrider serve "));
    let dir = data_dir();
    let path = dir.path().join("postrider.service");
    std::fs::write(&path, unit.replace("/usr/bin/postrider", BINARY)).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify").arg(&path);
    if verify.output().is_err() {
        eprintln!("skipped: systemd-analyze is not installed");
        return;
    }
    let verified = run(verify).await;
    assert!(verified.status.success(), "{}", stderr(&verified));
    // What it starts with is what the program takes.
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/postrider "))
        .unwrap();
    let mut words: Vec<&str> = line.split(' ').collect();
    words.push("--help");
    let helped = run(postrider(&words)).await;
    assert!(helped.status.success(), "{}", stderr(&helped));
}
