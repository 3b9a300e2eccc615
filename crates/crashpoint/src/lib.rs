//! Named crash points: places where a test can make the program fail.
//!
//! ```
//! # use postrider_crashpoint as crashpoint;
//! async fn publish() -> Result<(), Box<dyn std::error::Error>> {
//!     // … the broker has confirmed …
//!     crashpoint::point!("outbox.after_publish")?;
//!     // … mark as published …
//!     Ok(())
//! }
//! ```
//!
//! Promise: without the feature `armed`, a point is the constant `Ok(())` and this crate has no
//! dependencies, so a release build pays nothing and can't be made to fail. With the feature (the
//! test kit enables it), a point does nothing until a test arms it, in code (`at`) or,
//! in a child process, through the environment variable `POSTRIDER_CRASH`.
//!
//! Building the whole workspace unifies features, which enables points in the program, too. Build
//! the program alone (`cargo build -p postrider-cli`) for a release; check [`ARMED`].

use std::fmt;

#[cfg(feature = "armed")]
mod arm;
#[cfg(feature = "armed")]
mod plan;
#[cfg(feature = "armed")]
mod registry;

#[cfg(feature = "armed")]
pub use arm::{Arm, Armed, at};
#[cfg(feature = "armed")]
pub use registry::{hit, hit_blocking, seen, seen_anywhere};

/// Whether points can be armed in this build.
pub const ARMED: bool = cfg!(feature = "armed");

/// The error that an armed point returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    point: &'static str,
}

impl Injected {
    /// The point that returned it.
    pub fn point(&self) -> &'static str {
        self.point
    }
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crash point {} was armed to fail", self.point)
    }
}

impl std::error::Error for Injected {}

/// A crash point in async code: `point!("outbox.after_publish")?`.
///
/// The value is a `Result<(), Injected>`. Names are `concept.moment`, each used once.
#[cfg(feature = "armed")]
#[macro_export]
macro_rules! point {
    ($name:literal) => {
        $crate::hit($name).await
    };
}

/// A crash point in async code: `point!("outbox.after_publish")?`.
///
/// The value is a `Result<(), Injected>`. Names are `concept.moment`, each used once.
#[cfg(not(feature = "armed"))]
#[macro_export]
macro_rules! point {
    ($name:literal) => {
        ::core::result::Result::<(), $crate::Injected>::Ok(())
    };
}

/// A crash point in blocking code; a stall or pause blocks the thread.
#[cfg(feature = "armed")]
#[macro_export]
macro_rules! blocking_point {
    ($name:literal) => {
        $crate::hit_blocking($name)
    };
}

/// A crash point in blocking code; a stall or pause blocks the thread.
#[cfg(not(feature = "armed"))]
#[macro_export]
macro_rules! blocking_point {
    ($name:literal) => {
        ::core::result::Result::<(), $crate::Injected>::Ok(())
    };
}
