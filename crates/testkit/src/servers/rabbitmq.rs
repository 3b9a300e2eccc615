//! RabbitMQ on an Erlang node of its own, with its own port mapper.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::child::Commands;
use super::server_dir::{ServerDir, free_port};

/// The script itself: the one on the PATH requires a system user.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

pub(super) fn version() -> Result<String, String> {
    if !Path::new(SCRIPT).exists() {
        return Err("rabbitmq-server is not installed".to_owned());
    }
    let lib = std::fs::read_dir("/usr/lib/rabbitmq/lib");
    let installed = lib.into_iter().flatten().flatten();
    let name = installed
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| name.starts_with("rabbitmq_server"));
    Ok(name.unwrap_or_else(|| "rabbitmq_server".to_owned()))
}

pub(super) fn commands(dir: &ServerDir) -> (String, Commands) {
    let (port, mapper, distribution) = (free_port(), free_port(), free_port());
    let config = dir.write(
        "rabbitmq.conf",
        &format!("listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users = none\n"),
    );
    let plugins = dir.write("enabled_plugins", "[].\n");
    let epmd = [
        "epmd",
        "-address",
        "127.0.0.1",
        "-port",
        &mapper.to_string(),
    ];
    let commands = Commands {
        helpers: vec![epmd.map(str::to_owned).to_vec()],
        server: vec![SCRIPT.to_owned()],
        env: vec![
            ("HOME", dir.path("")),
            // Replaces the script by the node's process, so that a signal reaches the node.
            ("RUNNING_UNDER_SYSTEMD", "1".to_owned()),
            ("ERL_EPMD_PORT", mapper.to_string()),
            ("RABBITMQ_NODENAME", format!("t{port}@localhost")),
            ("RABBITMQ_DIST_PORT", distribution.to_string()),
            ("RABBITMQ_CONFIG_FILE", config),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", plugins),
            ("RABBITMQ_CONF_ENV_FILE", dir.path("no-env")),
            ("RABBITMQ_MNESIA_BASE", dir.path("data")),
            ("RABBITMQ_LOGS", "-".to_owned()),
            ("RABBITMQ_LOG_BASE", dir.path("logs")),
            ("RABBITMQ_PID_FILE", dir.path("pid")),
            // Idle schedulers must not busy-wait: the tests need the cores.
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none".to_owned(),
            ),
        ],
        ready: Box::new(move |_| is_ready(port)),
    };
    (format!("amqp://guest:guest@127.0.0.1:{port}/%2f"), commands)
}

/// A ready server replies to the protocol header with a frame.
fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let mut frame = [0];
    stream.write_all(b"AMQP\0\0\x09\x01").is_ok()
        && stream.read_exact(&mut frame).is_ok()
        && frame == [1]
}
