use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::*;

async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    limit(&listener).unwrap();
    // Keep the client kernel's share of the buffered bytes small.
    let client = TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(4 * 1_024).unwrap();
    let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn accepted_connections_inherit_the_limits_of_their_listener() {
    let (_client, accepted) = connected().await;
    assert_eq!(sockopt::socket_send_buffer_size(&accepted).unwrap(), 2 * SEND_BUFFER_BYTES);
    assert_eq!(sockopt::socket_recv_buffer_size(&accepted).unwrap(), 2 * RECEIVE_BUFFER_BYTES);
    assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 30_000);
    assert!(sockopt::socket_keepalive(&accepted).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_AFTER);
}

#[tokio::test]
async fn kernel_buffers_little_for_a_client_that_does_not_read() {
    let (_client, mut accepted) = connected().await;
    let mut taken = 0;
    while let Ok(written) = timeout(Duration::from_millis(200), accepted.write(&[0; 64 * 1_024])).await {
        taken += written.unwrap();
        assert!(taken < 16 * 1_024 * 1_024, "the kernel buffers everything");
    }
    println!("the kernel buffered {taken} bytes");
    assert!(taken < 4 * SEND_BUFFER_BYTES, "{taken}");
}
