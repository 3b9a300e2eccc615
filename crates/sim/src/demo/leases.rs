//! The leases of a worker process: which items it holds, and whether they were finished since.

use std::collections::BTreeMap;

use postrider::lease::WorkTable;
use sqlx::{AssertSqlSafe, PgPool};

/// Leased items by table, each with the service that it belongs to.
#[derive(Debug, Default, Clone)]
pub struct Leases(BTreeMap<&'static str, Vec<(i64, &'static str)>>);

impl Leases {
    /// The leases that the process with this id holds now.
    pub async fn load(
        pool: &PgPool,
        tables: &[&'static WorkTable],
        pid: u32,
    ) -> Result<Self, sqlx::Error> {
        let mut leases = BTreeMap::new();
        for table in tables {
            let leased: Vec<(i64, String)> = sqlx::query_as(AssertSqlSafe(leased_by(table)))
                .bind(format!("%:{pid}"))
                .fetch_all(pool)
                .await?;
            let named = |(id, kind): (i64, String)| (id, service_of(table.name, &kind));
            leases.insert(table.name, leased.into_iter().map(named).collect());
        }
        Ok(Self(leases))
    }

    /// The number of items by service.
    pub fn by_service(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for (_, service) in self.0.values().flatten() {
            *counts.entry(*service).or_default() += 1;
        }
        counts
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// The items that are not finished yet.
    pub async fn unfinished(
        &self,
        pool: &PgPool,
        tables: &[&'static WorkTable],
    ) -> Result<Self, sqlx::Error> {
        let mut left = BTreeMap::new();
        for table in tables {
            let Some(leased) = self.0.get(table.name).filter(|leased| !leased.is_empty()) else {
                continue;
            };
            let ids: Vec<i64> = leased.iter().map(|(id, _)| *id).collect();
            let open: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(unfinished(table)))
                .bind(ids)
                .fetch_all(pool)
                .await?;
            let mut leased = leased.clone();
            leased.retain(|(id, _)| open.contains(id));
            left.insert(table.name, leased);
        }
        Ok(Self(left))
    }
}

fn leased_by(table: &WorkTable) -> String {
    let c = &table.columns;
    format!(
        "select t.{id}, {kind} from {name} t join postrider.worker w on w.id = t.{owner}
where w.name like $1 and t.{state} = '{leased}'::{state_type}",
        id = c.id,
        kind = table
            .kind
            .map_or("''::text".to_owned(), |kind| format!("t.{kind}::text")),
        name = table.name,
        owner = c.owner,
        state = c.state,
        leased = table.states.leased,
        state_type = table.state_type,
    )
}

fn unfinished(table: &WorkTable) -> String {
    let c = &table.columns;
    format!(
        "select {id} from {name} where {id} = any($1) and {finished} is null",
        id = c.id,
        name = table.name,
        finished = c.finished,
    )
}

/// The service that an item belongs to. In the shared tables its kind tells: a topic or a consumer group.
pub fn service_of(table: &str, kind: &str) -> &'static str {
    let word = |text: &str| text.split(['.', '_']).next().unwrap_or_default().to_owned();
    let word = match word(table) {
        common if common == "postrider" => word(kind),
        own => own,
    };
    match word.as_str() {
        "orders" => "orders",
        "exports" => "exports",
        "evidence" => "evidence",
        "protocols" => "protocols",
        "payments" | "payment" | "wallet" => "payments",
        _ => "others",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_shared_tables_belong_to_a_service_by_their_kind() {
        assert_eq!(service_of("orders.outbox_orders", ""), "orders");
        assert_eq!(service_of("postrider.delivery", "wallet"), "payments");
        assert_eq!(
            service_of("postrider.delivery", "evidence.notify"),
            "evidence"
        );
    }
}
