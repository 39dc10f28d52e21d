package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var identityContracts = []contract{
	{"IdentityStays", identityStays},
	{"NewEpochReplacesTheEpoch", newEpoch},
	{"PingAnswers", ping},
}

func identityStays(t *testing.T, p *fixture) {
	id := p.Identity()
	if id.Shards != shards || id.Epoch == "" || len(id.Secret) != 32 || string(id.Secret) == string(make([]byte, 32)) {
		t.Fatalf("identity of a new store: %+v", id)
	}
	p.reopen(t)
	if d := cmp.Diff(id, p.Identity()); d != "" {
		t.Fatalf("identity after a restart (-want +got):\n%s", d)
	}
}

func newEpoch(t *testing.T, p *fixture) {
	d := draftsOf(0, 1)[0]
	log := d.sends(3)
	p.insert(t, log...)
	old := p.Identity()
	epoch, err := p.NewEpoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := p.Identity()
	if epoch == "" || epoch == old.Epoch || id.Epoch != epoch {
		t.Fatalf("epoch was %q, NewEpoch answered %q, identity says %q", old.Epoch, epoch, id.Epoch)
	}
	if stored, err := p.StoredEpoch(t.Context()); err != nil || stored != epoch {
		t.Fatalf("stored epoch: %q, %v, want %q", stored, err, epoch)
	}
	old.Epoch = epoch
	p.reopen(t)
	if d := cmp.Diff(old, p.Identity()); d != "" {
		t.Fatalf("identity after a new epoch and a restart (-want +got):\n%s", d)
	}
	equal(t, "log", log, p.all(t, d.channel))
	p.insert(t, d.send("goes on"))
}

func ping(t *testing.T, p *fixture) {
	if err := p.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}
