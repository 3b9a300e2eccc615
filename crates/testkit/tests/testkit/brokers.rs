//! Brokers: ready after start, restartable on the same address, and removed at the end.

use std::net::TcpStream;

use postrider_testkit::eventually;
use postrider_testkit::servers::{Kind, Server};

fn address(server: &Server) -> String {
    let address = server.url().rsplit('@').next().unwrap();
    let address = address.trim_start_matches("nats://");
    let address = address.trim_start_matches("kafka://");
    address.split('/').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_dedicated_server_is_a_new_one_and_ends_with_its_test() {
    let (Some(shared), Some(own)) = (Kind::Nats.shared().await, Kind::Nats.dedicated().await)
    else {
        return;
    };
    let address = address(&own);
    assert_ne!(own.url(), shared.url());
    assert!(TcpStream::connect(&address).is_ok());
    drop(own);
    eventually("it is gone", async || TcpStream::connect(&address).is_err()).await;
}

async fn stops_and_restarts(kind: Kind) {
    let Some(server) = kind.exclusive().await else {
        return;
    };
    let address = address(&server);
    assert!(TcpStream::connect(&address).is_ok(), "{address}");
    server.stop().await;
    assert!(TcpStream::connect(&address).is_err());
    server.start().await;
    assert!(TcpStream::connect(&address).is_ok());
    server.kill().await;
    assert!(TcpStream::connect(&address).is_err());
    server.start().await;
    assert!(TcpStream::connect(&address).is_ok());
}

#[tokio::test]
async fn nats_stops_and_restarts() {
    stops_and_restarts(Kind::Nats).await;
}

#[tokio::test]
async fn rabbitmq_stops_and_restarts() {
    stops_and_restarts(Kind::Rabbitmq).await;
}

#[tokio::test]
async fn kafka_stops_and_restarts() {
    stops_and_restarts(Kind::Kafka).await;
}
