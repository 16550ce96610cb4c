//! A folder as a bucket: order, atomic creations between clients, and files that are not objects.

use super::*;
use std::fs;
use std::time::{Duration, SystemTime};

#[test]
fn operations_without_faults_have_their_effect() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let url = format!("file://{}/new/bucket", folder.path().display());
    let bucket = open(&url, &BucketOptions::default(), runtime.handle());
    check_operations(&bucket);
    let file = folder.path().join("new/bucket/log/3/00000000000000000001");
    assert_eq!(fs::read(file).unwrap(), b"0123456789");
}

#[test]
fn threads_and_clients_that_race_have_one_winner_for_each_key() {
    const THREADS: usize = 8;
    const KEYS: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let url = format!("file://{}", folder.path().display());
    // Each client has a state of its own, like a process.
    let clients: Vec<_> = (0..THREADS)
        .map(|_| open(&url, &BucketOptions::default(), runtime.handle()))
        .collect();
    let won: Vec<Vec<usize>> = std::thread::scope(|scope| {
        let threads = clients.iter().enumerate().map(|(thread, client)| {
            scope.spawn(move || {
                let bucket = BlockingBucket(client);
                let create = |index: &usize| {
                    // New folders race too.
                    let name = key(&format!("log/{index}/a"));
                    let content = vec![thread as u8; 5000];
                    match bucket.put_new(&name, content.into()) {
                        Creation::Stored => true,
                        Creation::Exists => false,
                        other => panic!("{other:?}"),
                    }
                };
                (0..KEYS).filter(create).collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let bucket = BlockingBucket(&clients[0]);
    for index in 0..KEYS {
        let winners: Vec<usize> = (0..THREADS).filter(|t| won[*t].contains(&index)).collect();
        assert_eq!(winners.len(), 1, "key {index}");
        let content = bucket
            .get(&key(&format!("log/{index}/a")))
            .unwrap()
            .unwrap();
        assert_eq!(content, vec![winners[0] as u8; 5000], "key {index}");
    }
    let staged = fs::read_dir(folder.path().join(".staged")).unwrap();
    assert_eq!(staged.count(), 0, "staged files remain");
}

#[test]
fn staged_files_of_a_crash_are_not_listed_and_are_removed_when_old() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let url = format!("file://{}", folder.path().display());
    let staged = folder.path().join(".staged");
    fs::create_dir(&staged).unwrap();
    let (new, old) = (staged.join("1-0-1"), staged.join("1-1-1"));
    fs::write(&new, "new").unwrap();
    let file = fs::File::create(&old).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(7200))
        .unwrap();
    let bucket = open(&url, &BucketOptions::default(), runtime.handle());
    assert!(new.exists());
    assert!(!old.exists());
    assert_eq!(
        BlockingBucket(&bucket).list(&list("")).unwrap(),
        ListPage::default()
    );
}

#[test]
fn foreign_file_is_an_error_and_a_folder_is_no_object() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let url = format!("file://{}", folder.path().display());
    let bucket = open(&url, &BucketOptions::default(), runtime.handle());
    let bucket = BlockingBucket(&bucket);
    assert_eq!(bucket.put_new(&key("a/b"), Bytes::new()), Creation::Stored);
    assert_eq!(bucket.get(&key("a")), Ok(None));
    assert_eq!(bucket.head(&key("a/b/c")), Ok(None));
    let below = bucket.put_new(&key("a/b/c"), Bytes::new());
    assert_eq!(kind(&below).0, "refused");
    assert_eq!(bucket.put_new(&key("a"), Bytes::new()), Creation::Exists);
    fs::write(folder.path().join("a/with space"), "x").unwrap();
    let error = bucket.list(&list("a/")).unwrap_err();
    assert_eq!(
        error.message,
        "list a/: found a foreign file \"a/with space\""
    );
    assert_eq!(keys(&bucket.list(&list("a/b")).unwrap()), ["a/b"]);
}

#[test]
fn folder_that_is_a_file_cannot_be_opened() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let runtime = runtime();
    let metrics = Arc::new(BucketMetrics::default());
    let url = format!("file://{}", file.path().display());
    let options = BucketOptions::default();
    let environment = AwsEnvironment::default();
    let opened = ObjectStoreBucket::open(&url, &options, &environment, runtime.handle(), metrics);
    let text = opened.unwrap_err().message;
    assert!(
        text.starts_with("open ") && text.contains("Not a directory"),
        "{text}"
    );
}
