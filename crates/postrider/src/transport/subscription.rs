//! What a consumer subscribes to, and its limits.

use std::time::Duration;

use crate::retry::RetryPolicy;
use crate::{Error, Result};

/// A group's topics, and one consumer's limits.
///
/// All consumers of a group share its messages; every group gets all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    pub(super) group: String,
    pub(super) topics: Vec<String>,
    /// Maximum number of unsettled deliveries; nothing more is fetched until some are settled.
    pub prefetch: usize,
    /// A consumer silent for this long counts as lost, and its deliveries go to others.
    pub lease: Duration,
    /// Retry policy for failures; afterwards the message is a dead letter.
    pub policy: RetryPolicy,
}

impl Subscription {
    /// Creates a subscription of this group to these topics.
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
                "must have 1 to 100 letters, digits and . _ -, starting with a letter or digit",
            ));
        }
        Ok(Self {
            group,
            topics: topics.into_iter().map(Into::into).collect(),
            prefetch: 500,
            lease: Duration::from_secs(30),
            policy: RetryPolicy::default(),
        })
    }

    /// Sets the prefetch; at least 1.
    #[must_use]
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = prefetch.max(1);
        self
    }

    /// Sets the lease.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn policy(mut self, policy: RetryPolicy) -> Self {
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
