//! Migrations are all-or-nothing, run once, and never under a program that doesn't know them.

use postrider::migrate::{MigrateError, Migration, MigrationSet, Migrator};
use postrider_testkit::TestDb;

const FIRST: Migration = Migration {
    version: 1,
    name: "0001_first",
    sql: "create table shop.item (id bigint primary key)",
};
const SECOND: Migration = Migration {
    version: 2,
    name: "0002_second",
    sql: "alter table shop.item add column name text",
};
const BROKEN: Migration = Migration {
    version: 2,
    name: "0002_broken",
    sql: "create table shop.other (id int); select 1/0",
};

fn shop(migrations: &'static [Migration]) -> Migrator {
    Migrator::new([MigrationSet {
        schema: "shop",
        migrations,
    }])
}

#[tokio::test]
async fn a_run_is_recorded_and_repeating_it_does_nothing() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    let migrator = shop(&[FIRST, SECOND]).program_version("9.9");
    assert_eq!(
        migrator.plan(&mut connection).await.unwrap().pending.len(),
        2
    );
    assert_eq!(
        migrator.run(&mut connection).await.unwrap().pending.len(),
        2
    );
    let again = migrator.run(&mut connection).await.unwrap();
    assert_eq!((again.applied, again.pending.len()), (2, 0));
    let recorded: Vec<(i32, String, String)> = sqlx::query_as(
        "select version, name, program_version from postrider.schema_migration order by version",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(recorded[1], (2, "0002_second".into(), "9.9".into()));
}

#[tokio::test]
async fn a_plan_changes_nothing() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    shop(&[FIRST]).plan(&mut connection).await.unwrap();
    let schemas: i64 = sqlx::query_scalar(
        "select count(*) from pg_namespace where nspname in ('shop', 'postrider')",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(schemas, 0);
}

#[tokio::test]
async fn a_failure_leaves_the_database_as_it_was() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    let error = shop(&[FIRST, BROKEN])
        .run(&mut connection)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, MigrateError::Failed { file, .. } if file == "0002_broken.sql"),
        "{error}"
    );
    let plan = shop(&[FIRST]).plan(&mut connection).await.unwrap();
    assert_eq!(plan.applied, 0, "the first one was rolled back, too");
}

#[tokio::test]
async fn ten_concurrent_programs_migrate_once() {
    let db = TestDb::new().await;
    let starts = (0..10).map(|_| {
        let connection = db.connect();
        async move {
            shop(&[FIRST, SECOND])
                .run(&mut connection.await)
                .await
                .unwrap()
        }
    });
    let plans = futures_util::future::join_all(starts).await;
    let ran = plans.iter().filter(|plan| plan.applied == 0).count();
    assert_eq!(ran, 1, "one program migrated, the others found it done");
}

#[tokio::test]
async fn an_edited_migration_is_rejected_by_name() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    shop(&[FIRST]).run(&mut connection).await.unwrap();
    const EDITED: Migration = Migration {
        sql: "create table shop.item (id text primary key)",
        ..FIRST
    };
    let error = shop(&[EDITED]).run(&mut connection).await.unwrap_err();
    assert!(matches!(error, MigrateError::Edited { .. }));
    assert!(error.to_string().contains("shop/0001_first.sql"), "{error}");
    const OTHER_LINE_ENDS: Migration = Migration {
        sql: "create table shop.item (id bigint primary key)\r\n",
        ..FIRST
    };
    shop(&[OTHER_LINE_ENDS]).run(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_missing_migration_and_a_newer_schema_are_rejected() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    const THIRD: Migration = Migration {
        version: 3,
        name: "0003_third",
        sql: "select 1",
    };
    shop(&[FIRST, SECOND]).run(&mut connection).await.unwrap();
    let missing = shop(&[FIRST, THIRD])
        .run(&mut connection)
        .await
        .unwrap_err();
    assert!(matches!(missing, MigrateError::Missing { .. }), "{missing}");
    let newer = shop(&[FIRST]).run(&mut connection).await.unwrap_err();
    assert!(matches!(
        newer,
        MigrateError::Newer {
            database: 2,
            program: 1,
            ..
        }
    ));
    assert!(newer.to_string().contains("upgrade the program"), "{newer}");
}

#[tokio::test]
async fn a_schema_with_other_migrations_under_the_same_versions_is_rejected() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    shop(&[FIRST, SECOND]).run(&mut connection).await.unwrap();
    const BASELINE: Migration = Migration {
        name: "0001_baseline",
        ..FIRST
    };
    let error = shop(&[BASELINE]).run(&mut connection).await.unwrap_err();
    assert!(matches!(error, MigrateError::Unrelated { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("0001_first") && text.contains("use an empty database"),
        "{text}"
    );
}

#[tokio::test]
async fn a_version_below_an_applied_one_is_rejected() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    shop(&[SECOND_ALONE]).run(&mut connection).await.unwrap();
    let error = shop(&[FIRST, SECOND_ALONE])
        .run(&mut connection)
        .await
        .unwrap_err();
    assert!(
        matches!(error, MigrateError::OutOfOrder { newest: 2, .. }),
        "{error}"
    );
}

const SECOND_ALONE: Migration = Migration {
    version: 2,
    name: "0002_alone",
    sql: "select 2",
};

#[tokio::test]
async fn a_malformed_set_is_rejected() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    for set in [
        MigrationSet {
            schema: "no good",
            migrations: &[],
        },
        MigrationSet {
            schema: "shop",
            migrations: &[SECOND, FIRST],
        },
    ] {
        let error = Migrator::new([set]).run(&mut connection).await.unwrap_err();
        assert!(matches!(error, MigrateError::Malformed { .. }), "{error}");
    }
}
