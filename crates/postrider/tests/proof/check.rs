//! The checker: compares what callers were told with what happened, from plain logs.
//!
//! `ok` means exactly one effect, unknown means none or one, failed means none; never two. It reads the harness's own
//! journal, the logs without constraints, the calls that the outside server received, and the engine's records as far as they must
//! explain the rest.

use std::collections::{BTreeMap, HashMap};

use sqlx::{PgConnection, PgPool};

use crate::journal::{Call, Journal, Told};
use crate::messages::{GROUPS, MESSAGE};
use crate::outside::Outside;
use crate::work::{EFFECT, INBOX, LEDGER, MOST_ATTEMPTS, PLANNED};

const WORKER_LOST: &str = "WORKER_LOST";

/// What the scenario may have caused besides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// Failures that were not planned: a panic or an injected error inside a handler.
    pub unplanned: bool,
    /// Outside effects repeated because two workers were between lookup and call at once: one of them frozen.
    pub repeats: usize,
}

/// What a scenario came to; read by people, through `Debug`.
#[derive(Debug, Default)]
#[allow(dead_code, reason = "read through Debug")]
pub struct Report {
    pub ok: usize,
    pub unknown: usize,
    pub failed: usize,
    pub done: usize,
    pub dead: usize,
    pub lost_workers: i64,
    pub repeats: usize,
}

#[derive(Debug, Default)]
struct Evidence {
    business: HashMap<String, Vec<(i64, i64)>>,
    effects: HashMap<String, Vec<Effect>>,
    entries: HashMap<i64, Vec<Entry>>,
    completions: HashMap<i64, usize>,
    rows: HashMap<String, Row>,
    ledger: HashMap<String, String>,
    outside_calls: HashMap<String, Vec<String>>,
}

#[derive(Debug, sqlx::FromRow)]
struct Effect {
    n: i64,
    key: String,
    step: String,
    attempts: i32,
    losses: i32,
}

#[derive(Debug, sqlx::FromRow)]
struct Entry {
    item_id: i64,
    attempt: i32,
    outcome: String,
    code: Option<String>,
}

#[derive(Debug, sqlx::FromRow)]
struct Row {
    id: i64,
    key: String,
    state: String,
    attempts: i32,
    code: Option<String>,
}

/// Fails the test with everything that is wrong; otherwise says what was seen.
pub async fn check(
    pool: &PgPool,
    journal: &Journal,
    outside: &Outside,
    allowed: Allowed,
) -> Report {
    let mut connection = pool.acquire().await.unwrap();
    let (report, mut wrong) = examine(&mut connection, journal, outside, allowed).await;
    let count = wrong.len();
    wrong.truncate(20);
    assert!(
        wrong.is_empty(),
        "{count} promises broken, {report:?}:\n{}",
        wrong.join("\n")
    );
    report
}

/// What was seen, and every broken promise.
pub async fn examine(
    connection: &mut PgConnection,
    journal: &Journal,
    outside: &Outside,
    allowed: Allowed,
) -> (Report, Vec<String>) {
    let evidence = Evidence::read(connection, outside).await;
    let mut wrong = Vec::new();
    evidence.nothing_from_nowhere(journal, &mut wrong);
    let mut report = Report {
        ok: journal.count(Told::Ok),
        unknown: journal.count(Told::Unknown),
        failed: journal.count(Told::Failed),
        ..Report::default()
    };
    for (key, call) in &journal.calls {
        let case = Case {
            key,
            call,
            evidence: &evidence,
            allowed,
        };
        case.check(&mut report, &mut wrong);
    }
    evidence.order(journal, &mut wrong);
    let losses = evidence.effects.values().flatten();
    report.lost_workers = losses.map(|effect| i64::from(effect.losses)).sum();
    if report.repeats > allowed.repeats {
        wrong.push(format!(
            "{} outside effects were repeated without need; {} can be explained",
            report.repeats, allowed.repeats
        ));
    }
    (report, wrong)
}

