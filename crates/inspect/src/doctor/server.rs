//! The server: is it safe, is it roomy, and does its clock agree with ours?

use std::collections::HashMap;
use std::time::SystemTime;

use super::Report;
use super::exam::{Answer, Complaint, Exam, age};

/// The oldest version that Postrider is tested with.
const OLDEST: i32 = 15;

const SETTINGS: &str = "
select name, setting from pg_settings where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum',
    'default_transaction_isolation', 'default_transaction_read_only', 'idle_in_transaction_session_timeout',
    'server_version_num', 'TimeZone')
union all select 'standby', case when pg_is_in_recovery() then 'on' else 'off' end";

const CONNECTIONS: &str = "
select count(*), current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
from pg_stat_activity where backend_type = 'client backend'";

const NOTIFY_QUEUE: &str = "select pg_notification_queue_usage()";

const WRAPAROUND: &str = "
select datname::text, greatest(age(datfrozenxid), mxid_age(datminmxid))::bigint
from pg_database where datallowconn order by 2 desc limit 1";

/// The database's own collation and those of columns in use that changed under their indexes.
const COLLATION: &str = "
select 'database ' || quote_ident(datname) from pg_database
where datname = current_database() and datcollversion <> pg_database_collation_actual_version(oid)
union all
select distinct 'collation ' || c.oid::regcollation::text from pg_collation c
join pg_attribute a on a.attcollation = c.oid
where c.collversion <> pg_collation_actual_version(c.oid)
limit 100";

/// Until version 16, and since.
const CHECKPOINTS: (&str, &str) = (
    "select checkpoints_timed, checkpoints_req, extract(epoch from now() - stats_reset)::float8 from pg_stat_bgwriter",
    "select num_timed, num_requested, extract(epoch from now() - stats_reset)::float8 from pg_stat_checkpointer",
);

type Settings = HashMap<String, String>;

pub(super) async fn examine(exam: &Exam<'_>, report: &mut Report) {
    let rows = exam.ask::<(String, String)>(SETTINGS.to_owned()).await;
    let settings: Settings = match rows {
        Ok(rows) => rows.into_iter().collect(),
        Err(unanswered) => {
            report.take("server/settings", None, "", Err(unanswered));
            Settings::new()
        }
    };
    report.take(
        "server/version",
        None,
        "the server's version is supported",
        Ok(version(&settings)),
    );
    report.take(
        "server/settings",
        None,
        "what commits is durable",
        Ok(judge(&settings)),
    );
    report.take(
        "server/connections",
        None,
        "there are connections to spare",
        connections(exam).await,
    );
    report.take(
        "server/checkpoints",
        None,
        "checkpoints come at leisure",
        checkpoints(exam, &settings).await,
    );
    report.take(
        "server/notify-queue",
        None,
        "the queue of notifications is nearly empty",
        notify_queue(exam).await,
    );
    report.take(
        "server/wraparound",
        None,
        "transaction numbers are frozen in time",
        wraparound(exam).await,
    );
    report.take(
        "server/collation",
        None,
        "texts sort as they did when the indexes were made",
        collation(exam).await,
    );
    report.take(
        "I6/clock",
        None,
        "this machine's clock agrees with the database's",
        clock(exam, &settings).await,
    );
}

fn number(settings: &Settings) -> i32 {
    let text = settings.get("server_version_num");
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn version(settings: &Settings) -> Vec<Complaint> {
    let major = number(settings) / 10_000;
    if major == 0 || major >= OLDEST {
        return Vec::new();
    }
    vec![Complaint::critical(
        format!("the server is PostgreSQL {major}; Postrider needs {OLDEST} or newer"),
        "upgrade the server",
    )]
}

fn judge(settings: &Settings) -> Vec<Complaint> {
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|is| is == value);
    let mut complaints = Vec::new();
    if is("fsync", "off") {
        complaints.push(Complaint::critical(
            "fsync is off: a crash of the machine loses or destroys the database".to_owned(),
            "set fsync = on and reload",
        ));
    }
    if is("full_page_writes", "off") {
        complaints.push(Complaint::critical(
            "full_page_writes is off: a crash of the machine may leave torn pages".to_owned(),
            "set full_page_writes = on and reload",
        ));
    }
    if is("synchronous_commit", "off") {
        complaints.push(Complaint::critical(
            "synchronous_commit is off: work that was accepted may be lost when the server crashes"
                .to_owned(),
            "set it to on, for the server, this database and this role; the engine turns it off by itself where that is safe",
        ));
    }
    if is("standby", "on") || is("default_transaction_read_only", "on") {
        complaints.push(Complaint::critical(
            "the database is read-only or a standby: no work can be accepted or done".to_owned(),
            "connect to the primary (`target_session_attrs=read-write`), or make this one writable",
        ));
    }
    if is("autovacuum", "off") {
        complaints.push(Complaint::critical(
            "autovacuum is off: tables grow, claims slow down, and in the end the server stops to save its data".to_owned(),
            "set autovacuum = on and reload",
        ));
    }
    if settings.contains_key("default_transaction_isolation")
        && !is("default_transaction_isolation", "read committed")
    {
        complaints.push(Complaint::warning(
            "default_transaction_isolation is not read committed: items of an ordering key may overtake each other and conflicts become errors".to_owned(),
            "leave it at read committed for this database and role",
        ));
    }
    if is("idle_in_transaction_session_timeout", "0") {
        complaints.push(Complaint::info(
            "idle_in_transaction_session_timeout is 0: a program that forgets an open transaction holds vacuum back for ever".to_owned(),
            "set it to some minutes, e.g. `alter database … set idle_in_transaction_session_timeout = '10min'`",
        ));
    }
    complaints
}

