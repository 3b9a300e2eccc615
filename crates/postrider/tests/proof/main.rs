//! The proof under crashes: whatever is killed, frozen, cut off or restarted, nothing that was accepted is lost, nothing
//! has two effects in the database, and every outside effect carries the id of its item.
//!
//! How it works: producers ask for work and say of every call what they were told (`journal`). Workers do it, with one
//! append-only row in the database and one call outside (`work`, `outside`). Meanwhile the scenarios break things
//! (`kills`, `crashes`, `full_disk`, `anywhere`, `operators`, `network`, `resources`). At the end `check` compares what was promised with what
//! happened; it reads plain logs without unique constraints and trusts no guard of the engine.
//!
//! Tests begin in the order of their names, hence the longest scenarios have the first ones.
//!
//! Every random choice follows from one seed, which is printed (`dice`). `make verify` is the long run (`scale`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod anywhere;
mod case;
mod check;
mod crashes;
mod dice;
mod found;
mod full_disk;
mod journal;
mod kills;
mod messages;
mod network;
mod operators;
mod outside;
mod produce;
mod program;
mod resources;
mod scale;
mod stage;
mod tampering;
mod work;