impl Evidence {
    async fn read(connection: &mut PgConnection, outside: &Outside) -> Self {
        let business: Vec<(i64, String, i64)> =
            sqlx::query_as("select n, key, item from proof.business order by n")
                .fetch_all(&mut *connection)
                .await
                .unwrap();
        let effects: Vec<Effect> = sqlx::query_as("select * from proof.effect order by n")
            .fetch_all(&mut *connection)
            .await
            .unwrap();
        let entries: Vec<Entry> = sqlx::query_as(
            "select item_id, attempt, outcome, code from postrider.attempt
             where work_table = 'postrider.outbox' order by at, attempt",
        )
        .fetch_all(&mut *connection)
        .await
        .unwrap();
        let completions: Vec<i64> = sqlx::query_scalar(
            "select unnest(ids) from postrider.completion where work_table = 'postrider.outbox'",
        )
        .fetch_all(&mut *connection)
        .await
        .unwrap();
        let rows: Vec<Row> = sqlx::query_as(
            "select id, payload->>'key' as key, state::text, attempts::integer, error_code as code from postrider.outbox",
        )
        .fetch_all(&mut *connection)
        .await
        .unwrap();
        let ledger: Vec<(String, String)> =
            sqlx::query_as("select key, state::text from postrider.ledger")
                .fetch_all(&mut *connection)
                .await
                .unwrap();
        let mut evidence = Self {
            rows: rows.into_iter().map(|row| (row.key.clone(), row)).collect(),
            ledger: ledger.into_iter().collect(),
            outside_calls: outside.outside_calls(),
            ..Self::default()
        };
        for (n, key, item) in business {
            evidence.business.entry(key).or_default().push((n, item));
        }
        for effect in effects {
            let of_key = evidence.effects.entry(effect.key.clone()).or_default();
            of_key.push(effect);
        }
        for entry in entries {
            evidence
                .entries
                .entry(entry.item_id)
                .or_default()
                .push(entry);
        }
        for item in completions {
            *evidence.completions.entry(item).or_default() += 1;
        }
        evidence
    }

    fn nothing_from_nowhere(&self, journal: &Journal, wrong: &mut Vec<String>) {
        let keys = self.business.keys().chain(self.effects.keys());
        let keys = keys.chain(self.rows.keys()).chain(self.ledger.keys());
        for key in keys.chain(self.outside_calls.keys()) {
            if !journal.calls.contains_key(key) {
                wrong.push(format!("{key}: nobody asked for it"));
            }
        }
    }

    /// Items of one lane come in the order in which their transactions committed, each after the one before it.
    fn order(&self, journal: &Journal, wrong: &mut Vec<String>) {
        let mut lanes: BTreeMap<&str, Vec<(i64, &str)>> = BTreeMap::new();
        for (key, call) in &journal.calls {
            let Some(lane) = call.lane.as_deref() else {
                continue;
            };
            // A lane with many producers has the order of their commits; one with a single producer, who waits for
            // each answer, that of its calls.
            let place = match self.business.get(key) {
                Some(rows) => rows[0].0,
                None if self.effects.contains_key(key) => i64::try_from(call.number).unwrap(),
                None => continue,
            };
            lanes.entry(lane).or_default().push((place, key));
        }
        for (lane, mut asked) in lanes {
            asked.sort_unstable();
            let mut last = ("nothing", i64::MIN);
            for (_, key) in asked {
                let Some(effects) = self.effects.get(key) else {
                    continue;
                };
                let first = effects.iter().map(|effect| effect.n).min().unwrap();
                if first < last.1 {
                    wrong.push(format!(
                        "lane {lane}: {key} came before the end of {}",
                        last.0
                    ));
                }
                last = (key, effects.iter().map(|effect| effect.n).max().unwrap());
            }
        }
    }
}

/// One call and all that is known of it.
struct Case<'a> {
    key: &'a str,
    call: &'a Call,
    evidence: &'a Evidence,
    allowed: Allowed,
}

