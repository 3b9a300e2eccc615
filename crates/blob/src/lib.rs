//! Files in an object store: a local directory or S3, by URL.
//!
//! The promises:
//!
//! - writes are atomic, and durable once they return ([`Store`]);
//! - a file of any size needs a bounded amount of memory ([`Upload`]);
//! - leftovers of a crashed writer are found and removed ([`Store::sweep`]);
//! - an object has one absolute URL, `file:///…` or `s3://…`, that people and other programs can use ([`Store::url`]), and only
//!   URLs inside the store are accepted ([`Store::key_from_url`]).
//!
//! ```
//! use postrider_blob::{Key, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let store = Settings::directory(directory.path()).open(directory.path())?;
//! let key = Key::from("reports/2026.csv");
//! let mut upload = store.upload(&key);
//! upload.write("id,amount\n".into()).await?;
//! upload.finish().await?;
//! assert_eq!(store.read_all(&key).await?, "id,amount\n");
//! # Ok(())
//! # }
//! ```

mod content;
mod error_kind;
mod remote;
mod settings;
mod store;
mod sweep;
mod upload;

pub use content::Content;
pub use error_kind::{ErrorKind, error_kind};
pub use object_store::{Error, ObjectMeta, path::Path as Key};
pub use settings::{OpenError, Settings};
pub use store::Store;
pub use upload::Upload;
