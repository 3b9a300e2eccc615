//! An eligibility criterion, as stages return it and reviewers read it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a criterion includes or excludes participants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A participant must meet it.
    Inclusion,
    /// A participant must not meet it.
    Exclusion,
}

/// One criterion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Criterion {
    /// Inclusion or exclusion.
    pub kind: Kind,
    /// The text in the document.
    pub text: String,
    /// Its number in the document; a nested item has both numbers: `4.a`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<String>,
    /// Its nesting level in the list, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub level: u8,
    /// It states what must not be the case.
    #[serde(default, skip_serializing_if = "is_false")]
    pub negated: bool,
    /// The age range that it requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<Age>,
    /// The measurements that it requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measures: Vec<Measure>,
    /// The terms that have a code.
    #[serde(default)]
    pub terms: Vec<Term>,
}

impl Criterion {
    /// A criterion with a kind and a text only.
    #[must_use]
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            number: None,
            level: 0,
            negated: false,
            age: None,
            measures: Vec::new(),
            terms: Vec::new(),
        }
    }
}

/// A range of ages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Age {
    /// The minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// `min` itself is excluded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub above_min: bool,
    /// `max` itself is excluded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub below_max: bool,
    /// The unit.
    #[serde(default)]
    pub unit: AgeUnit,
}

/// The unit of an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgeUnit {
    /// Years.
    #[default]
    Years,
    /// Months.
    Months,
    /// Weeks.
    Weeks,
    /// Days.
    Days,
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Comparator {
    /// Less than.
    #[serde(rename = "<")]
    Below,
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// Exactly.
    #[serde(rename = "=")]
    Equal,
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
    /// More than.
    #[serde(rename = ">")]
    Above,
}

/// A number with a unit and a comparator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Measure {
    /// The text in the document.
    pub text: String,
    /// How it is compared.
    pub comparator: Comparator,
    /// The number.
    pub value: f64,
    /// The unit in its usual spelling; empty if the document has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// A term in a criterion that denotes a concept of the vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Term {
    /// The text in the document.
    pub text: String,
    /// The concept's code.
    pub code: String,
    /// The concept's name.
    pub label: String,
    /// The document states its absence.
    #[serde(default, skip_serializing_if = "is_false")]
    pub negated: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_zero(value: &u8) -> bool {
    *value == 0
}
