//! The server: durability settings, capacity and clock.

use std::collections::HashMap;
use std::time::SystemTime;

use super::Report;
use super::probe::{CheckResult, Issue, Probe, age};

/// Oldest supported major version.
const MIN_VERSION: i32 = 15;

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

/// Collations of the database and of columns whose version changed after their indexes were built.
const COLLATION: &str = "
select 'database ' || quote_ident(datname) from pg_database
where datname = current_database() and datcollversion <> pg_database_collation_actual_version(oid)
union all
select distinct 'collation ' || c.oid::regcollation::text from pg_collation c
join pg_attribute a on a.attcollation = c.oid
where c.collversion <> pg_collation_actual_version(c.oid)
limit 100";

/// Up to version 16, and from version 17 on.
const CHECKPOINTS: (&str, &str) = (
    "select checkpoints_timed, checkpoints_req, extract(epoch from now() - stats_reset)::float8 from pg_stat_bgwriter",
    "select num_timed, num_requested, extract(epoch from now() - stats_reset)::float8 from pg_stat_checkpointer",
);

type Settings = HashMap<String, String>;

pub(super) async fn examine(probe: &Probe<'_>, report: &mut Report) {
    let rows = probe.query::<(String, String)>(SETTINGS.to_owned()).await;
    let settings: Settings = match rows {
        Ok(rows) => rows.into_iter().collect(),
        Err(error) => {
            report.add("server/settings", None, "", Err(error));
            Settings::new()
        }
    };
    report.add(
        "server/version",
        None,
        "the server's version is supported",
        Ok(version(&settings)),
    );
    report.add(
        "server/settings",
        None,
        "commits are durable",
        Ok(evaluate(&settings)),
    );
    report.add(
        "server/connections",
        None,
        "free connections are available",
        connections(probe).await,
    );
    report.add(
        "server/checkpoints",
        None,
        "most checkpoints are timed",
        checkpoints(probe, &settings).await,
    );
    report.add(
        "server/notify-queue",
        None,
        "the notification queue is nearly empty",
        notify_queue(probe).await,
    );
    report.add(
        "server/wraparound",
        None,
        "transaction ids are frozen in time",
        wraparound(probe).await,
    );
    report.add(
        "server/collation",
        None,
        "collation versions match the indexes",
        collation(probe).await,
    );
    report.add(
        "I6/clock",
        None,
        "this machine's clock matches the database's",
        clock(probe, &settings).await,
    );
}

fn number(settings: &Settings) -> i32 {
    let text = settings.get("server_version_num");
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn version(settings: &Settings) -> Vec<Issue> {
    let major = number(settings) / 10_000;
    if major == 0 || major >= MIN_VERSION {
        return Vec::new();
    }
    vec![Issue::critical(
        format!("the server is PostgreSQL {major}; Postrider needs {MIN_VERSION} or newer"),
        "upgrade the server",
    )]
}

fn evaluate(settings: &Settings) -> Vec<Issue> {
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|is| is == value);
    let mut issues = Vec::new();
    if is("fsync", "off") {
        issues.push(Issue::critical(
            "fsync is off: a crash of the machine can lose or corrupt the database".to_owned(),
            "set fsync = on and reload",
        ));
    }
    if is("full_page_writes", "off") {
        issues.push(Issue::critical(
            "full_page_writes is off: a crash of the machine can leave torn pages".to_owned(),
            "set full_page_writes = on and reload",
        ));
    }
    if is("synchronous_commit", "off") {
        issues.push(Issue::critical(
            "synchronous_commit is off: accepted work can be lost when the server crashes"
                .to_owned(),
            "set it to on for the server, this database and this role; the library turns it off where that is safe",
        ));
    }
    if is("standby", "on") || is("default_transaction_read_only", "on") {
        issues.push(Issue::critical(
            "the database is read-only or a standby: no work can be accepted or handled".to_owned(),
            "connect to the primary (`target_session_attrs=read-write`), or make this one writable",
        ));
    }
    if is("autovacuum", "off") {
        issues.push(Issue::critical(
            "autovacuum is off: tables grow, claims slow down, and finally the server stops accepting writes".to_owned(),
            "set autovacuum = on and reload",
        ));
    }
    if settings.contains_key("default_transaction_isolation")
        && !is("default_transaction_isolation", "read committed")
    {
        issues.push(Issue::warning(
            "default_transaction_isolation is not read committed: items of an ordering key can overtake each other and conflicts become errors".to_owned(),
            "leave it at read committed for this database and role",
        ));
    }
    if is("idle_in_transaction_session_timeout", "0") {
        issues.push(Issue::info(
            "idle_in_transaction_session_timeout is 0: a client that leaves a transaction open holds vacuum back forever".to_owned(),
            "set it to a few minutes, e.g. `alter database … set idle_in_transaction_session_timeout = '10min'`",
        ));
    }
    issues
}

