//! The configuration of the demo's processes: simulated parties, and delays short enough to watch.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use super::Error;

/// Writes the configuration file into the data directory.
pub fn write(data_dir: &Path, parties: SocketAddr) -> Result<PathBuf, Error> {
    let path = data_dir.join("demo.toml");
    std::fs::write(&path, text(parties))
        .map_err(|e| Error::caused(&format!("can't write {}", path.display()), &e))?;
    Ok(path)
}

fn text(parties: SocketAddr) -> String {
    format!(
        r#"# Configuration of `postrider demo`: simulated parties, and delays of seconds instead of minutes.

[log]
level = "warn"

[server]
request_timeout = "60s"

[database]
migrate = false
# Three processes share the private server.
pool_size = 14
acquire_timeout = "30s"

[orders]
backoff = [0.5, 1, 2]
max_attempts = 10
broker.url = "http://{parties}/broker"
broker.timeout = "5s"
lease.seconds = 3

[exports]
concurrency = 4
source.query = "select * from demo.prices($1, $2, $3)"
worker.lease.seconds = 3
worker.poll.batch_size = 8
retry.max_attempts = 10
retry.base_delay_ms = 300
# A second demo in the same directory creates its own files.
file.reuse.enabled = false
finalizer.interval_ms = 1000

[payments]
delivery = "assured"
publish.backoff = [0.5, 1, 2]
callback.url = "http://{parties}/callback"
lease.seconds = 3
wallet.pool_size = 4
wallet.batch = 20

[evidence]
concurrency = 8
case_api.url = "http://{parties}/cases"
case_api.timeout = "5s"
retry.max_attempts = 10
retry.backoff.initial_delay = "1s"
retry.backoff.max_delay = "4s"
scheduler.interval = "1s"
scheduler.sleep_between_batches = "200ms"
lease.seconds = 3
notify.url = "http://{parties}/receiver"
notify.timeout = "2s"

[protocols]
stages.extraction.url = "http://{parties}/stages/extraction"
stages.grounding.url = "http://{parties}/stages/grounding"
stages.timeout = "5s"
max_retries = 10
retry.initial_delay = "500ms"
lease.seconds = 3
"#
    )
}
