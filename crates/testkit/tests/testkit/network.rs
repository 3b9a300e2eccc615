//! Each fault against a real PostgreSQL.

use std::time::{Duration, Instant};

use postrider_testkit::proxy::{CommitCut, Direction};
use postrider_testkit::{Proxy, TestDb, eventually};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

async fn database() -> (TestDb, Proxy) {
    let db = TestDb::from_template("network", async |connection| {
        sqlx::raw_sql("CREATE TABLE item (id int)")
            .execute(connection)
            .await
            .map(drop)
    })
    .await;
    let proxy = Proxy::for_database(&db).await;
    (db, proxy)
}

async fn through(proxy: &Proxy) -> PgConnection {
    PgConnection::connect_with(&proxy.connect_options())
        .await
        .unwrap()
}

async fn items(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let row = sqlx::query("SELECT count(*) FROM item")
        .fetch_one(connection)
        .await?;
    Ok(row.get(0))
}

async fn insert_in_transaction(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::query("INSERT INTO item VALUES (1)")
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

#[tokio::test]
async fn without_a_fault_everything_is_forwarded() {
    let (_db, proxy) = database().await;
    let mut connection = PgConnection::connect(&proxy.url()).await.unwrap();
    insert_in_transaction(&mut connection).await.unwrap();
    assert_eq!(items(&mut connection).await.unwrap(), 1);
    assert_eq!((proxy.connections(), proxy.cuts()), (1, 0));
    connection.close().await.unwrap();
    eventually("the connection is closed", async || {
        proxy.connections() == 0
    })
    .await;
}

#[tokio::test]
async fn a_cut_breaks_existing_connections_only() {
    let (_db, proxy) = database().await;
    let mut connection = through(&proxy).await;
    proxy.cut();
    assert!(items(&mut connection).await.is_err());
    proxy.wait_for_cuts(1).await;
    assert_eq!(items(&mut through(&proxy).await).await.unwrap(), 0);
}

#[tokio::test]
async fn a_cut_before_commit_commits_nothing() {
    let (db, proxy) = database().await;
    let mut connection = through(&proxy).await;
    proxy.cut_at_commit(CommitCut::BeforeServer);
    assert!(insert_in_transaction(&mut connection).await.is_err());
    proxy.wait_for_cuts(1).await;
    let mut direct = db.connect().await;
    eventually("the transaction is over", async || {
        let row = sqlx::query(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND backend_type = 'client backend'",
        )
        .fetch_one(&mut direct)
        .await
        .unwrap();
        row.get::<i64, _>(0) == 1
    })
    .await;
    assert_eq!(items(&mut direct).await.unwrap(), 0);
    // The fault is spent: the next transaction succeeds.
    insert_in_transaction(&mut through(&proxy).await)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_cut_after_commit_hides_a_successful_commit() {
    let (db, proxy) = database().await;
    let mut connection = through(&proxy).await;
    proxy.cut_at_commit(CommitCut::BeforeAnswer);
    assert!(insert_in_transaction(&mut connection).await.is_err());
    assert_eq!(items(&mut db.connect().await).await.unwrap(), 1);
    assert_eq!(proxy.cuts(), 1);
}

#[tokio::test]
async fn a_prepared_commit_is_cut_as_well() {
    let (db, proxy) = database().await;
    let mut connection = through(&proxy).await;
    for committed in [true, false] {
        if !committed {
            proxy.cut_at_commit(CommitCut::BeforeServer);
        }
        let run = async {
            for sql in ["BEGIN", "INSERT INTO item VALUES (1)", "COMMIT"] {
                sqlx::query(sql).execute(&mut connection).await?;
            }
            Ok::<_, sqlx::Error>(())
        };
        assert_eq!(run.await.is_ok(), committed);
    }
    assert_eq!(items(&mut db.connect().await).await.unwrap(), 1);
}

#[tokio::test]
async fn a_cut_after_some_bytes_interrupts_a_long_response() {
    let (_db, proxy) = database().await;
    let mut connection = through(&proxy).await;
    proxy.cut_after(Direction::ToClient, 10_000);
    let long = sqlx::query("SELECT repeat('x', 1000) FROM generate_series(1, 100)")
        .fetch_all(&mut connection)
        .await;
    assert!(long.is_err());
    proxy.wait_for_cuts(1).await;
}

#[tokio::test]
async fn a_half_open_connection_gets_no_response_until_it_is_cut() {
    let (_db, proxy) = database().await;
    let mut connection = through(&proxy).await;
    proxy.black_hole();
    {
        let mut asking = std::pin::pin!(items(&mut connection));
        let answer = tokio::time::timeout(Duration::from_millis(300), &mut asking).await;
        assert!(answer.is_err(), "something answered");
        proxy.cut();
        assert!(asking.await.is_err());
    }
    proxy.pass();
    assert_eq!(items(&mut through(&proxy).await).await.unwrap(), 0);
}

#[tokio::test]
async fn delayed_and_trickled_bytes_still_arrive() {
    let (_db, proxy) = database().await;
    let mut connection = through(&proxy).await;
    proxy.delay(Duration::from_millis(100));
    let begin = Instant::now();
    assert_eq!(items(&mut connection).await.unwrap(), 0);
    assert!(begin.elapsed() >= Duration::from_millis(200), "both ways");
    proxy.trickle();
    insert_in_transaction(&mut connection).await.unwrap();
    assert_eq!(items(&mut connection).await.unwrap(), 1);
}

#[tokio::test]
async fn refusing_affects_new_connections_only_and_can_be_undone() {
    let (_db, proxy) = database().await;
    let mut old = through(&proxy).await;
    proxy.refuse();
    let new = PgConnection::connect_with(&proxy.connect_options()).await;
    assert!(new.is_err());
    assert_eq!(items(&mut old).await.unwrap(), 0);
    proxy.pass();
    through(&proxy).await;
}
