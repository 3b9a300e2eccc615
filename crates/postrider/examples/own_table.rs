//! A table of your own as a work table, with its own column and state names: `DATABASE_URL=… cargo run --example own_table`.

use std::time::Duration;

use postrider::lease::{Columns, Finish, States};
use postrider::prelude::*;
use sqlx::PgPool;

/// The names of the table below. Nothing but these constants becomes part of an SQL text.
static THUMBNAIL: WorkTable = WorkTable {
    name: "public.thumbnail",
    columns: Columns {
        state: "status",
        parked: None,
        error_category: None,
        cause: None,
        ..Columns::STANDARD
    },
    states: States {
        ready: "NEW",
        leased: "DRAWING",
        waiting: "LATER",
        done: "DRAWN",
        dead: "FAILED",
        cancelled: None,
        archived: Some("ARCHIVED"),
    },
    state_type: "text",
    kind: None,
    payload: "json_build_object('picture', t.picture)",
    headers: None,
    trace: None,
    ordering: None,
    finish: Finish::Keep,
    max_losses: 10,
};

/// One index, over unfinished rows only, and free space on each page: a claim then touches nothing but the row.
const TABLE: &str = "
create table if not exists public.thumbnail (
    id            bigint generated always as identity primary key,
    picture       text not null,
    status        text not null default 'NEW',
    attempts      integer not null default 0,
    losses        integer not null default 0,
    due           timestamptz not null default now(),
    lease_until   timestamptz,
    fence         bigint,
    lease_owner   text,
    finished_at   timestamptz,
    error_code    text,
    error_message text
) with (fillfactor = 45);
create index if not exists thumbnail_claim on public.thumbnail (due, id) where finished_at is null";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url =
        std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a database of your own")?;
    let pool = PgPool::connect(&url).await?;
    Migrator::new([postrider::migrations()])
        .run(&mut *pool.acquire().await?)
        .await?;
    sqlx::raw_sql(TABLE).execute(&pool).await?;
    sqlx::query(
        "insert into thumbnail (picture) select 'picture-' || n from generate_series(1, 50) n",
    )
    .execute(&pool)
    .await?;

    let stop = CancellationToken::new();
    let draw = Handler::new(|item| async move {
        let payload: serde_json::Value = item.read()?;
        tracing::debug!(picture = %payload["picture"], "drawn");
        Ok(Verdict::Done)
    });
    let worker = Worker::new(pool.clone(), &THUMBNAIL)?.handle_others(draw);
    let running = tokio::spawn(worker.run(stop.clone()));
    let drawn = loop {
        let (left, drawn): (i64, i64) = sqlx::query_as(
            "select count(*) filter (where finished_at is null), count(*) filter (where status = 'DRAWN') from thumbnail",
        )
        .fetch_one(&pool)
        .await?;
        if left == 0 {
            break drawn;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    stop.cancel();
    running.await??;
    println!("{drawn} thumbnails drawn; their rows stay, outside the claim index");
    Ok(())
}
