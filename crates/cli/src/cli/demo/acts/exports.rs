//! Exports: jobs of inputs, one file for each; the price feed hiccups, and one index has no prices yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::PgPool;
use time::{Date, Duration, macros::date};
use tokio::time::timeout;

use super::{Accepted, Glance, LOOK, Run, names};
use crate::{
    cli::demo::{
        checker::{Effect, Witness},
        parties::broker::UNLISTED,
    },
    exit::{Exit, Failure},
};

const NAME: &str = "exports";
const A_SECOND: u64 = 10;

/// Inputs of one job.
const JOB: u64 = 20;

/// Rows of one file.
const ROWS: i64 = 40;

/// The source of the rows: it takes its time, and every ninth question goes wrong. A sequence counts the questions, for
/// it does not roll back.
const FEED: &str = "
create schema if not exists demo;
create table if not exists demo.listed (symbol text primary key);
truncate demo.listed;
insert into demo.listed values ('ABC'), ('DEF'), ('GHI');
create sequence if not exists demo.question;
create or replace function demo.prices(wanted text, at date, moment text)
returns table (index_key text, effective_date date, asof_indicator text, rank integer, price integer)
language plpgsql volatile as $$
begin
    perform pg_sleep(0.15);
    if nextval('demo.question') % 9 = 0 then
        raise exception 'the price feed lost its thread';
    end if;
    return query
        select wanted, at, moment, n, 1000 + 7 * n + extract(doy from at)::integer
        from generate_series(1, 40) n where wanted in (select l.symbol from demo.listed l);
end
$$";

const LIST: &str = "insert into demo.listed values ($1) on conflict do nothing";

/// Does the directory hold a database that was made for something else?
const FOREIGN: &str = "
select exists (select from pg_namespace where nspname = 'postrider')
   and not exists (select from pg_namespace where nspname = 'demo')";

const RETRIED: &str = "
select count(distinct item_id) from postrider.attempt
where work_table = 'exports.export_job_input' and outcome = 'retry' and at >= $1";

/// Is this the database of somebody's real work?
pub async fn is_foreign(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(FOREIGN).fetch_one(pool).await
}

/// Makes the source of the rows.
pub async fn make_feed(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(FEED).execute(pool).await.map(|_| ())
}

/// What one input asks for.
#[derive(Debug, Clone)]
struct Input {
    index: &'static str,
    day: Date,
}

impl Input {
    fn of(number: u64) -> Self {
        let days = i64::try_from(number / 3).unwrap_or_default();
        Self {
            index: ["ABC", "DEF", "GHI"][(number % 3) as usize],
            day: date!(2023 - 01 - 01) + Duration::days(days),
        }
    }

    fn digits(&self) -> i32 {
        let (year, month, day) = self.day.to_calendar_date();
        year * 10_000 + i32::from(u8::from(month)) * 100 + i32::from(day)
    }

    fn asked(&self) -> Value {
        json!({ "indexKey": self.index, "effectiveDate": self.digits(), "asofindicator": "CLS" })
    }

    /// The name of its file: what the input is known by.
    fn file_name(&self) -> String {
        format!("{}_{}_CLS.csv", self.index, self.digits())
    }

    /// What must stand in it, to the last byte.
    fn content(&self) -> String {
        let mut text = "index_key,effective_date,asof_indicator,rank,price\n".to_owned();
        for rank in 1..=ROWS {
            let price = 1000 + 7 * rank + i64::from(self.day.ordinal());
            let (index, day) = (self.index, self.day);
            text.push_str(&format!("{index},{day},CLS,{rank},{price}\n"));
        }
        text
    }
}

/// The act.
pub struct Exports {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<Input>,
    /// Files of earlier runs.
    before: BTreeSet<PathBuf>,
    /// How many were retried at the last look.
    retried: AtomicU64,
    /// The job with the input that has no prices.
    doomed: OnceLock<String>,
}

impl Exports {
    pub fn new(run: Arc<Run>) -> Self {
        let mut before = BTreeMap::new();
        files(&run.store.join("exports"), &mut before);
        Self {
            planned: run.planned(A_SECOND),
            accepted: Accepted::new(),
            before: before.into_keys().collect(),
            retried: AtomicU64::new(0),
            doomed: OnceLock::new(),
            run,
        }
    }

