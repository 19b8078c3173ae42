use std::{
    pin::Pin,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use gpuaas_model::Timestamp;

use super::*;

#[derive(Default)]
struct Millis(AtomicU64);

impl Runtime for Millis {
    fn spawn(&self, _: &'static str, _: Pin<Box<dyn Future<Output = ()> + Send>>) {}

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn concurrent_callers_within_a_second_share_one_read() {
    let (time, readings) = (Arc::new(Millis::default()), AtomicU32::new(0));
    let cached = Cached::new(time.clone());
    let get = || {
        cached.get(async {
            tokio::task::yield_now().await;
            readings.fetch_add(1, Ordering::Relaxed)
        })
    };
    assert_eq!(futures::future::join_all((0..100).map(|_| get())).await, vec![0; 100]);
    time.0.store(999, Ordering::Relaxed);
    assert_eq!(get().await, 0);
    time.0.store(1_000, Ordering::Relaxed);
    assert_eq!(get().await, 1);
}
