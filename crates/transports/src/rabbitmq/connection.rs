//! A connection that is opened at the first use and reopened after a loss.

use std::sync::Arc;

use lapin::{Channel, Connection, ConnectionProperties};

use crate::broker::Cause;

#[derive(Debug, Clone)]
pub(super) struct LazyConnection {
    url: String,
    name: &'static str,
    connection: Arc<tokio::sync::Mutex<Option<Connection>>>,
}

impl LazyConnection {
    pub fn new(url: &str, name: &'static str) -> Self {
        Self {
            url: url.to_owned(),
            name,
            connection: Arc::default(),
        }
    }

    /// A new channel.
    pub async fn channel(&self) -> Result<Channel, Cause> {
        let mut slot = self.connection.lock().await;
        let connection = match slot.take() {
            Some(connection) if connection.status().connected() => connection,
            _ => {
                let properties =
                    ConnectionProperties::default().with_connection_name(self.name.into());
                Connection::connect(&self.url, properties).await?
            }
        };
        let connection = slot.insert(connection);
        Ok(connection.create_channel().await?)
    }
}
