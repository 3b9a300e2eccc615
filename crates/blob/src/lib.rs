//! Files in an object store: a local directory or S3, by URL.
//!
//! The promises:
//!
//! - an object appears whole or not at all, and when the write has returned it is on disk ([`Store`]);
//! - a file of any size goes through a bounded amount of memory ([`Upload`]);
//! - what a writer that died has left behind is found and cleared away ([`Store::sweep`]);
//! - an object has one absolute address, `file:///…` or `s3://…`, that people and other programs can use
//!   ([`Store::url`]), and only addresses inside the store are taken back ([`Store::key_of`]).
//!
//! To read: `settings.rs` (what can be configured), `store.rs`, `upload.rs`, `content.rs`, `sweep.rs`.

mod content;
mod fault;
mod remote;
mod settings;
mod store;
mod sweep;
mod upload;

pub use content::Content;
pub use fault::{Fault, fault};
pub use object_store::{Error, ObjectMeta, path::Path as Key};
pub use settings::{OpenError, Settings};
pub use store::Store;
pub use upload::Upload;
