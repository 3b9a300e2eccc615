//! An S3 server in the test process, with real signatures, that can be stopped and restarted.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// Access key of the only account.
pub const ACCESS_KEY_ID: &str = "tester";
/// Secret key of the account.
pub const SECRET_ACCESS_KEY: &str = "not-so-secret";
/// The bucket that exists from the start.
pub const BUCKET: &str = "exports";

/// A server with one bucket; ends with the test.
#[derive(Debug)]
pub struct S3Server {
    root: TempDir,
    address: SocketAddr,
    serving: Option<JoinHandle<()>>,
}

impl S3Server {
    /// Starts a server with an empty bucket.
    pub async fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory for the S3 server");
        std::fs::create_dir(root.path().join(BUCKET)).expect("a bucket");
        let listener = listen("127.0.0.1:0".parse().expect("an address")).await;
        let mut server = Self {
            root,
            address: listener.local_addr().expect("the server's address"),
            serving: None,
        };
        server.serve(listener);
        server
    }

    /// Base URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Directory of the bucket's objects, stored as files under their names.
    pub fn bucket(&self) -> PathBuf {
        self.root.path().join(BUCKET)
    }

    /// Unfinished multipart uploads.
    pub fn unfinished(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.root.path()).expect("the server's directory");
        names
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .filter(|name| name.contains("upload"))
            .collect()
    }

    /// Stops listening and breaks every connection.
    pub async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// Starts again on the same address with the same data.
    pub async fn restart(&mut self) {
        let listener = listen(self.address).await;
        self.serve(listener);
    }

    fn serve(&mut self, listener: TcpListener) {
        let service = service(self.root.path());
        self.serving = Some(tokio::spawn(async move {
            // Dropped with the task, which breaks every connection.
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                let service = service.clone();
                connections.spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    let _ = builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
                while connections.try_join_next().is_some() {}
            }
        }));
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

async fn listen(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address)
        .await
        .expect("an address for the S3 server")
}

fn service(root: &Path) -> S3Service {
    let files = s3s_fs::FileSystem::new(root).expect("the server's directory");
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY_ID, SECRET_ACCESS_KEY));
    builder.build()
}
