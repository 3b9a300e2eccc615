//! Apache Kafka from its jars: a single node that is broker and controller.

use std::path::PathBuf;
use std::process::Command;

use super::child::Commands;
use super::server_dir::{ServerDir, cached, free_port};

/// Same as in `scripts/kafka/pom.xml`; `scripts/setup` installs the jars and a formatted storage directory.
const VERSION: &str = "3.9.1";
const STARTED: &str = "Kafka Server started";

const LOGGING: &str = "\
log4j.rootLogger=WARN, out
log4j.logger.kafka.server.KafkaRaftServer=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
";

fn installation() -> PathBuf {
    cached(&format!("kafka-{VERSION}"))
}

pub(super) fn version() -> Result<String, String> {
    if !installation().join("ready").exists() {
        return Err(format!("Kafka {VERSION} is not in the cache"));
    }
    Ok(format!("Apache Kafka {VERSION}"))
}

pub(super) fn commands(dir: &ServerDir) -> (String, Commands) {
    let (port, controller) = (free_port(), free_port());
    let installation = installation();
    let copied = Command::new("cp")
        .arg("-a")
        .arg(installation.join("storage"))
        .arg(dir.dir().join("data"))
        .status();
    assert!(
        copied.is_ok_and(|status| status.success()),
        "copy Kafka's storage"
    );
    let config = format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=3
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
num.network.threads=2
num.io.threads=4
log.cleaner.enable=false
controlled.shutdown.enable=false
",
        data = dir.path("data"),
    );
    let config = dir.write("server.properties", &config);
    let logging = dir.write("log4j.properties", LOGGING);
    let argv = [
        "java",
        "-Xmx384m",
        "-Xms64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        &format!("-Dlog4j.configuration=file:{logging}"),
        "-cp",
        &format!("{}/jars/*", installation.display()),
        "kafka.Kafka",
        &config,
    ];
    let commands = Commands {
        helpers: Vec::new(),
        server: argv.map(str::to_owned).to_vec(),
        env: Vec::new(),
        // It listens long before it is ready.
        ready: Box::new(|log| log.contains(STARTED)),
    };
    (format!("kafka://127.0.0.1:{port}"), commands)
}
