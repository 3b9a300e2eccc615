//! Roles: what one process does. All are stateless; any number of each may run on one database.

mod analyze;
mod cleanup;
mod publisher;
mod store_sweep;
mod tasks;

use std::{collections::BTreeSet, fmt, str::FromStr};

pub use tasks::{Resources, Task, Tasks};

/// What a process can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Serves the services' APIs.
    Api,
    /// Publishes messages from the outbox.
    Publisher,
    /// Runs handlers.
    Worker,
    /// Runs periodic tasks under a leader lease.
    Scheduler,
    /// Serves the console.
    Console,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Api,
        Self::Publisher,
        Self::Worker,
        Self::Scheduler,
        Self::Console,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Publisher => "publisher",
            Self::Worker => "worker",
            Self::Scheduler => "scheduler",
            Self::Console => "console",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The roles of a process; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    /// Does the process have this role?
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// The roles in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = Role> + '_ {
        self.0.iter().copied()
    }
}

impl Default for Roles {
    fn default() -> Self {
        Self(Role::ALL.into())
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',')
            .map(|word| {
                let word = word.trim();
                Role::ALL
                    .into_iter()
                    .find(|role| role.name() == word)
                    .ok_or_else(|| {
                        let all = Role::ALL.map(Role::name).join(", ");
                        format!("{word:?} is not a role; the roles are {all}")
                    })
            })
            .collect::<Result<BTreeSet<_>, _>>()
            .map(Self)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(Role::name).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_parse_in_any_order_and_print_in_one() {
        let roles: Roles = "worker, api".parse().expect("two roles");
        assert_eq!(roles.to_string(), "api,worker");
        assert!(!roles.has(Role::Console));
    }

    #[test]
    fn an_unknown_role_is_an_error_that_lists_all_roles() {
        let error = "api,wroker".parse::<Roles>().expect_err("no such role");
        assert!(
            error.contains("wroker") && error.contains("scheduler"),
            "{error}"
        );
        assert!("".parse::<Roles>().is_err());
    }
}
