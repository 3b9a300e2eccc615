//! The Postgres transport keeps the promise.

postrider_transports::conformance_tests!(crate::support::shared, crate::support::private);
