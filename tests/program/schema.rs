//! Constraints that the database enforces on every work table of every service.

use postrider::lease::WorkTable;
use postrider_cli::services;
use postrider_testkit::TestDb;
use sqlx::{AssertSqlSafe, Executor, PgConnection};

/// A copy of the table with its constraints and one fresh row, without other required columns.
async fn copy(connection: &mut PgConnection, table: &WorkTable) {
    let loosen = format!(
        "drop table if exists pg_temp.copy;
         create temp table copy (like {name} including defaults including constraints);
         do $$ declare c name; begin
             for c in select attname from pg_attribute
                      where attrelid = 'pg_temp.copy'::regclass and attnum > 0 and attnotnull and not atthasdef loop
                 execute format('alter table pg_temp.copy alter column %I drop not null', c);
             end loop;
         end $$;
         insert into pg_temp.copy default values",
        name = table.name
    );
    connection.execute(AssertSqlSafe(loosen)).await.unwrap();
}

/// Every impossible combination of state and columns.
fn impossible(table: &WorkTable) -> Vec<String> {
    let (c, s) = (&table.columns, &table.states);
    let state = |word: &str| format!("{} = '{word}'", c.state);
    let (until, fence) = (
        format!("{} = now()", c.lease_until),
        format!("{} = 1", c.fence),
    );
    let owner = format!("{} = 'x'", c.owner);
    let finished = format!("{} = now()", c.finished);
    let tried = format!("{} = 1", c.attempts);
    let mut pairs = vec![
        vec![state(s.leased)],
        vec![until.clone(), fence.clone(), owner.clone()],
        vec![state(s.leased), until.clone(), fence.clone()],
        vec![state(s.leased), until.clone(), owner.clone()],
        vec![state(s.leased), fence.clone(), owner.clone()],
        vec![until],
        vec![fence],
        vec![owner.clone()],
        vec![state(s.waiting), tried.clone(), owner],
        vec![state(s.waiting), tried.clone(), finished.clone()],
        vec![state(s.done)],
        vec![finished.clone()],
        vec![state(s.dead)],
        vec![state(s.dead), finished],
        vec![tried],
    ];
    if let Some(parked) = c.parked {
        pairs.push(vec![format!("{parked} = 'why'")]);
        pairs.push(vec![format!("{} = 'infinity'", c.due)]);
    }
    pairs.into_iter().map(|pair| pair.join(", ")).collect()
}

#[tokio::test]
async fn every_work_table_rejects_impossible_states() {
    let db = TestDb::from_template("all-services", async |connection| {
        services::migrator().run(connection).await.map(drop)
    })
    .await;
    let mut connection = db.connect().await;
    let mut let_through = Vec::new();
    for table in services::work_tables() {
        copy(&mut connection, table).await;
        for pair in impossible(table) {
            let update = format!("update pg_temp.copy set {pair}");
            let code = match connection.execute(AssertSqlSafe(update)).await {
                Ok(_) => None,
                Err(error) => error
                    .as_database_error()
                    .and_then(|error| error.code().map(std::borrow::Cow::into_owned)),
            };
            if code.as_deref() != Some("23514") {
                let_through.push(format!("{}: {pair} ({code:?})", table.name));
                copy(&mut connection, table).await;
            }
        }
    }
    assert!(let_through.is_empty(), "{let_through:#?}");
}
