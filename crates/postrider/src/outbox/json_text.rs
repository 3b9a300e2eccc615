//! JSON text for a `json` column, sent with its type: the server needs no cast per row.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};
use sqlx::{Encode, Postgres, Type};

/// `json` and `json[]`, whose OIDs are the same in every PostgreSQL.
const JSON: Oid = Oid(114);
const JSON_ARRAY: Oid = Oid(199);

#[derive(Debug, Clone, Copy)]
pub(super) struct JsonText<'a>(pub &'a str);

impl Type<Postgres> for JsonText<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(JSON)
    }
}

impl PgHasArrayType for JsonText<'_> {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(JSON_ARRAY)
    }
}

impl Encode<'_, Postgres> for JsonText<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}
