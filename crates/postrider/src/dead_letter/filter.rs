//! Filters over dead letters.

use serde::{Deserialize, Serialize};
use sqlx::types::time::OffsetDateTime;

use crate::{Error, Result};

/// A filter: every part that is given must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// In one of these work tables.
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
    /// With this text in the failure's message, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Dead since this time.
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "time::serde::rfc3339::option"
    )]
    pub since: Option<OffsetDateTime>,
    /// Dead before this time.
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "time::serde::rfc3339::option"
    )]
    pub until: Option<OffsetDateTime>,
    /// These items; requires exactly one work table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<i64>>,
}

impl Filter {
    /// All dead letters of this work table.
    #[must_use]
    pub fn table(work_table: impl Into<String>) -> Self {
        Self {
            work_tables: Some(vec![work_table.into()]),
            ..Self::default()
        }
    }

    /// Checks that ids come with exactly one table, because ids are unique per table only.
    pub fn check(&self) -> Result<()> {
        let tables = self.work_tables.as_ref().map_or(0, Vec::len);
        if self.ids.is_some() && tables != 1 {
            return Err(Error::invalid(
                "filter",
                "ids require exactly one work table",
            ));
        }
        Ok(())
    }

    pub(super) fn matches(&self, work_table: &str) -> bool {
        self.work_tables
            .as_ref()
            .is_none_or(|tables| tables.iter().any(|table| table == work_table))
    }
}

/// The position of a dead letter in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// When it was marked dead.
    #[serde(with = "time::serde::rfc3339")]
    pub died_at: OffsetDateTime,
    /// Work table.
    pub work_table: String,
    /// Id.
    pub id: i64,
}
