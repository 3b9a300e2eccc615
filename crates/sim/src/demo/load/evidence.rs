//! Load on evidence: archives of files for dispute cases; the Case API fails, hangs up and answers late.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Cursor, Write},
    sync::Arc,
};

use reqwest::Method;
use sha2::{Digest, Sha256};
use uuid::Uuid;
use zip::{ZipWriter, result::ZipError, write::SimpleFileOptions};

use super::{Accepted, Progress, Run, keys};
use crate::{
    demo::{
        Error,
        checker::{self, Effect},
    },
    receiver::Notification,
};

const NAME: &str = "evidence";
const PER_SECOND: u64 = 5;

/// The number of files in an archive.
const FILES_PER_ARCHIVE: u64 = 15;

/// A file of a case.
struct File {
    case: Uuid,
    name: String,
    content: String,
}

impl File {
    fn new(number: u64) -> Self {
        let case = Uuid::new_v4();
        let line = format!("Parcel {number} of case {case} was handed over and signed for.\n");
        Self {
            case,
            name: format!("receipt-{number}.txt"),
            content: line.repeat(50),
        }
    }

    fn item(&self) -> String {
        item(self.case, &self.name)
    }

    fn sha256(&self) -> String {
        hex::encode(Sha256::digest(&self.content))
    }
}

fn item(case: Uuid, name: &str) -> String {
    format!("{case}/{name}")
}

/// The load.
pub struct Evidence {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<String>,
    jobs: Accepted<()>,
}

impl Evidence {
    pub fn new(run: Arc<Run>) -> Self {
        Self {
            planned: run.planned(PER_SECOND),
            run,
            accepted: Accepted::new(),
            jobs: Accepted::new(),
        }
    }

    pub async fn submit(&self) -> Result<(), Error> {
        let jobs = self.planned.div_ceil(FILES_PER_ARCHIVE);
        let mut pace = self.run.pace(jobs);
        for job in 0..jobs {
            pace.tick().await;
            let numbers =
                job * FILES_PER_ARCHIVE..((job + 1) * FILES_PER_ARCHIVE).min(self.planned);
            let files: Vec<File> = numbers.map(File::new).collect();
            let archive =
                archive(&files).map_err(|e| Error::caused("can't build an archive", &e))?;
            let request = self
                .run
                .client
                .request(Method::POST, "/file-jobs?merchant_id=demo")
                .header("content-type", "application/zip")
                .body(archive);
            let no_outage = self.run.outage.read().await;
            let answer = self.run.client.once(request).await?;
            drop(no_outage);
            self.jobs
                .insert(answer["file_job_id"].as_str().unwrap_or_default(), ());
            for file in files {
                self.accepted.insert(file.item(), file.sha256());
            }
        }
        Ok(())
    }

    pub fn progress(&self) -> Progress {
        Progress {
            service: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: self.run.parties.cases.attached().len() as u64,
            retried: self.retried() as u64,
            dead: 0,
            blocked: 0,
        }
    }

    fn retried(&self) -> usize {
        let mut calls: BTreeMap<Uuid, u32> = BTreeMap::new();
        for call in self.run.parties.cases.calls() {
            *calls.entry(call.artifact_id).or_default() += 1;
        }
        calls.values().filter(|calls| **calls > 1).count()
    }

    /// Did the receiver get the final notification of every job?
    pub fn is_notified(&self) -> bool {
        let accepted = self.run.parties.receiver.accepted();
        let jobs: BTreeSet<&String> = accepted
            .iter()
            .filter(|notification| notification.kind == "evidence.n2")
            .map(|notification| &notification.job)
            .collect();
        jobs.len() as u64 >= self.jobs.len()
    }

    /// The files that the Case API has, by whatever id, and the notifications that were received.
    pub fn evidence(&self) -> checker::Evidence {
        let accepted = self.accepted.all();
        let attached = self.run.parties.cases.attached();
        let effects = attached.values().map(|file| {
            let item = item(file.case_id, &file.file_name);
            let correct = accepted.get(&item) == Some(&file.sha256);
            Effect { item, correct }
        });
        let jobs = keys(&self.jobs.all());
        checker::Evidence {
            service: NAME,
            accepted: keys(&accepted),
            effects: effects.collect(),
            retried: self.retried(),
            violations: notification_errors(&jobs, &self.run.parties.receiver.accepted()),
            ..checker::Evidence::default()
        }
    }
}

/// Every job gets one N1 and one N2. The same one may be delivered again, with the same id.
fn notification_errors(jobs: &BTreeSet<String>, accepted: &[Notification]) -> Vec<String> {
    let distinct: BTreeSet<&Notification> = accepted.iter().collect();
    let mut errors = Vec::new();
    for job in jobs {
        for kind in ["evidence.n1", "evidence.n2"] {
            let times = distinct
                .iter()
                .filter(|notification| notification.job == *job && notification.kind == kind)
                .count();
            if times != 1 {
                errors.push(format!("job {job} has {times} notifications {kind}"));
            }
        }
    }
    errors
}

fn archive(files: &[File]) -> Result<Vec<u8>, ZipError> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("manifest.csv", SimpleFileOptions::default())?;
    writeln!(zip, "case_id,reference,files")?;
    for file in files {
        writeln!(zip, "{},PARCEL,{}", file.case, file.name)?;
    }
    for file in files {
        zip.start_file(&file.name, SimpleFileOptions::default())?;
        zip.write_all(file.content.as_bytes())?;
    }
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(kind: &str, id: &str) -> Notification {
        Notification {
            job: "j".to_owned(),
            kind: format!("evidence.{kind}"),
            id: id.to_owned(),
        }
    }

    #[test]
    fn same_notification_may_repeat_but_a_second_one_is_an_error() {
        let jobs = BTreeSet::from(["j".to_owned()]);
        let repeated = [
            notification("n1", "1"),
            notification("n1", "1"),
            notification("n2", "2"),
        ];
        assert_eq!(notification_errors(&jobs, &repeated), Vec::<String>::new());
        let twice = [
            notification("n1", "1"),
            notification("n1", "3"),
            notification("n2", "2"),
        ];
        assert_eq!(
            notification_errors(&jobs, &twice),
            ["job j has 2 notifications evidence.n1"]
        );
        let missing = [notification("n1", "1")];
        assert_eq!(
            notification_errors(&jobs, &missing),
            ["job j has 0 notifications evidence.n2"]
        );
    }
}