    pub async fn ask(&self) -> Result<(), Failure> {
        let jobs = self.planned.div_ceil(JOB);
        let mut pace = self.run.pace(jobs);
        for job in 0..jobs {
            pace.tick().await;
            let numbers = job * JOB..((job + 1) * JOB).min(self.planned);
            let mut inputs: Vec<Input> = numbers.map(Input::of).collect();
            let doomed = job == self.doomed_job();
            if let (true, Some(input)) = (doomed, inputs.get_mut(4)) {
                input.index = UNLISTED;
            }
            let asked: Vec<Value> = inputs.iter().map(Input::asked).collect();
            let key = format!("{}-export-{job}", self.run.name);
            let answer = self
                .run
                .door
                .repeat(|| {
                    self.run
                        .door
                        .request(Method::POST, "/jobs")
                        .header("idempotency-key", &key)
                        .json(&json!({ "inputs": asked }))
                })
                .await?;
            if let (true, Some(id)) = (doomed, answer["jobId"].as_str()) {
                // One job only is doomed.
                let _ = self.doomed.set(id.to_owned());
            }
            for input in inputs {
                self.accepted.note(input.file_name(), input);
            }
        }
        Ok(())
    }

    /// The second job, or the only one.
    const fn doomed_job(&self) -> u64 {
        if self.planned > JOB { 1 } else { 0 }
    }

    /// The feed learns the prices of the new index.
    pub async fn list(&self) -> Result<(), Failure> {
        let done = sqlx::query(LIST)
            .bind(UNLISTED)
            .execute(&self.run.pool)
            .await;
        done.map_err(|e| Failure::caused(Exit::Database, "the price feed can't be mended", &e))?;
        Ok(())
    }

    /// The job goes on where it stopped.
    pub async fn redrive(&self) -> Result<(), Failure> {
        let Some(job) = self.doomed.get() else {
            return Err(Failure::new(Exit::Failed, "no export job has failed"));
        };
        let path = format!("/jobs/{job}/redrive");
        self.run.door.post(&path, &json!({})).await?;
        Ok(())
    }

    pub async fn glance(&self) -> Glance {
        if let Ok(Ok(retried)) = timeout(LOOK, self.retried()).await {
            self.retried
                .store(retried.unsigned_abs(), Ordering::Relaxed);
        }
        Glance {
            name: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: self.made().len() as u64,
            retried: self.retried.load(Ordering::Relaxed),
            dead: 0,
            blocked: JOB,
        }
    }

    async fn retried(&self) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar(RETRIED)
            .bind(self.run.since)
            .fetch_one(&self.run.pool)
            .await
    }

    /// The files of this run, each with its name.
    fn made(&self) -> BTreeMap<PathBuf, String> {
        let mut made = BTreeMap::new();
        files(&self.run.store.join("exports"), &mut made);
        made.retain(|path, _| !self.before.contains(path));
        made
    }

    /// The files in the store, wherever they are and whatever the program says of them.
    pub async fn witness(&self) -> Result<Witness, Failure> {
        let accepted = self.accepted.all();
        let mut effects = Vec::new();
        for (path, item) in self.made() {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let asked = accepted.get(&item);
            let right = asked.is_some_and(|input| input.content() == text);
            effects.push(Effect { item, right });
        }
        let retried = self.retried().await.map_err(|e| {
            Failure::caused(Exit::Database, "the journal of attempts can't be read", &e)
        })?;
        Ok(Witness {
            service: NAME,
            accepted: names(&accepted),
            effects,
            retried: usize::try_from(retried).unwrap_or_default(),
            ..Witness::default()
        })
    }
}

/// Every finished file below a directory, with its name. One that is being written has another ending.
fn files(dir: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "csv")
            && let Some(name) = path.file_name()
        {
            let name = name.to_string_lossy().into_owned();
            found.insert(path, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_differ_and_say_what_their_files_must_hold() {
        let names: BTreeSet<String> = (0..2_000).map(|n| Input::of(n).file_name()).collect();
        assert_eq!(names.len(), 2_000);
        let input = Input::of(100);
        assert_eq!(input.file_name(), "DEF_20230203_CLS.csv");
        let content = input.content();
        assert_eq!(content.lines().count(), 41);
        assert_eq!(content.lines().last(), Some("DEF,2023-02-03,CLS,40,1314"));
    }
}
