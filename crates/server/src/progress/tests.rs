use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpListener,
    time::sleep,
};

use super::*;

fn open(buffer_bytes: usize) -> (DuplexStream, StallGuard<DuplexStream>) {
    let (near, far) = duplex(buffer_bytes);
    (near, StallGuard::new(far, ProgressRule::default()))
}

async fn write_all(stream: &mut StallGuard<DuplexStream>, bytes: usize) -> io::Result<()> {
    let written = async {
        stream.write_all(&vec![0; bytes]).await?;
        stream.flush().await
    };
    tokio::time::timeout(LEAST_BYTES_WITHIN * 100, written).await.expect("it waits forever")
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_nothing_is_disconnected_after_thirty_seconds() {
    let (_near, mut stream) = open(1_024);
    let began = Instant::now();
    let ended = write_all(&mut stream, 4_096).await.expect_err("the client does not read");
    assert_eq!((ended.kind(), began.elapsed()), (io::ErrorKind::TimedOut, STALLED_AFTER));
}

#[tokio::test(start_paused = true)]
async fn trickling_client_is_disconnected_after_five_minutes() {
    let (mut near, mut stream) = open(1_024);
    let trickle = async {
        loop {
            sleep(STALLED_AFTER - Duration::from_secs(1)).await;
            near.read_u8().await.expect("a byte waits");
        }
    };
    let began = Instant::now();
    tokio::select! {
        () = trickle => {}
        ended = write_all(&mut stream, 1_024 * 1_024) => {
            assert_eq!(ended.expect_err("that is no progress").kind(), io::ErrorKind::TimedOut);
        }
    }
    assert_eq!(began.elapsed(), LEAST_BYTES_WITHIN);
}

#[tokio::test(start_paused = true)]
async fn slow_client_gets_the_complete_response() {
    let (mut near, mut stream) = open(4 * 1_024);
    let read = async {
        let (mut buffer, mut read) = ([0; 4 * 1_024], 0);
        while read < 1_024 * 1_024 {
            sleep(Duration::from_secs(10)).await;
            read += near.read(&mut buffer).await.expect("more comes");
        }
    };
    let ((), written) = tokio::join!(read, write_all(&mut stream, 1_024 * 1_024));
    written.expect("400 bytes a second are enough");
}

#[tokio::test(start_paused = true)]
async fn small_complete_reads_are_progress_and_silence_is_no_stall() {
    let (mut near, mut stream) = open(16);
    for _ in 0..50 {
        let read = async {
            sleep(STALLED_AFTER / 2).await;
            near.read_exact(&mut [0; 32]).await.expect("32 bytes");
        };
        let (written, ()) = tokio::join!(write_all(&mut stream, 32), read);
        written.expect("it is read in time");
        sleep(STALLED_AFTER * 2).await;
    }
}

#[tokio::test]
async fn unsent_bytes_are_discarded_with_their_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let rule = ProgressRule { stalled_after: Duration::from_millis(100), ..ProgressRule::default() };
    let mut stream = StallGuard::new(listener.accept().await.unwrap().0, rule);
    while stream.write(&[0; 64 * 1_024]).await.is_ok() {}
    drop(stream);
    let mut buffer = vec![0; 64 * 1_024];
    let end = loop {
        match client.read(&mut buffer).await {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!(end, Some(io::ErrorKind::ConnectionReset), "the kernel keeps sending unread bytes");
}
