//! The paper broker, the built-in default: accepts every order, without a market behind it.
//!
//! One client order id is one order, however often it is sent. Its orders are in the database, so that they survive a
//! crash of the program like those of a real broker.

use futures_util::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};
use sqlx::PgPool;

use super::{Broker, BrokerError, ErrorKind};

const INSERT: &str = "
insert into orders.paper_orders (client_order_id, request) values ($1, $2) on conflict (client_order_id) do nothing";

const SELECT: &str = "select broker_order_id from orders.paper_orders where client_order_id = $1";

/// A broker that accepts every order.
pub struct PaperBroker {
    pool: PgPool,
}

impl PaperBroker {
    /// A paper broker that keeps its orders in this database.
    #[must_use]
    pub const fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    async fn receipt(&self, id: &str) -> Result<Option<Value>, sqlx::Error> {
        let select = sqlx::query_scalar(SELECT).bind(id);
        let number: Option<i64> = select.fetch_optional(&self.pool).await?;
        Ok(number
            .map(|number| json!({ "broker_order_id": format!("paper-{number}"), "status": "ok" })))
    }

    async fn accept(&self, order: Value) -> Result<Value, BrokerError> {
        let Some(id) = order["client_order_id"].as_str().map(str::to_owned) else {
            let message = "the paper broker needs a client_order_id";
            return Err(BrokerError::rejected("CLIENT_ORDER_ID_MISSING", message));
        };
        let insert = sqlx::query(INSERT).bind(&id).bind(order);
        insert.execute(&self.pool).await.map_err(unavailable)?;
        let receipt = self.receipt(&id).await.map_err(unavailable)?;
        receipt.ok_or_else(|| unavailable(sqlx::Error::RowNotFound))
    }
}

impl Broker for PaperBroker {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, BrokerError>> {
        self.accept(order).boxed()
    }

    fn find<'a>(
        &'a self,
        client_order_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, BrokerError>> {
        async move { self.receipt(client_order_id).await.map_err(unavailable) }.boxed()
    }
}

/// Without its database the paper broker can't answer, like a broker that can't be reached.
fn unavailable(error: sqlx::Error) -> BrokerError {
    let message = format!("the paper broker's database is unavailable: {error}");
    BrokerError::network("NETWORK_ERROR", ErrorKind::Uncertain, message)
}
