//! Load on exports: jobs of inputs, one file each; the price feed fails now and then, and one index has no prices yet.

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

use super::{Accepted, Progress, QUERY_TIMEOUT, Run, keys};
use crate::demo::{
    Error,
    checker::{Effect, Evidence},
    parties::UNLISTED,
};

const NAME: &str = "exports";
const PER_SECOND: u64 = 10;

/// The number of inputs of a job.
const INPUTS_PER_JOB: u64 = 20;

/// The number of rows of a file.
const ROWS: i64 = 40;

/// The source of the rows: slow, and every ninth query fails. A sequence counts the queries, because it does not roll
/// back.
const CREATE_FEED: &str = "
create schema if not exists demo;
create table if not exists demo.listed (symbol text primary key);
truncate demo.listed;
insert into demo.listed values ('ABC'), ('DEF'), ('GHI');
create sequence if not exists demo.query_no;
create or replace function demo.prices(symbol text, at date, moment text)
returns table (index_key text, effective_date date, asof_indicator text, rank integer, price integer)
language plpgsql volatile as $$
begin
    perform pg_sleep(0.15);
    if nextval('demo.query_no') % 9 = 0 then
        raise exception 'the price feed failed';
    end if;
    return query
        select prices.symbol, at, moment, n, 1000 + 7 * n + extract(doy from at)::integer
        from generate_series(1, 40) n where prices.symbol in (select l.symbol from demo.listed l);
end
$$";

const LIST_SYMBOL: &str = "insert into demo.listed values ($1) on conflict do nothing";

/// Was the database created for something else than a demo?
const IS_FOREIGN: &str = "
select exists (select from pg_namespace where nspname = 'postrider')
   and not exists (select from pg_namespace where nspname = 'demo')";

const COUNT_RETRIED: &str = "
select count(distinct item_id) from postrider.attempt
where work_table = 'exports.export_job_input' and outcome = 'retry' and at >= $1";

/// Does this database belong to something else than a demo?
pub async fn is_foreign(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(IS_FOREIGN).fetch_one(pool).await
}

/// Creates the source of the rows.
pub async fn create_feed(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(CREATE_FEED).execute(pool).await.map(|_| ())
}

/// A submitted input.
#[derive(Debug, Clone)]
struct Input {
    index: &'static str,
    day: Date,
}

impl Input {
    fn new(number: u64) -> Self {
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

    fn request(&self) -> Value {
        json!({ "indexKey": self.index, "effectiveDate": self.digits(), "asofindicator": "CLS" })
    }

    /// The name of its file, which identifies the input.
    fn file_name(&self) -> String {
        format!("{}_{}_CLS.csv", self.index, self.digits())
    }

    /// The exact content of its file.
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

/// The load.
pub struct Exports {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<Input>,
    /// Files of earlier runs.
    earlier: BTreeSet<PathBuf>,
    /// The last known number of retried inputs.
    retried: AtomicU64,
    /// The job with the input that has no prices.
    failing_job: OnceLock<String>,
}

impl Exports {
    pub fn new(run: Arc<Run>) -> Self {
        let mut earlier = BTreeMap::new();
        files(&run.store.join("exports"), &mut earlier);
        Self {
            planned: run.planned(PER_SECOND),
            accepted: Accepted::new(),
            earlier: earlier.into_keys().collect(),
            retried: AtomicU64::new(0),
            failing_job: OnceLock::new(),
            run,
        }
    }

    pub async fn submit(&self) -> Result<(), Error> {
        let jobs = self.planned.div_ceil(INPUTS_PER_JOB);
        let mut pace = self.run.pace(jobs);
        for job in 0..jobs {
            pace.tick().await;
            let numbers = job * INPUTS_PER_JOB..((job + 1) * INPUTS_PER_JOB).min(self.planned);
            let mut inputs: Vec<Input> = numbers.map(Input::new).collect();
            let failing = job == self.failing_job_number();
            if let (true, Some(input)) = (failing, inputs.get_mut(4)) {
                input.index = UNLISTED;
            }
            let requests: Vec<Value> = inputs.iter().map(Input::request).collect();
            let key = format!("{}-export-{job}", self.run.name);
            let answer = self
                .run
                .client
                .retry(|| {
                    self.run
                        .client
                        .request(Method::POST, "/jobs")
                        .header("idempotency-key", &key)
                        .json(&json!({ "inputs": requests }))
                })
                .await?;
            if let (true, Some(id)) = (failing, answer["jobId"].as_str()) {
                // Set once: there is only one.
                let _ = self.failing_job.set(id.to_owned());
            }
            for input in inputs {
                self.accepted.insert(input.file_name(), input);
            }
        }
        Ok(())
    }

    /// The second job, or the only one.
    const fn failing_job_number(&self) -> u64 {
        if self.planned > INPUTS_PER_JOB { 1 } else { 0 }
    }

    /// Gives the new index prices.
    pub async fn fix_cause(&self) -> Result<(), Error> {
        let done = sqlx::query(LIST_SYMBOL)
            .bind(UNLISTED)
            .execute(&self.run.pool)
            .await;
        done.map_err(|e| Error::database(&e))?;
        Ok(())
    }

    /// Redrives the failed input of the job.
    pub async fn redrive(&self) -> Result<(), Error> {
        let Some(job) = self.failing_job.get() else {
            return Err(Error::failed("no export job has failed"));
        };
        let path = format!("/jobs/{job}/redrive");
        self.run.client.post(&path, &json!({})).await?;
        Ok(())
    }

    pub async fn progress(&self) -> Progress {
        if let Ok(Ok(retried)) = timeout(QUERY_TIMEOUT, self.retried()).await {
            self.retried
                .store(retried.unsigned_abs(), Ordering::Relaxed);
        }
        Progress {
            service: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: self.created().len() as u64,
            retried: self.retried.load(Ordering::Relaxed),
            dead: 0,
            blocked: INPUTS_PER_JOB,
        }
    }

    async fn retried(&self) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar(COUNT_RETRIED)
            .bind(self.run.since)
            .fetch_one(&self.run.pool)
            .await
    }

    /// The files of this run, each with its name.
    fn created(&self) -> BTreeMap<PathBuf, String> {
        let mut created = BTreeMap::new();
        files(&self.run.store.join("exports"), &mut created);
        created.retain(|path, _| !self.earlier.contains(path));
        created
    }

    /// The files in the object store, whatever the service's records say.
    pub async fn evidence(&self) -> Result<Evidence, Error> {
        let accepted = self.accepted.all();
        let mut effects = Vec::new();
        for (path, item) in self.created() {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let input = accepted.get(&item);
            let correct = input.is_some_and(|input| input.content() == text);
            effects.push(Effect { item, correct });
        }
        let retried = self.retried().await.map_err(|e| Error::database(&e))?;
        Ok(Evidence {
            service: NAME,
            accepted: keys(&accepted),
            effects,
            retried: usize::try_from(retried).unwrap_or_default(),
            ..Evidence::default()
        })
    }
}

/// Collects every finished file below a directory with its name. A file in progress has another extension.
fn files(dir: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "csv")
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
    fn inputs_are_distinct_and_define_the_content_of_their_files() {
        let names: BTreeSet<String> = (0..2_000).map(|n| Input::new(n).file_name()).collect();
        assert_eq!(names.len(), 2_000);
        let input = Input::new(100);
        assert_eq!(input.file_name(), "DEF_20230203_CLS.csv");
        let content = input.content();
        assert_eq!(content.lines().count(), 41);
        assert_eq!(content.lines().last(), Some("DEF,2023-02-03,CLS,40,1314"));
    }
}
