package message

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Names that are reserved for the server's own messages are refused, and nothing is stored.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	for field, r := range map[string]SendRequest{
		"msg_type": {ChannelID: "a", Content: "x", MsgType: "parley.job"},
		"metadata": {ChannelID: "a", Content: "x", Metadata: map[string]string{"a": "b", "parley-job": "1"}},
	} {
		_, err := b.svc.Send(b.ctx, r)
		if f, ok := fault.As(err); !ok || f.Reason != fault.InvalidField || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	r := SendRequest{ChannelID: "a", Content: "x", MsgType: "parley", Metadata: map[string]string{"parley": "1"}}
	if receipt, err := b.svc.Send(b.ctx, r); err != nil || receipt.Seq != 1 {
		t.Errorf("names that are not reserved: %v, %v", receipt, err)
	}
}
