//! Requests and their validation.
//!
//! A key becomes part of a file's path, so it must neither leave its folder nor collide with another key: the parts are
//! joined by `_`, the date has eight digits, and the indicator, which comes last, contains no `_`.

use std::collections::HashMap;

use postrider::digest::{Digest, DigestError};
use serde::{Deserialize, Serialize};
use time::{Date, Month};
use utoipa::ToSchema;

/// Maximum number of inputs per job.
pub const MAX_INPUTS: usize = 100_000;

/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 20;

/// A batch of inputs, as a client posts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// One file is generated for each; 1 to 100,000, without duplicates.
    #[schema(min_items = 1, max_items = 100_000)]
    pub inputs: Vec<Input>,
}

/// Identifies a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// The index: letters, digits, `.`, `_` and `-`, not starting with a dot.
    #[schema(example = "ABC", pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    pub index_key: String,
    /// The day, as yyyymmdd.
    #[schema(example = 20_240_202, minimum = 10_000_101, maximum = 99_991_231)]
    pub effective_date: i32,
    /// The as-of indicator: letters, digits and `-`.
    #[serde(rename = "asofindicator")]
    #[schema(example = "CLS", pattern = "^[A-Za-z0-9-]{1,32}$")]
    pub asof_indicator: String,
}

/// A valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The inputs in the client's order; not empty, without duplicates.
    pub inputs: Vec<Input>,
}

/// The problems of a well-formed but invalid request: fields and reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} values of the request are invalid", .0.len())]
pub struct InvalidRequest(pub Vec<(String, String)>);

impl TryFrom<JobRequest> for Submission {
    type Error = InvalidRequest;

    fn try_from(request: JobRequest) -> Result<Self, InvalidRequest> {
        let inputs = request.inputs;
        let count = inputs.len();
        if count == 0 {
            return Err(InvalidRequest::at(
                "/inputs",
                "must contain at least one input",
            ));
        }
        if count > MAX_INPUTS {
            let problem =
                format!("has {count} inputs; split them into jobs of at most {MAX_INPUTS}");
            return Err(InvalidRequest::at("/inputs", problem));
        }
        let mut wrong = Vec::new();
        let mut seen = HashMap::with_capacity(count);
        for (index, input) in inputs.iter().enumerate() {
            let problems = input.problems();
            wrong.extend(
                problems.map(|(field, problem)| (format!("/inputs/{index}/{field}"), problem)),
            );
            if let Some(first) = seen.insert(input, index) {
                let problem = format!("repeats /inputs/{first}");
                wrong.push((format!("/inputs/{index}"), problem));
            }
            if wrong.len() >= MAX_PROBLEMS {
                break;
            }
        }
        if !wrong.is_empty() {
            return Err(InvalidRequest(wrong));
        }
        Ok(Self { inputs })
    }
}

impl Submission {
    /// The digest by which repeated requests are recognised.
    pub fn digest(&self) -> Result<Digest, DigestError> {
        Digest::of(&self.inputs)
    }
}

impl InvalidRequest {
    fn at(field: &str, problem: impl Into<String>) -> Self {
        Self(vec![(field.to_owned(), problem.into())])
    }
}

impl Input {
    fn problems(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("indexKey", index_key_problem(&self.index_key)),
            ("effectiveDate", date_problem(self.effective_date)),
            ("asofindicator", indicator_problem(&self.asof_indicator)),
        ]
        .into_iter()
        .filter_map(|(field, problem)| problem.map(|problem| (field, problem)))
    }

    /// The name of its file, without an extension.
    #[must_use]
    pub fn file_name(&self) -> String {
        let Self {
            index_key,
            effective_date,
            asof_indicator,
        } = self;
        format!("{index_key}_{effective_date:08}_{asof_indicator}")
    }
}

fn index_key_problem(key: &str) -> Option<String> {
    if !(1..=64).contains(&key.len()) {
        return Some("must have 1 to 64 characters".to_owned());
    }
    if key.starts_with('.') {
        return Some("must not start with a dot".to_owned());
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (!key.chars().all(allowed))
        .then(|| "must consist of letters, digits, '.', '_' and '-'".to_owned())
}

fn indicator_problem(indicator: &str) -> Option<String> {
    if !(1..=32).contains(&indicator.len()) {
        return Some("must have 1 to 32 characters".to_owned());
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (!indicator.chars().all(allowed)).then(|| "must consist of letters, digits and '-'".to_owned())
}

fn date_problem(number: i32) -> Option<String> {
    date(number)
        .is_none()
        .then(|| format!("{number} isn't a date; write eight digits, yyyymmdd"))
}

/// The date that the eight digits denote.
fn date(number: i32) -> Option<Date> {
    let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
    // Fewer digits are a typing error, not a day of the year 1.
    if !(1000..=9999).contains(&year) {
        return None;
    }
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    Date::from_calendar_date(year, month, u8::try_from(day).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn input(index: &str, date: i32, indicator: &str) -> Input {
        Input {
            index_key: index.to_owned(),
            effective_date: date,
            asof_indicator: indicator.to_owned(),
        }
    }

    fn problems_of(inputs: Vec<Input>) -> Vec<(String, String)> {
        Submission::try_from(JobRequest { inputs }).unwrap_err().0
    }

    #[test]
    fn only_calendar_dates_are_accepted() {
        for wrong in [
            20_240_231,
            20_230_229,
            20_241_301,
            20_240_100,
            0,
            -1,
            2_024_022,
            10_101,
            9_991_231,
            101_010_101,
            100_000_101,
        ] {
            assert!(date(wrong).is_none(), "{wrong}");
        }
        for right in [20_240_229, 10_000_101, 99_991_231] {
            assert!(date(right).is_some(), "{right}");
        }
    }

    #[test]
    fn every_problem_is_reported_with_its_field() {
        let found = problems_of(vec![
            input("ABC", 20_240_202, "CLS"),
            input("../etc", 20_240_231, "A_B"),
            input("ABC", 20_240_202, "CLS"),
        ]);
        let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(
            places,
            [
                "/inputs/1/indexKey",
                "/inputs/1/effectiveDate",
                "/inputs/1/asofindicator",
                "/inputs/2"
            ]
        );
        assert_eq!(found[3].1, "repeats /inputs/0");
        assert_eq!(problems_of(Vec::new())[0].0, "/inputs");
    }

    proptest! {
        #[test]
        fn different_keys_have_different_file_names(
            a in ("[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", 1i32..9999, "[A-Za-z0-9-]{1,8}"),
            b in ("[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", 1i32..9999, "[A-Za-z0-9-]{1,8}"),
        ) {
            let a = input(&a.0, a.1 * 10_000 + 101, &a.2);
            let b = input(&b.0, b.1 * 10_000 + 101, &b.2);
            prop_assert_eq!(a == b, a.file_name() == b.file_name());
        }

        #[test]
        fn accepted_keys_stay_in_their_folder(key in "\\PC{0,70}", indicator in "\\PC{0,40}") {
            let wanted = input(&key, 20_240_202, &indicator);
            if let Ok(fine) = Submission::try_from(JobRequest { inputs: vec![wanted] }) {
                let name = fine.inputs[0].file_name();
                prop_assert!(!name.contains(['/', '\\', '#', '%']) && !name.starts_with('.'));
            }
        }
    }
}
