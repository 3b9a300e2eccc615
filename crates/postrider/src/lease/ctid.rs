//! The physical position of a row: PostgreSQL's `ctid`.
//!
//! Looking up a row by position needs no index walk. It is only a hint: a row that changed since has moved, and another
//! may be in its place, so the lookup compares id and fence as well.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// `tid` and `tid[]`, whose OIDs are the same in every PostgreSQL.
const TID: Oid = Oid(27);
const TID_ARRAY: Oid = Oid(1010);

/// A page of the table and a slot on it, as the server sends them: four bytes and two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ctid([u8; 6]);

impl Type<Postgres> for Ctid {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TID)
    }
}

impl PgHasArrayType for Ctid {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TID_ARRAY)
    }
}

impl Encode<'_, Postgres> for Ctid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}

impl<'r> Decode<'r, Postgres> for Ctid {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self(value.as_bytes()?.try_into()?))
    }
}
