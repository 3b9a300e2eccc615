//! Brokers for tests: they answer, come back with their data's place, and leave nothing behind.

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
async fn a_server_of_ones_own_is_another_one_and_ends_with_its_test() {
    let (Some(shared), Some(own)) = (Kind::Nats.shared().await, Kind::Nats.own().await) else {
        return;
    };
    let address = address(&own);
    assert_ne!(own.url(), shared.url());
    assert!(TcpStream::connect(&address).is_ok());
    drop(own);
    eventually("it is gone", async || TcpStream::connect(&address).is_err()).await;
}

async fn comes_and_goes(kind: Kind) {
    let Some(server) = kind.alone().await else {
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
async fn nats_comes_and_goes() {
    comes_and_goes(Kind::Nats).await;
}

#[tokio::test]
async fn rabbitmq_comes_and_goes() {
    comes_and_goes(Kind::Rabbitmq).await;
}

#[tokio::test]
async fn kafka_comes_and_goes() {
    comes_and_goes(Kind::Kafka).await;
}
