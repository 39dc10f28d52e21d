package storetest

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// epochStart is the msg_time that drafts count from. It is not a whole second, so that lost
// milliseconds are noticed.
var epochStart = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

// draft creates the entries of one channel's log, as the Writer would.
type draft struct {
	channel    string
	seq, count int64
}

// next returns the fields common to all kinds of entries, at the log's next seq.
func (d *draft) next(kind message.Kind, from, key, content string) message.Entry {
	d.seq++
	digest := sha256.Sum256([]byte(fmt.Sprint(kind, from, key, content)))
	return message.Entry{
		Message: message.Message{
			ChannelID: d.channel, Seq: d.seq, Count: d.count, FromID: from, Content: content, ClientMsgID: key,
			MsgTime: epochStart.Add(time.Duration(d.seq) * 37 * time.Millisecond), ChangedSeq: d.seq,
			Rev: d.seq / 3,
		},
		Kind:    kind,
		Pending: kind.Changes(),
		Digest:  digest[:],
		Bytes:   1000*d.seq + 7,
	}
}

// sendAs creates a send with the given sender and client_msg_id.
func (d *draft) sendAs(from, key, content string) message.Entry {
	d.count++
	e := d.next(message.KindSend, from, key, content)
	e.MsgID = fmt.Sprintf("%s-m%d", d.channel, d.seq)
	e.MsgType = "text"
	e.Metadata = map[string]string{"lang": "en", "n": fmt.Sprint(d.seq)}
	e.Traceparent = fmt.Sprintf("00-%032x-%016x-01", d.seq, d.seq)
	return e
}

// send creates a send from ann.
func (d *draft) send(content string) message.Entry {
	return d.sendAs("ann", fmt.Sprintf("send-%d", d.seq+1), content)
}

// sends creates n sends.
func (d *draft) sends(n int) []message.Entry {
	entries := make([]message.Entry, n)
	for i := range entries {
		entries[i] = d.send(fmt.Sprintf("text %d of %s", d.seq+1, d.channel))
	}
	return entries
}

// edit creates an edit of target.
func (d *draft) edit(target *message.Entry, content string) message.Entry {
	e := d.next(message.KindEdit, "ann", fmt.Sprintf("edit-%d", d.seq+1), content)
	e.MsgID, e.TargetSeq = target.MsgID, target.Seq
	return e
}

// opened creates an open message.
func (d *draft) opened(content string) message.Entry {
	e := d.send(content)
	e.Status = message.StatusOpen
	return e
}

// closing creates an entry that closes target.
func (d *draft) closing(kind message.Kind, target *message.Entry, content string) message.Entry {
	e := d.next(kind, "ann", fmt.Sprintf("close-%d", d.seq+1), content)
	e.MsgID, e.TargetSeq = target.MsgID, target.Seq
	return e
}

// recall creates a recall of target.
func (d *draft) recall(target *message.Entry) message.Entry {
	e := d.next(message.KindRecall, "moderator", fmt.Sprintf("recall-%d", d.seq+1), "")
	e.MsgID, e.TargetSeq = target.MsgID, target.Seq
	return e
}

// back discards the last n entries, which were refused. All must be sends.
func (d *draft) back(n int64) {
	d.seq -= n
	d.count -= n
}

// channelsOf returns the names of n channels of a shard.
func channelsOf(shard, n int) []string {
	var names []string
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("channel-%d", i); message.Shard(name, shards) == shard {
			names = append(names, name)
		}
	}
	return names
}

// draftsOf creates n empty logs of a shard.
func draftsOf(shard, n int) []*draft {
	drafts := make([]*draft, n)
	for i, name := range channelsOf(shard, n) {
		drafts[i] = &draft{channel: name}
	}
	return drafts
}

// keyOf returns the entry's ClientKey.
func keyOf(e *message.Entry) message.ClientKey {
	return message.ClientKey{FromID: e.FromID, ClientMsgID: e.ClientMsgID}
}

// changed returns target with change applied. A recalled message loses its digest, as after Apply.
func changed(target, change message.Entry) message.Entry {
	one := []message.Entry{target}
	message.Fold(one, []message.Entry{change})
	if change.Kind == message.KindRecall {
		one[0].Digest = nil
	}
	return one[0]
}

// applied returns an edit or a recall as it is after its Apply.
func applied(change message.Entry) message.Entry {
	change.Pending, change.Content = false, ""
	return change
}

// blanked returns an edit as it is after the Apply of a recall of its target and before its own.
func blanked(edit message.Entry) message.Entry {
	edit.Content = ""
	return edit
}