async fn connections(exam: &Exam<'_>) -> Answer {
    let (used, most): (i64, i64) = exam.ask_one(CONNECTIONS.to_owned()).await?;
    Ok(crowded(used, most))
}

fn crowded(used: i64, most: i64) -> Vec<Complaint> {
    let what = format!("{used} of {most} connections are in use");
    let advice = "lower the programs' pool sizes, end idle ones, or raise max_connections";
    if used * 100 >= most * 95 {
        vec![Complaint::critical(what, advice)]
    } else if used * 100 >= most * 80 {
        vec![Complaint::warning(what, advice)]
    } else {
        Vec::new()
    }
}

async fn checkpoints(exam: &Exam<'_>, settings: &Settings) -> Answer {
    let sql = if number(settings) >= 170_000 {
        CHECKPOINTS.1
    } else {
        CHECKPOINTS.0
    };
    let (timed, requested, span): (i64, i64, Option<f64>) = exam.ask_one(sql.to_owned()).await?;
    Ok(hurried(timed, requested, span.unwrap_or(0.0)))
}

fn hurried(timed: i64, requested: i64, span: f64) -> Vec<Complaint> {
    const FEW: i64 = 20;
    const OFTEN: f64 = 600.0;
    #[allow(clippy::cast_precision_loss, reason = "an average for people")]
    let every = span / (requested.max(1) as f64);
    if requested < FEW || requested <= timed || every > OFTEN {
        return Vec::new();
    }
    vec![Complaint::warning(
        format!(
            "{requested} of {} checkpoints came early because the log was full, one every {}: each makes the log larger still",
            timed + requested,
            age(every)
        ),
        "raise max_wal_size until most checkpoints come by time (checkpoint_timeout)",
    )]
}

async fn notify_queue(exam: &Exam<'_>) -> Answer {
    let (usage,): (f64,) = exam.ask_one(NOTIFY_QUEUE.to_owned()).await?;
    Ok(filling(usage))
}

fn filling(usage: f64) -> Vec<Complaint> {
    let what = format!(
        "the queue of notifications is {:.0} % full: a session listens and does not read; when it is full, commits that notify fail",
        usage * 100.0
    );
    let advice =
        "end the session with the oldest transaction that listens (see vacuum/open-transactions)";
    if usage >= 0.5 {
        vec![Complaint::critical(what, advice)]
    } else if usage >= 0.1 {
        vec![Complaint::warning(what, advice)]
    } else {
        Vec::new()
    }
}

async fn wraparound(exam: &Exam<'_>) -> Answer {
    let (database, oldest): (String, i64) = exam.ask_one(WRAPAROUND.to_owned()).await?;
    Ok(wearing_out(&database, oldest))
}

/// At about 2.1 thousand million the server refuses to write.
fn wearing_out(database: &str, oldest: i64) -> Vec<Complaint> {
    let what = format!(
        "the database {database} has transactions {} million numbers old that are not frozen; at 2,100 million the server stops accepting writes",
        oldest / 1_000_000
    );
    let advice = "see what holds vacuum back (the findings vacuum/…), then run `vacuum freeze` on the oldest tables";
    if oldest >= 1_500_000_000 {
        vec![Complaint::critical(what, advice)]
    } else if oldest >= 600_000_000 {
        vec![Complaint::warning(what, advice)]
    } else {
        Vec::new()
    }
}

async fn collation(exam: &Exam<'_>) -> Answer {
    let rows: Vec<(String,)> = exam.ask(COLLATION.to_owned()).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = "the operating system's sorting rules changed since the indexes were made: a unique index over texts may miss what it holds";
    let advice =
        "`reindex database` in a quiet hour, then `alter database … refresh collation version`";
    Ok(vec![Complaint::critical(what.to_owned(), advice).items(
        rows.into_iter().map(|(name,)| name),
        exam.limits.sample,
    )])
}

