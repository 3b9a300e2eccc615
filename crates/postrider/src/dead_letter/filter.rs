//! Which dead letters are meant.

use serde::{Deserialize, Serialize};
use sqlx::types::time::OffsetDateTime;

use crate::{Error, Result};

/// Every part that is given must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// Of one of these work tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_tables: Option<Vec<String>>,
    /// Of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// With this failure code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// With this cause (see [`super::DeadLetter::cause`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// With this in the failure's message, in whatever case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Given up at this time or later.
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "time::serde::rfc3339::option"
    )]
    pub since: Option<OffsetDateTime>,
    /// Given up before this time.
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "time::serde::rfc3339::option"
    )]
    pub until: Option<OffsetDateTime>,
    /// These items; needs exactly one work table, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<i64>>,
}

impl Filter {
    /// All of this work table.
    #[must_use]
    pub fn of(work_table: impl Into<String>) -> Self {
        Self {
            work_tables: Some(vec![work_table.into()]),
            ..Self::default()
        }
    }

    /// Numbers alone name nothing: two tables may both have the same.
    pub fn check(&self) -> Result<()> {
        let tables = self.work_tables.as_ref().map_or(0, Vec::len);
        if self.ids.is_some() && tables != 1 {
            return Err(Error::invalid(
                "filter",
                "ids need their work table, and only one",
            ));
        }
        Ok(())
    }

    pub(super) fn wants(&self, work_table: &str) -> bool {
        self.work_tables
            .as_ref()
            .is_none_or(|tables| tables.iter().any(|table| table == work_table))
    }
}

/// The place of a dead letter in the listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// When it was given up.
    #[serde(with = "time::serde::rfc3339")]
    pub died_at: OffsetDateTime,
    /// Its work table.
    pub work_table: String,
    /// Its id.
    pub id: i64,
}
