//! An S3 server in the test's own process, with real signatures, that can go away and come back.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// The name of the one account.
pub const ACCESS_KEY_ID: &str = "tester";
/// Its secret.
pub const SECRET_ACCESS_KEY: &str = "not-so-secret";
/// The bucket that is there from the beginning.
pub const BUCKET: &str = "exports";

/// A server with one bucket, gone with the test.
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

    /// Where it listens: `http://…`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it keeps the bucket's objects, as files of the same names.
    pub fn bucket(&self) -> PathBuf {
        self.root.path().join(BUCKET)
    }

    /// What it keeps beside the buckets: uploads that are not finished.
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

    /// Goes away: nobody listens, and every connection breaks.
    pub async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// Comes back under the same address with everything it had.
    pub async fn come_back(&mut self) {
        let listener = listen(self.address).await;
        self.serve(listener);
    }

    fn serve(&mut self, listener: TcpListener) {
        let service = service(self.root.path());
        self.serving = Some(tokio::spawn(async move {
            // Ends with the task, and breaks every connection.
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
