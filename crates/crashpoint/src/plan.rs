//! What an armed point does and when; syntax of the environment variable.
//!
//! `POSTRIDER_CRASH="lease.before_settle=kill@3, outbox.after_publish=stall:250ms"`:
//! point `=` action, optionally `@` the hit on which it runs (default: the first; `@*`: every hit),
//! separated by commas. Actions: `error`, `panic`, `kill`, `stall:<time>` with `ms` or `s`. (A pause
//! can only be armed from code, which has to end it.)

use std::time::Duration;

/// What the point does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Error,
    Panic,
    Kill,
    Stall(Duration),
    Pause,
}

/// On which hit it acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Nth(u64),
    Every,
}

impl When {
    pub(crate) fn is(self, hit: u64) -> bool {
        match self {
            Self::Nth(n) => n == hit,
            Self::Every => true,
        }
    }
}

/// Parses the environment variable.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, Action, When)>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            parse_one(part).ok_or_else(|| {
                format!(
                    "`{part}` is not a crash plan: write point=error|panic|kill|stall:250ms, optionally with @3 or @*"
                )
            })
        })
        .collect()
}

fn parse_one(part: &str) -> Option<(String, Action, When)> {
    let (point, plan) = part.split_once('=')?;
    let (action, when) = match plan.split_once('@') {
        None => (plan, When::Nth(1)),
        Some((action, "*")) => (action, When::Every),
        Some((action, n)) => (action, When::Nth(n.parse().ok().filter(|n| *n > 0)?)),
    };
    let action = match action.split_once(':') {
        Some(("stall", time)) => Action::Stall(parse_time(time)?),
        Some(_) => return None,
        None => match action {
            "error" => Action::Error,
            "panic" => Action::Panic,
            "kill" => Action::Kill,
            _ => return None,
        },
    };
    Some((point.to_owned(), action, when))
}

fn parse_time(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(millis) => millis.parse().ok().map(Duration::from_millis),
        None => text
            .strip_suffix('s')?
            .parse()
            .ok()
            .map(Duration::from_secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_parsed() {
        let plans = parse("a.b=kill@3, c=stall:250ms@*,d=stall:2s,e=error,f=panic").unwrap();
        let expected = [
            ("a.b", Action::Kill, When::Nth(3)),
            ("c", Action::Stall(Duration::from_millis(250)), When::Every),
            ("d", Action::Stall(Duration::from_secs(2)), When::Nth(1)),
            ("e", Action::Error, When::Nth(1)),
            ("f", Action::Panic, When::Nth(1)),
        ]
        .map(|(point, action, when)| (point.to_owned(), action, when));
        assert_eq!(plans, expected);
    }

    #[test]
    fn an_invalid_plan_is_refused_by_name() {
        for bad in [
            "a",
            "a=explode",
            "a=kill@0",
            "a=kill@x",
            "a=stall:5",
            "a=kill:3",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
    }
}
