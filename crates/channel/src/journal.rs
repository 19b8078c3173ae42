//! Limits how much of a node's journal one request returns.

use futures::{Stream, StreamExt, stream};
use gpuaas_wire::session::{JOURNAL_BYTES_MAX, JOURNAL_LINES_MAX, JournalLine};

use crate::error::ChannelError;

/// Returns the lines up to the limits of one request; a final line tells when more were cut off.
pub(crate) fn bounded(
    lines: impl Stream<Item = Result<JournalLine, ChannelError>> + Send + Unpin,
) -> impl Stream<Item = Result<JournalLine, ChannelError>> + Send {
    let budget = Budget { bytes: JOURNAL_BYTES_MAX, lines: JOURNAL_LINES_MAX };
    stream::unfold(Some((lines, budget)), |state| async move {
        let (mut lines, mut budget) = state?;
        match lines.next().await? {
            Ok(line) if !budget.try_take(&line) => {
                let text = format!("[cut: one request gets at most {} MiB of a journal]", JOURNAL_BYTES_MAX >> 20);
                Some((Ok(JournalLine { text, ..line }), None))
            }
            line => Some((line, Some((lines, budget)))),
        }
    })
}

/// The remaining allowance of a request.
struct Budget {
    bytes: usize,
    lines: usize,
}

impl Budget {
    fn try_take(&mut self, line: &JournalLine) -> bool {
        let left = self.bytes.checked_sub(line.text.len()).zip(self.lines.checked_sub(1));
        if let Some((bytes, lines)) = left {
            *self = Self { bytes, lines };
        }
        left.is_some()
    }
}

#[cfg(test)]
mod hostile_tests {
    use gpuaas_model::Timestamp;
    use gpuaas_wire::session::JOURNAL_TEXT_BYTES_MAX;

    use super::*;

    async fn got(text_bytes: usize) -> (usize, String) {
        let line = JournalLine { at: Timestamp::from_millis(1), text: "x".repeat(text_bytes) };
        let endless = stream::repeat_with(move || Ok(line.clone()));
        let counted = bounded(endless).fold((0, String::new()), |(count, _), line| async move {
            (count + 1, line.map(|line| line.text).unwrap_or_default())
        });
        counted.await
    }

    #[tokio::test]
    async fn endless_journal_ends_with_a_truncation_notice() {
        let (lines, last) = got(JOURNAL_TEXT_BYTES_MAX).await;
        assert_eq!(lines, JOURNAL_BYTES_MAX / JOURNAL_TEXT_BYTES_MAX + 1);
        assert_eq!(last, "[cut: one request gets at most 64 MiB of a journal]");
        assert_eq!(got(1).await.0, JOURNAL_LINES_MAX + 1, "lines without text count too");
    }
}
