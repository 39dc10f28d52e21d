package message

import (
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// mustCheck reports whether an item must be checked against the log before it is inserted.
func (c *channel) mustCheck(it *item) bool {
	return (it.Kind.Changes() || c.expectDuplicates) && !it.checked
}

// passed reports whether an item of the request needs no insert any more.
func (r *request) passed(it *item) bool { return it.settled || it.stored || r.ended }

// change completes the entry of a change of target, and applies it to target.
func (e *Entry) change(it *item, target *Entry) {
	e.TargetSeq, e.Digest = target.Seq, newDigest(it.Draft, target.Digest)
	target.apply(e)
}

// checkRev decides whether an item may be stored after an entry of the access revision rev. If
// settled is true, out is its outcome: it is handed back, or it is an access entry whose revision
// the log has. If an insert of the item failed before, a lookup has shown that it is not stored.
func (c *channel) checkRev(it *item, rev int64) (out Outcome, settled bool) {
	switch {
	case it.Rev < rev:
		return Outcome{
			StaleRev: rev,
			Err: fault.New(fault.Unavailable, fault.StoreUnavailable,
				"the channel is being closed or opened; nothing was stored; retry"),
		}, true
	case it.Kind == KindAccess && it.Rev <= c.head.Rev: // rev may be of an entry that is not stored yet
		return Outcome{Seq: c.head.Seq, Count: c.head.Count, MsgTime: c.head.MsgTime, Duplicate: true}, true
	}
	return Outcome{}, false
}

// checkChange decides whether a change of target may be stored; a nil target means that the message
// does not exist. If refused is true, out is the outcome: an error, or a duplicate for a recall of
// a recalled message. A change that is allowed because of an earlier one in its batch needs no
// care: the store never has it without that one.
func checkChange(it *item, target *Entry) (out Outcome, refused bool) {
	switch {
	case target == nil:
		return Outcome{Err: notFound()}, true
	case target.FromID != it.FromID && !it.AnySender:
		return Outcome{Err: fault.New(fault.PermissionDenied, fault.NotSender, "the message was sent by another user")}, true
	case it.TargetType != "" && target.MsgType != it.TargetType:
		return Outcome{
			Err: fault.New(fault.PermissionDenied, fault.CapabilityMissing,
				"a message of the role %q can be changed only with the action %q", target.MsgType, ident.Manage),
		}, true
	case target.Status == StatusRecalled && it.erases() && target.FromID != ErasedUser:
	case target.Status == StatusRecalled && it.Kind == KindRecall:
		return Outcome{MsgID: it.MsgID, ClientMsgID: it.ClientMsgID, Seq: target.ChangedSeq, Duplicate: true}, true
	case target.Status == StatusRecalled:
		return Outcome{
			Err: fault.New(fault.FailedPrecondition, fault.MessageRecalled, "the message has been recalled"),
		}, true
	case target.Status == StatusOpen && it.Kind == KindEdit:
		return Outcome{
			Err: fault.New(fault.FailedPrecondition, fault.MessageOpen, "the message is open; it can be edited once it is closed"),
		}, true
	case target.Status != StatusOpen && it.Kind.Closes():
		return Outcome{Err: fault.New(fault.FailedPrecondition, fault.MessageClosed, "the message is not open")}, true
	}
	return Outcome{}, false
}

// duplicateOutcome returns the outcome of an item whose client key the stored entry e already has:
// that of e if both have the same payload, otherwise CLIENT_MSG_ID_REUSED. target is the message
// that the item changes; nil for a send.
func duplicateOutcome(it *item, e, target *Entry) Outcome {
	if it.Kind == KindSend && e.MsgID == it.MsgID {
		return e.outcome(false) // our own entry, from an insert whose reply was lost
	}
	var digest []byte
	if target != nil {
		digest = target.Digest
	}
	if !samePayload(it.Draft, e, digest) {
		err := fault.New(fault.AlreadyExists, fault.ClientMsgIDReused,
			"client_msg_id: already used by this sender with a different payload")
		err.Field = "client_msg_id"
		return Outcome{Err: err}
	}
	return e.outcome(true)
}
