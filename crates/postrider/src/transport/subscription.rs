//! What a consumer wants, and how it is treated.

use std::time::Duration;

use crate::retry::Policy;
use crate::{Error, Result};

/// A group's wish for topics, and one consumer's limits.
///
/// All consumers of a group share its messages; every group gets all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    pub(super) group: String,
    pub(super) topics: Vec<String>,
    /// At most so many deliveries are held unsettled; then nothing more is fetched until some are settled.
    pub prefetch: usize,
    /// A consumer that gives no sign of life for this long is taken for lost, and its deliveries go to others.
    pub lease: Duration,
    /// How failures are tried again, and how often; then the message is a dead letter.
    pub policy: Policy,
}

impl Subscription {
    /// The group wants these topics.
    pub fn new(
        group: impl Into<String>,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self> {
        let group = group.into();
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let begins_well = group.starts_with(|c: char| c.is_ascii_alphanumeric());
        if group.len() > 100 || !begins_well || !group.chars().all(fits) {
            return Err(Error::invalid(
                "group",
                "1 to 100 letters, digits and . _ -, beginning with a letter or digit",
            ));
        }
        Ok(Self {
            group,
            topics: topics.into_iter().map(Into::into).collect(),
            prefetch: 500,
            lease: Duration::from_secs(30),
            policy: Policy::default(),
        })
    }

    /// With another prefetch; at least 1.
    #[must_use]
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = prefetch.max(1);
        self
    }

    /// With another lease.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// With another policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The group's name.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The topics.
    #[must_use]
    pub fn topics(&self) -> &[String] {
        &self.topics
    }
}
