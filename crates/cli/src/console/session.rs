//! Login sessions, stored in the database so that every process knows them.

use std::{sync::Arc, time::Duration};

use postrider_web::{Caller, Token, Tokens, auth::SessionSecret};
use sqlx::PgPool;

/// A login deletes expired sessions, a bounded number at a time.
const OPEN: &str = "
with gone as (
    delete from console.session where id = any(array(
        select id from console.session where expires_at < now() limit 1000)))
insert into console.session (id, token, fingerprint, expires_at)
values ($1, $2, $3, now() + make_interval(secs => $4))";

const FIND: &str = "select fingerprint from console.session where id = $1 and expires_at > now()";

const CLOSE: &str = "delete from console.session where id = $1";

/// The sessions of a console. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Sessions {
    pool: PgPool,
    tokens: Arc<Tokens>,
    lasts: Duration,
}

impl Sessions {
    pub fn new(pool: PgPool, tokens: Arc<Tokens>, lasts: Duration) -> Self {
        Self {
            pool,
            tokens,
            lasts,
        }
    }

    /// Are any tokens configured?
    pub fn are_needed(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Lifetime of a session.
    pub fn lasts(&self) -> Duration {
        self.lasts
    }

    /// The configured token with this secret.
    pub fn recognise(&self, presented: &str) -> Option<&Token> {
        self.tokens.verify(presented)
    }

    /// Opens a session for this token.
    pub async fn open(&self, visit: &SessionSecret, token: &Token) -> Result<(), sqlx::Error> {
        sqlx::query(OPEN)
            .bind(&visit.id()[..])
            .bind(token.name())
            .bind(&token.fingerprint()[..])
            .bind(self.lasts.as_secs_f64())
            .execute(&self.pool)
            .await
            .map(drop)
    }

    /// The session's caller, with the token's current scopes; none if the token is no longer configured.
    pub async fn caller(&self, visit: &SessionSecret) -> Result<Option<Caller>, sqlx::Error> {
        let fingerprint: Option<Vec<u8>> = sqlx::query_scalar(FIND)
            .bind(&visit.id()[..])
            .fetch_optional(&self.pool)
            .await?;
        let token = fingerprint.and_then(|known| self.tokens.by_fingerprint(&known));
        Ok(token.map(Token::caller))
    }

    /// Closes the session, for all processes.
    pub async fn close(&self, visit: &SessionSecret) -> Result<(), sqlx::Error> {
        sqlx::query(CLOSE)
            .bind(&visit.id()[..])
            .execute(&self.pool)
            .await
            .map(drop)
    }
}
