//! The promises of the store, the same for a directory and for a real S3 server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use postrider_blob::{ErrorKind, Key, Settings, Store, error_kind};
use postrider_testkit::{
    S3Server, eventually,
    s3::{ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY},
};
use tempfile::TempDir;

const BIG: usize = 20 * 1024 * 1024;

fn directory() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Settings::directory(dir.path()).open(dir.path()).unwrap();
    (dir, store)
}

fn s3(server: &S3Server, prefix: &str) -> Store {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut settings = Settings::directory(std::path::Path::new("/"));
    settings.url = Some(format!("s3://{BUCKET}{prefix}").parse().unwrap());
    settings.endpoint = Some(server.endpoint().parse().unwrap());
    settings.access_key_id = Some(ACCESS_KEY_ID.to_owned());
    settings.secret_access_key = Some(SECRET_ACCESS_KEY.to_owned());
    settings.open(std::path::Path::new("/")).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

async fn write(store: &Store, key: &Key, content: &[u8]) {
    let mut upload = store.upload(key);
    for chunk in content.chunks(700_001) {
        upload.write(Bytes::copy_from_slice(chunk)).await.unwrap();
    }
    assert!(store.head(key).await.unwrap().is_none(), "not whole yet");
    upload.finish().await.unwrap();
}

/// The promises of every store.
async fn keeps_its_promises(store: &Store) {
    for (name, length) in [("empty", 0), ("small", 1000), ("a/b/big", BIG)] {
        let key = Key::from(name);
        let content = pattern(length);
        write(store, &key, &content).await;
        assert_eq!(store.head(&key).await.unwrap().unwrap().size, length as u64);
        let read: Vec<Bytes> = store.read(&key).await.unwrap().try_collect().await.unwrap();
        assert!(read.concat() == content, "{name} was changed");
        assert_eq!(store.key_from_url(&store.url(&key)), Some(key.clone()));
    }
    let names = Key::from("once");
    assert!(store.put_new(&names, Bytes::from("1")).await.unwrap());
    assert!(!store.put_new(&names, Bytes::from("2")).await.unwrap());
    assert_eq!(store.read_all(&names).await.unwrap(), "1");
    store.delete(&names).await.unwrap();
    store.delete(&names).await.unwrap();
    assert!(store.head(&names).await.unwrap().is_none());
    assert!(store.key_from_url("s3://elsewhere/x").is_none());
}

#[tokio::test]
async fn a_directory_stores_whole_objects() {
    let (_dir, store) = directory();
    keeps_its_promises(&store).await;
}

#[tokio::test]
async fn a_file_is_read_in_chunks_of_moderate_size() {
    let (_dir, store) = directory();
    let key = Key::from("big");
    write(&store, &key, &pattern(BIG)).await;
    let found = store.get(&key).await.unwrap();
    assert_eq!(found.size(), BIG as u64);
    let sizes: Vec<usize> = found
        .chunks()
        .map_ok(|chunk| chunk.len())
        .try_collect()
        .await
        .unwrap();
    assert_eq!(sizes, vec![256 * 1024; BIG / (256 * 1024)]);
}

#[tokio::test]
async fn a_bucket_stores_whole_objects() {
    let server = S3Server::start().await;
    keeps_its_promises(&s3(&server, "")).await;
    assert_eq!(server.unfinished(), Vec::<String>::new());
}

#[tokio::test]
async fn a_bucket_can_have_a_prefix_which_is_part_of_its_urls() {
    let server = S3Server::start().await;
    let store = s3(&server, "/some/where");
    let key = Key::from("x.csv");
    write(&store, &key, b"x").await;
    assert_eq!(store.url(&key), "s3://exports/some/where/x.csv");
    assert!(server.bucket().join("some/where/x.csv").exists());
}

#[tokio::test]
async fn an_upload_that_is_dropped_or_aborted_leaves_nothing() {
    let server = S3Server::start().await;
    let (dir, local) = directory();
    for store in [s3(&server, ""), local] {
        let mut dropped = store.upload(&Key::from("dropped"));
        dropped.write(Bytes::from(pattern(BIG))).await.unwrap();
        drop(dropped);
        let mut aborted = store.upload(&Key::from("aborted"));
        aborted.write(Bytes::from(pattern(BIG))).await.unwrap();
        aborted.abort().await.unwrap();
    }
    eventually("nothing is left", async || {
        let files = std::fs::read_dir(dir.path()).unwrap().count();
        let left = server.unfinished();
        if files == 0 && left.is_empty() {
            Ok(())
        } else {
            Err((files, left))
        }
    })
    .await;
}

#[tokio::test]
async fn a_sweep_removes_partial_files_and_keeps_whole_ones() {
    let (dir, store) = directory();
    write(&store, &Key::from("a/whole"), b"x").await;
    std::fs::write(dir.path().join("a/half#1"), "x").unwrap();
    std::fs::write(dir.path().join("a/other#x"), "x").unwrap();
    assert_eq!(store.sweep(Duration::from_secs(3600)).await.unwrap(), 0);
    assert_eq!(store.sweep(Duration::ZERO).await.unwrap(), 1);
    let mut left: Vec<_> = std::fs::read_dir(dir.path().join("a"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["other#x", "whole"]);
}

#[tokio::test]
async fn a_sweep_aborts_unfinished_uploads_in_a_bucket() {
    let server = S3Server::start().await;
    let store = s3(&server, "/p");
    let mut killed = store.upload(&Key::from("half"));
    killed.write(Bytes::from(pattern(BIG))).await.unwrap();
    // Killed: not even its destructor runs.
    std::mem::forget(killed);
    // Both of its full parts: one still in flight would arrive after the sweep.
    eventually("the parts are there", async || {
        let names = server.unfinished();
        let arrived = |part| names.iter().any(|name| name.ends_with(part));
        arrived(".part-1") && arrived(".part-2")
    })
    .await;
    write(&store, &Key::from("whole"), b"x").await;
    assert_eq!(store.sweep(Duration::from_secs(3600)).await.unwrap(), 0);
    assert_eq!(store.sweep(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(server.unfinished(), Vec::<String>::new());
    assert!(store.head(&Key::from("whole")).await.unwrap().is_some());
    assert_eq!(store.sweep(Duration::ZERO).await.unwrap(), 0);
}

#[tokio::test]
async fn an_outage_is_distinguished_from_an_answer() {
    let mut server = S3Server::start().await;
    let store = s3(&server, "");
    let key = Key::from("x");
    let missing = store.read_all(&key).await.unwrap_err();
    assert_eq!(error_kind(&missing), ErrorKind::NotFound);
    server.stop().await;
    let unavailable = store.put(&key, Bytes::from("x")).await.unwrap_err();
    assert_eq!(
        error_kind(&unavailable),
        ErrorKind::Unavailable,
        "{unavailable:?}"
    );
    server.restart().await;
    store.put(&key, Bytes::from("x")).await.unwrap();
    let mut other = Settings::directory(std::path::Path::new("/"));
    other.url = Some(format!("s3://{BUCKET}").parse().unwrap());
    other.endpoint = Some(server.endpoint().parse().unwrap());
    other.access_key_id = Some(ACCESS_KEY_ID.to_owned());
    other.secret_access_key = Some("wrong".to_owned());
    let other = other.open(std::path::Path::new("/")).unwrap();
    let denied = other.put(&key, Bytes::from("x")).await.unwrap_err();
    assert_eq!(error_kind(&denied), ErrorKind::AccessDenied, "{denied:?}");
}