async fn connections(probe: &Probe<'_>) -> CheckResult {
    let (used, max): (i64, i64) = probe.query_one(CONNECTIONS.to_owned()).await?;
    Ok(connection_issues(used, max))
}

fn connection_issues(used: i64, max: i64) -> Vec<Issue> {
    let what = format!("{used} of {max} connections are in use");
    let advice = "reduce the clients' pool sizes, close idle connections, or raise max_connections";
    if used * 100 >= max * 95 {
        vec![Issue::critical(what, advice)]
    } else if used * 100 >= max * 80 {
        vec![Issue::warning(what, advice)]
    } else {
        Vec::new()
    }
}

async fn checkpoints(probe: &Probe<'_>, settings: &Settings) -> CheckResult {
    let sql = if number(settings) >= 170_000 {
        CHECKPOINTS.1
    } else {
        CHECKPOINTS.0
    };
    let (timed, requested, span): (i64, i64, Option<f64>) = probe.query_one(sql.to_owned()).await?;
    Ok(checkpoint_issues(timed, requested, span.unwrap_or(0.0)))
}

fn checkpoint_issues(timed: i64, requested: i64, span: f64) -> Vec<Issue> {
    const MIN_REQUESTED: i64 = 20;
    const MAX_INTERVAL_SECONDS: f64 = 600.0;
    #[allow(clippy::cast_precision_loss, reason = "an average for people")]
    let every = span / (requested.max(1) as f64);
    if requested < MIN_REQUESTED || requested <= timed || every > MAX_INTERVAL_SECONDS {
        return Vec::new();
    }
    vec![Issue::warning(
        format!(
            "{requested} of {} checkpoints were forced because max_wal_size was reached, one every {}: each increases the amount of WAL",
            timed + requested,
            age(every)
        ),
        "raise max_wal_size until most checkpoints are timed (checkpoint_timeout)",
    )]
}

async fn notify_queue(probe: &Probe<'_>) -> CheckResult {
    let (usage,): (f64,) = probe.query_one(NOTIFY_QUEUE.to_owned()).await?;
    Ok(notify_queue_issues(usage))
}

fn notify_queue_issues(usage: f64) -> Vec<Issue> {
    let what = format!(
        "the notification queue is {:.0} % full: a listening session does not read; when the queue is full, commits that notify fail",
        usage * 100.0
    );
    let advice =
        "end the listening session with the oldest transaction (see vacuum/open-transactions)";
    if usage >= 0.5 {
        vec![Issue::critical(what, advice)]
    } else if usage >= 0.1 {
        vec![Issue::warning(what, advice)]
    } else {
        Vec::new()
    }
}

async fn wraparound(probe: &Probe<'_>) -> CheckResult {
    let (database, oldest): (String, i64) = probe.query_one(WRAPAROUND.to_owned()).await?;
    Ok(wraparound_issues(&database, oldest))
}

/// At about 2.1 billion the server refuses to write.
fn wraparound_issues(database: &str, oldest: i64) -> Vec<Issue> {
    let what = format!(
        "the database {database} has unfrozen transactions that are {} million ids old; at 2,100 million the server stops accepting writes",
        oldest / 1_000_000
    );
    let advice = "see what holds vacuum back (findings vacuum/…), then run `vacuum freeze` on the oldest tables";
    if oldest >= 1_500_000_000 {
        vec![Issue::critical(what, advice)]
    } else if oldest >= 600_000_000 {
        vec![Issue::warning(what, advice)]
    } else {
        Vec::new()
    }
}

async fn collation(probe: &Probe<'_>) -> CheckResult {
    let rows: Vec<(String,)> = probe.query(COLLATION.to_owned()).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = "the operating system's collation changed after the indexes were built: lookups in text indexes can miss rows";
    let advice =
        "`reindex database` at a quiet time, then `alter database … refresh collation version`";
    Ok(vec![Issue::critical(what.to_owned(), advice).items(
        rows.into_iter().map(|(name,)| name),
        probe.limits.sample,
    )])
}

