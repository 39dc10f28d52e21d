package remote

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// carry encodes in and decodes it into out, which it returns.
func carry[M proto.Message](t *testing.T, in, out M) M {
	t.Helper()
	data, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fill sets every field of the struct v but those in skip, so that a test notices a field that is
// not converted.
func fill(t *testing.T, v reflect.Value, skip ...string) {
	t.Helper()
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		if strings.Contains(strings.Join(skip, " "), name) {
			continue
		}
		switch f.Interface().(type) {
		case string:
			f.SetString("of " + name)
		case bool:
			f.SetBool(true)
		case int64:
			f.SetInt(int64(i) + 1<<40)
		case *int64:
			f.Set(reflect.ValueOf(new(int64)))
		case message.Kind:
			f.Set(reflect.ValueOf(message.KindRecall))
		case time.Time:
			f.Set(reflect.ValueOf(time.UnixMilli(1_700_000_000_123).UTC()))
		case map[string]string:
			f.Set(reflect.ValueOf(map[string]string{"k": "v"}))
		default:
			t.Fatalf("%s: fill does not know type %s of %s", v.Type(), f.Type(), name)
		}
	}
}

func TestDraftAndOutcomeWireRoundTrip(t *testing.T) {
	t.Parallel()
	var draft message.Draft
	fill(t, reflect.ValueOf(&draft).Elem())
	for kind := message.KindSend; kind <= message.KindAccess; kind++ {
		draft.Kind = kind
		got, ok := draftFromWire(carry(t, draftToWire(&draft), &clusterv1.Draft{}))
		if diff := cmp.Diff(draft, got); diff != "" || !ok {
			t.Error(diff, ok)
		}
	}
	for _, kind := range []int32{-1, 7, 256} {
		if _, ok := draftFromWire(&clusterv1.Draft{Kind: kind}); ok {
			t.Errorf("kind %d was taken", kind)
		}
	}
	var outcome message.Outcome
	fill(t, reflect.ValueOf(&outcome).Elem(), "Err")
	for _, err := range []error{nil, fault.New(fault.NotFound, fault.MessageNotFound, "none")} {
		outcome.Err = err
		got := outcomeFromWire(carry(t, outcomeToWire(&outcome), &clusterv1.Outcome{}), outcome.ChannelID)
		if diff := cmp.Diff(outcome, got); diff != "" {
			t.Error(diff)
		}
	}
	if got := outcomeFromWire(outcomeToWire(&message.Outcome{}), ""); !got.MsgTime.IsZero() {
		t.Errorf("no time became %s", got.MsgTime)
	}
}

func TestUpdateWireRoundTrip(t *testing.T) {
	t.Parallel()
	var full fanout.Position
	fill(t, reflect.ValueOf(&full).Elem())
	for _, want := range []fanout.Change{
		{Add: []fanout.Position{full, {ChannelID: "live"}}, Remove: []string{"gone"}},
		{Token: &ident.Principal{
			Subject: "ann", Expires: time.UnixMilli(1_900_000_000_123), IssuedAt: time.UnixMilli(1_800_000_000_000), Key: "s:phone",
			Channels: []ident.Capability{{Pattern: "a*", Actions: []ident.Action{ident.Subscribe, ident.Manage}}},
			Members:  []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Subscribe}}},
			Sessions: []ident.Capability{{Pattern: "s", Actions: []ident.Action{ident.Subscribe}}},
		}},
		{Token: &ident.Principal{Subject: "ann"}},
	} {
		w := carry(t, updateToWire("SID", "ann", want), &clusterv1.UpdateStreamRequest{})
		if diff := cmp.Diff(want, updateFromWire(w), cmpopts.EquateEmpty()); diff != "" || w.GetStreamId() != "SID" || w.GetSubject() != "ann" {
			t.Error(diff, w)
		}
	}
}
