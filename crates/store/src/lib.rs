//! Files in an object store: a local directory or S3, by URL.
//!
//! The promises:
//!
//! - an object appears whole or not at all, and when the write has returned it is on disk ([`Store`]);
//! - a file of any size goes through a bounded amount of memory ([`Upload`]);
//! - an object has one absolute address, `file:///…` or `s3://…`, that people and other programs can use
//!   ([`Store::url`]), and only addresses inside the store are taken back ([`Store::key_of`]).
//!
//! To read: `settings.rs` (what can be configured), `store.rs`, `upload.rs`.

mod settings;
mod store;
mod upload;

pub use object_store::{Error, ObjectMeta, path::Path as Key};
pub use settings::{OpenError, Settings};
pub use store::Store;
pub use upload::Upload;