impl Case<'_> {
    fn check(&self, report: &mut Report, wrong: &mut Vec<String>) {
        let Self {
            key,
            call,
            evidence,
            ..
        } = self;
        let mut say = |what: String| wrong.push(format!("{key} ({call:?}): {what}"));
        let business = evidence.business.get(*key).map_or(0, Vec::len);
        let effects = evidence.effects.get(*key).map_or(&[][..], Vec::as_slice);
        let outside_calls = evidence
            .outside_calls
            .get(*key)
            .map_or(&[][..], Vec::as_slice);
        let row = evidence.rows.get(*key);
        let traces = business + effects.len() + outside_calls.len() + usize::from(row.is_some());
        if call.told == Told::Failed || (call.told == Told::Unknown && traces == 0) {
            if traces > 0 || evidence.ledger.contains_key(*key) {
                say(format!(
                    "no effect was to come of it, there are {traces} traces"
                ));
            }
            return;
        }
        if business > 1 {
            say(format!("{business} rows of business"));
        }
        if outside_calls.windows(2).any(|pair| pair[0] != pair[1]) {
            say(format!(
                "the outside effect came under different ids: {outside_calls:?}"
            ));
        }
        report.repeats += outside_calls.len().saturating_sub(1);

        let count = |step: &str| effects.iter().filter(|e| e.step == step).count();
        let (done, died, failed) = (count("done"), count("died"), count("failed"));
        let dead = row.is_some_and(|row| row.state == "dead");
        if row.is_some() && !dead {
            say(format!("it is unfinished: {row:?}"));
        }
        let item = self.item();
        let completed = item.map_or(0, |id| evidence.completions.get(&id).copied().unwrap_or(0));
        if completed + usize::from(dead) != 1 {
            say(format!(
                "completed {completed} times, dead: {dead}; one of both it must be"
            ));
        }
        let expected = match call.topic.as_str() {
            EFFECT | LEDGER => (usize::from(!dead), usize::from(dead)),
            // A worker can be lost between the effect and the settling, ten times in a row.
            INBOX if dead => (done.min(1), 0),
            INBOX => (1, 0),
            _ => (0, 0),
        };
        if (done, died) != expected {
            say(format!(
                "effects: {done} done, {died} died; {expected:?} was promised"
            ));
        }
        if call.topic == MESSAGE && !dead {
            for group in GROUPS {
                let effects = count(group);
                if effects != 1 {
                    say(format!("the group {group} had {effects} effects"));
                }
            }
        } else if !dead && outside_calls.is_empty() {
            say("it is done, but the outside effect never came".to_owned());
        }
        if call.topic == LEDGER {
            let state = evidence.ledger.get(*key).map(String::as_str);
            if state != Some(if dead { "accepted" } else { "succeeded" }) {
                say(format!("the ledger says {state:?}"));
            }
        }
        report.done += usize::from(!dead);
        report.dead += usize::from(dead);
        if let Some(item) = item {
            let entries = evidence.entries.get(&item).map_or(&[][..], Vec::as_slice);
            self.attempts(entries, row, &mut say);
            let planned = planned(entries);
            let logged = call.topic == EFFECT || call.topic == LEDGER;
            let mut numbers: Vec<i32> = effects
                .iter()
                .filter(|effect| effect.step == "failed")
                .map(|effect| effect.attempts)
                .collect();
            numbers.sort_unstable();
            numbers.dedup();
            if logged && (failed != planned || numbers.len() != failed) {
                say(format!(
                    "{failed} failed attempts logged, {planned} in the journal: {effects:?}"
                ));
            }
        }
    }

    /// Which item of the outbox it was.
    fn item(&self) -> Option<i64> {
        let business = self.evidence.business.get(self.key).map(|rows| rows[0].1);
        let row = self.evidence.rows.get(self.key).map(|row| row.id);
        let told = || {
            self.evidence
                .outside_calls
                .get(self.key)?
                .first()?
                .parse()
                .ok()
        };
        business.or(row).or_else(told)
    }

    /// The engine's own journal explains the counters, and keeps the bounds.
    fn attempts(&self, entries: &[Entry], row: Option<&Row>, say: &mut impl FnMut(String)) {
        let numbers: Vec<i32> = entries.iter().map(|entry| entry.attempt).collect();
        let counted: Vec<i32> = (1..=i32::try_from(entries.len()).unwrap()).collect();
        if numbers != counted || numbers.len() > MOST_ATTEMPTS.unsigned_abs() as usize {
            say(format!(
                "attempts are not counted one by one up to the most: {entries:?}"
            ));
        }
        let spent = entries
            .iter()
            .filter(|entry| entry.outcome != "done" && entry.code.as_deref() != Some(WORKER_LOST))
            .count();
        let unplanned = spent - planned(entries);
        if unplanned > 0 && !self.allowed.unplanned {
            say(format!("failures that nobody planned: {entries:?}"));
        }
        match row {
            Some(row) => {
                let lost = row.code.as_deref() == Some(WORKER_LOST);
                if i32::try_from(spent) != Ok(row.attempts) || row.attempts > MOST_ATTEMPTS {
                    say(format!(
                        "the counter is not explained: {row:?}, {entries:?}"
                    ));
                }
                if !lost && row.attempts != MOST_ATTEMPTS {
                    say(format!("dead too early: {row:?}, {entries:?}"));
                }
            }
            None => {
                let enough = usize::try_from(self.call.fails).unwrap();
                let exact = unplanned > 0 || spent == enough;
                let last = entries.last().map(|entry| entry.outcome.as_str());
                let ended = last == if spent == 0 { None } else { Some("done") };
                if spent < enough || !exact || !ended {
                    say(format!(
                        "done, but not after {enough} failures: {entries:?}"
                    ));
                }
            }
        }
    }
}

fn planned(entries: &[Entry]) -> usize {
    let planned = |entry: &&Entry| entry.code.as_deref() == Some(PLANNED);
    entries.iter().filter(planned).count()
}
