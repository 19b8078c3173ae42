//! Members of workloads.

use gpuaas_model::{MemberId, MemberState, MemberStateName, NodeId, WorkloadId};

use crate::{
    error::StoreError,
    hint::Change,
    query::{Value, document, get_int, text, text_or_empty},
    record::MemberRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Appends members to a workload. Fails with [`StoreError::AllocationInUse`] if another member uses an allocation.
    pub async fn insert_members(&mut self, members: &[MemberRecord]) -> Result<(), StoreError> {
        for member in members {
            if let Some(allocation) = member.place.allocation()
                && let Some(user) = self.allocation_user(allocation).await?
            {
                let workload = user.workload_name.to_string();
                return Err(StoreError::AllocationInUse { allocation, workload });
            }
            let sql = "select coalesce(max(position), -1) + 1 as position from members where workload_id = $1";
            let row = self.row(sql, vec![text(member.workload)]).await?;
            let position = row.map(|row| get_int(&row, "position")).transpose()?.unwrap_or(0);
            let values = vec![
                text(member.id),
                text(member.workload),
                Value::Int(position),
                text_or_empty(member.place.allocation()),
                text_or_empty(member.place.node()),
                text(member.state.name()),
                document(member)?,
            ];
            let sql = "insert into members (id, workload_id, position, allocation_id, node_id, state, doc) \
                       values ($1, $2, $3, nullif($4, ''), nullif($5, ''), $6, $7)";
            self.execute(sql, values).await?;
        }
        Ok(())
    }

    /// Updates a member that is still in the state `before`. Hints its node when the member is removed, because access
    /// to the node ends with it.
    pub async fn update_member(
        &mut self,
        member: &MemberRecord,
        before: MemberStateName,
    ) -> Result<MemberRecord, StoreError> {
        let next = MemberRecord { updated_at: self.clock.now(), ..member.clone() };
        let values = vec![text(member.id), text(before), text(next.state.name()), document(&next)?];
        match self.execute("update members set state = $3, doc = $4 where id = $1 and state = $2", values).await? {
            1 => {
                if let (MemberState::Removed, Some(node)) = (&next.state, member.place.node()) {
                    self.announced.hints.push(Change::Node(node));
                }
                Ok(next)
            }
            _ => Err(StoreError::Stale { what: "member" }),
        }
    }
}

impl Reader {
    /// Returns the member with this id.
    pub async fn member(&mut self, id: MemberId) -> Result<MemberRecord, StoreError> {
        let found = self.find("select id, doc from members where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("member", id))
    }

    /// Returns the members of a workload in the order of their placement, including removed ones.
    pub async fn members_of(&mut self, workload: WorkloadId) -> Result<Vec<MemberRecord>, StoreError> {
        self.list("select id, doc from members where workload_id = $1 order by position", vec![text(workload)]).await
    }

    /// Returns the members on a node, without removed ones.
    pub async fn members_on(&mut self, node: NodeId) -> Result<Vec<MemberRecord>, StoreError> {
        self.list("select id, doc from members where node_id = $1 and state <> 'removed' order by id", vec![text(node)])
            .await
    }
}