/// Informational: the library uses only the database's clock.
async fn clock(probe: &Probe<'_>, settings: &Settings) -> CheckResult {
    const NOW: &str = "select extract(epoch from clock_timestamp())::float8";
    let before = epoch();
    let (theirs,): (f64,) = probe.query_one(NOW.to_owned()).await?;
    let zone = settings.get("TimeZone").map_or("?", String::as_str);
    Ok(clock_issues(before, theirs, epoch(), zone))
}

fn epoch() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

fn clock_issues(before: f64, theirs: f64, after: f64, zone: &str) -> Vec<Issue> {
    const MIN_DIFFERENCE_SECONDS: f64 = 2.0;
    let off = if theirs > after {
        theirs - after
    } else {
        before - theirs
    };
    if off < MIN_DIFFERENCE_SECONDS {
        return Vec::new();
    }
    vec![Issue::info(
        format!(
            "this machine's clock and the database's (time zone {zone}) differ by at least {}; due times and leases use the database's",
            age(off)
        ),
        "synchronize both machines with NTP, so that logs can be compared",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    fn worst(issues: &[Issue]) -> Option<Severity> {
        issues.iter().map(|issue| issue.severity).max()
    }

    fn settings(values: &[(&str, &str)]) -> Settings {
        let run_check = |text: &&str| (*text).to_owned();
        values
            .iter()
            .map(|(n, v)| (run_check(n), run_check(v)))
            .collect()
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
            let found = evaluate(&settings(&[(name, value)]));
            assert_eq!(worst(&found), Some(Severity::Critical), "{name}");
            assert_eq!(found.len(), 1, "{name}");
        }
    }

    #[test]
    fn default_settings_are_healthy() {
        let default = settings(&[
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
            ("autovacuum", "on"),
            ("standby", "off"),
            ("default_transaction_isolation", "read committed"),
            ("idle_in_transaction_session_timeout", "600000"),
        ]);
        assert_eq!(worst(&evaluate(&default)), None);
        let no_timeout = settings(&[("idle_in_transaction_session_timeout", "0")]);
        assert_eq!(worst(&evaluate(&no_timeout)), Some(Severity::Info));
        let serializable = settings(&[("default_transaction_isolation", "serializable")]);
        assert_eq!(worst(&evaluate(&serializable)), Some(Severity::Warning));
    }

    #[test]
    fn an_old_server_is_critical() {
        let of = |number| worst(&version(&settings(&[("server_version_num", number)])));
        assert_eq!(of("140011"), Some(Severity::Critical));
        assert_eq!(of("150000"), None);
        assert_eq!(of("180001"), None);
    }

    #[test]
    fn capacity_is_reported_before_it_is_used_up() {
        assert_eq!(worst(&connection_issues(10, 100)), None);
        assert_eq!(worst(&connection_issues(80, 100)), Some(Severity::Warning));
        assert_eq!(worst(&connection_issues(95, 100)), Some(Severity::Critical));
        assert_eq!(worst(&notify_queue_issues(0.01)), None);
        assert_eq!(worst(&notify_queue_issues(0.2)), Some(Severity::Warning));
        assert_eq!(worst(&notify_queue_issues(0.6)), Some(Severity::Critical));
        assert_eq!(worst(&wraparound_issues("d", 200_000_000)), None);
        assert_eq!(
            worst(&wraparound_issues("d", 700_000_000)),
            Some(Severity::Warning)
        );
        assert_eq!(
            worst(&wraparound_issues("d", 1_900_000_000)),
            Some(Severity::Critical)
        );
    }

    #[test]
    fn only_frequent_forced_checkpoints_are_reported() {
        assert_eq!(worst(&checkpoint_issues(0, 5, 60.0)), None);
        assert_eq!(worst(&checkpoint_issues(500, 100, 600.0)), None);
        assert_eq!(worst(&checkpoint_issues(10, 100, 1e7)), None);
        assert_eq!(
            worst(&checkpoint_issues(10, 100, 6_000.0)),
            Some(Severity::Warning)
        );
    }

    #[test]
    fn clock_difference_ignores_the_duration_of_the_query() {
        assert!(clock_issues(100.0, 105.0, 110.0, "UTC").is_empty());
        assert!(clock_issues(100.0, 111.0, 110.0, "UTC").is_empty());
        assert_eq!(clock_issues(100.0, 200.0, 110.0, "UTC").len(), 1);
        assert_eq!(clock_issues(100.0, 10.0, 110.0, "UTC").len(), 1);
    }
}