/// A hint only: the engine judges by the database's clock alone.
async fn clock(exam: &Exam<'_>, settings: &Settings) -> Answer {
    const NOW: &str = "select extract(epoch from clock_timestamp())::float8";
    let before = epoch();
    let (theirs,): (f64,) = exam.ask_one(NOW.to_owned()).await?;
    let zone = settings.get("TimeZone").map_or("?", String::as_str);
    Ok(apart(before, theirs, epoch(), zone))
}

fn epoch() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

fn apart(before: f64, theirs: f64, after: f64, zone: &str) -> Vec<Complaint> {
    const MUCH: f64 = 2.0;
    let off = if theirs > after {
        theirs - after
    } else {
        before - theirs
    };
    if off < MUCH {
        return Vec::new();
    }
    vec![Complaint::info(
        format!(
            "this machine's clock and the database's (time zone {zone}) are at least {} apart; due times and leases go by the database's",
            age(off)
        ),
        "have both machines keep time by NTP, so that logs can be compared",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    fn worst(complaints: &[Complaint]) -> Option<Severity> {
        complaints.iter().map(|complaint| complaint.severity).max()
    }

    fn settings(values: &[(&str, &str)]) -> Settings {
        let own = |text: &&str| (*text).to_owned();
        values.iter().map(|(n, v)| (own(n), own(v))).collect()
    }

    #[test]
    fn settings_that_risk_data_are_critical() {
        for (name, value) in [
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("synchronous_commit", "off"),
            ("autovacuum", "off"),
            ("standby", "on"),
            ("default_transaction_read_only", "on"),
        ] {
            let found = judge(&settings(&[(name, value)]));
            assert_eq!(worst(&found), Some(Severity::Critical), "{name}");
            assert_eq!(found.len(), 1, "{name}");
        }
    }

    #[test]
    fn settings_as_they_come_are_fine() {
        let usual = settings(&[
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
            ("autovacuum", "on"),
            ("standby", "off"),
            ("default_transaction_isolation", "read committed"),
            ("idle_in_transaction_session_timeout", "600000"),
        ]);
        assert_eq!(worst(&judge(&usual)), None);
        let forgetful = settings(&[("idle_in_transaction_session_timeout", "0")]);
        assert_eq!(worst(&judge(&forgetful)), Some(Severity::Info));
        let strict = settings(&[("default_transaction_isolation", "serializable")]);
        assert_eq!(worst(&judge(&strict)), Some(Severity::Warning));
    }

    #[test]
    fn an_old_server_is_refused() {
        let of = |number| worst(&version(&settings(&[("server_version_num", number)])));
        assert_eq!(of("140011"), Some(Severity::Critical));
        assert_eq!(of("150000"), None);
        assert_eq!(of("180001"), None);
    }

    #[test]
    fn what_fills_up_is_told_before_it_is_full() {
        assert_eq!(worst(&crowded(10, 100)), None);
        assert_eq!(worst(&crowded(80, 100)), Some(Severity::Warning));
        assert_eq!(worst(&crowded(95, 100)), Some(Severity::Critical));
        assert_eq!(worst(&filling(0.01)), None);
        assert_eq!(worst(&filling(0.2)), Some(Severity::Warning));
        assert_eq!(worst(&filling(0.6)), Some(Severity::Critical));
        assert_eq!(worst(&wearing_out("d", 200_000_000)), None);
        assert_eq!(
            worst(&wearing_out("d", 700_000_000)),
            Some(Severity::Warning)
        );
        assert_eq!(
            worst(&wearing_out("d", 1_900_000_000)),
            Some(Severity::Critical)
        );
    }

    #[test]
    fn only_many_early_checkpoints_in_short_time_are_a_matter() {
        assert_eq!(worst(&hurried(0, 5, 60.0)), None);
        assert_eq!(worst(&hurried(500, 100, 600.0)), None);
        assert_eq!(worst(&hurried(10, 100, 1e7)), None);
        assert_eq!(worst(&hurried(10, 100, 6_000.0)), Some(Severity::Warning));
    }

    #[test]
    fn clocks_are_apart_only_beyond_the_time_that_asking_took() {
        assert!(apart(100.0, 105.0, 110.0, "UTC").is_empty());
        assert!(apart(100.0, 111.0, 110.0, "UTC").is_empty());
        assert_eq!(apart(100.0, 200.0, 110.0, "UTC").len(), 1);
        assert_eq!(apart(100.0, 10.0, 110.0, "UTC").len(), 1);
    }
}
