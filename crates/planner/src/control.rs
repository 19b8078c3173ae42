//! Decides whether the newest operation of a workload can be resumed, and whether it can be cancelled. No other code decides it.

use gpuaas_model::{Code, Name, OperationId, OperationKind, OperationState};

/// The newest operation of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestOperation {
    /// Id of the operation.
    pub id: OperationId,
    /// Kind of the operation.
    pub kind: OperationKind,
    /// State of the operation.
    pub state: OperationState,
    /// True if its cancellation was requested.
    pub cancel_requested: bool,
}

/// A refusal of a resume or a cancellation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRefusal {
    /// Stable code.
    pub code: Code,
    /// The reason, in one sentence.
    pub detail: String,
    /// What the caller can do.
    pub next: String,
}

/// Refuses to resume workload `name` unless its newest operation ended without success.
pub fn check_resume(newest: Option<NewestOperation>, name: &Name) -> Result<(), ControlRefusal> {
    let nothing = format!("{name} has no operation that can be resumed");
    match newest {
        Some(open) if !open.state.is_final() => Err(ControlRefusal {
            code: Code::StateConflict,
            detail: format!("{nothing}: {} is still open", open.kind),
            next: format!("wait for its end: gpuaas operation watch {}", open.id),
        }),
        Some(ended) if ended.state != OperationState::Succeeded => Ok(()),
        Some(_) | None => Err(ControlRefusal {
            code: Code::StateConflict,
            detail: nothing,
            next: format!("see its state: gpuaas workload show {name}"),
        }),
    }
}

/// Refuses to cancel the newest operation of workload `name` unless it is open. A repeated cancellation changes nothing.
pub fn check_cancel(newest: Option<NewestOperation>, name: &Name) -> Result<(), ControlRefusal> {
    match newest {
        Some(ended) if ended.state.is_final() => Err(has_ended(ended.id, ended.state)),
        Some(open) if open.cancel_requested => Err(ControlRefusal {
            code: Code::NothingToDo,
            detail: format!("the cancellation of operation {} was already requested", open.id),
            next: format!("wait for its end: gpuaas operation watch {}", open.id),
        }),
        Some(_) => Ok(()),
        None => Err(ControlRefusal {
            code: Code::StateConflict,
            detail: format!("{name} has no operation that can be cancelled"),
            next: format!("see its state: gpuaas workload show {name}"),
        }),
    }
}

/// Returns the refusal to cancel an operation that has ended in this state.
pub fn has_ended(id: OperationId, state: OperationState) -> ControlRefusal {
    ControlRefusal {
        code: Code::StateConflict,
        detail: format!("operation {id} has already ended: {state}"),
        next: format!("see how it ended: gpuaas operation show {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest(state: OperationState) -> NewestOperation {
        let id = "0198c0de-7a3b-7c11-9b54-0242ac12000b".parse().expect("an id");
        NewestOperation { id, kind: OperationKind::Deploy, state, cancel_requested: false }
    }

    fn name() -> Name {
        "train".parse().expect("a name")
    }

    #[test]
    fn operation_is_resumed_after_an_end_without_success_and_cancelled_while_it_is_open() {
        for state in OperationState::ALL {
            let operation = newest(*state);
            let can_resume = check_resume(Some(operation), &name()).is_ok();
            let can_cancel = check_cancel(Some(operation), &name()).is_ok();
            assert_eq!(can_resume, state.is_final() && *state != OperationState::Succeeded, "{state}");
            assert_eq!(can_cancel, !state.is_final(), "{state}");
        }
        assert!(check_resume(None, &name()).is_err() && check_cancel(None, &name()).is_err());
    }

    #[test]
    fn refusals_say_what_is_in_the_way() {
        let running = newest(OperationState::Running);
        let refused = check_resume(Some(running), &name()).expect_err("it is open");
        assert_eq!(refused.detail, "train has no operation that can be resumed: deploy is still open");
        assert_eq!(refused.next, format!("wait for its end: gpuaas operation watch {}", running.id));
        let refused = check_resume(Some(newest(OperationState::Succeeded)), &name()).expect_err("it succeeded");
        assert_eq!(refused.detail, "train has no operation that can be resumed");
        let ending = NewestOperation { cancel_requested: true, ..running };
        let refused = check_cancel(Some(ending), &name()).expect_err("it was requested");
        assert_eq!(refused.code, Code::NothingToDo);
        let refused = check_cancel(Some(newest(OperationState::Cancelled)), &name()).expect_err("it has ended");
        assert_eq!(refused.code, Code::StateConflict);
        assert!(refused.detail.ends_with("has already ended: cancelled"), "{}", refused.detail);
    }
}
