package redislog

import (
	"errors"
	"slices"
	"testing"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// with returns a later version of the rig's topic with these groups.
func (r *inputRig) with(version int64, groups ...qlog.Group) *qlog.Topic {
	t := *r.topic
	t.Version, t.Groups = version, groups
	return &t
}

// A group that the partition never had begins at its start, one that it lost at the start of the
// log.
func TestAPartitionGetsNewGroupsAtTheirStart(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(drafts("a", "b", "c")...)
	topic := r.with(2, qlog.Group{Name: "end", Start: qlog.Start{End: true}}, qlog.Group{Name: "work"})
	r.check(r.s.MakePartition(t.Context(), topic, 0))
	last := r.entries()[2].pos.String()
	if got := r.state("end"); got["cursor"] != last || len(got["epoch"]) < 16 {
		t.Errorf("%v, want the cursor %s and an epoch that no earlier holder has", got, last)
	}
	r.lose(r.s.keys.state(r.ref, "end"))
	info, err := r.s.Partition(t.Context(), "jobs", 0)
	r.check(err)
	if !slices.Equal(info.Groups, []string{"end", "work"}) || !slices.Equal(info.Lost, []string{"end"}) ||
		info.UID != topic.UID || info.Version != 2 || !info.CreatedAt.Equal(topic.CreatedAt) {
		t.Errorf("%+v", info)
	}
	r.check(r.s.MakePartition(t.Context(), topic, 0))
	if cursor, err := qlog.ParsePos(r.state("end")["cursor"]); err != nil || cursor.Ord != 0 || r.state("end")["epoch"] != "0" {
		t.Errorf("%v, %v", r.state("end"), err)
	}
	if info, err = r.s.Partition(t.Context(), "jobs", 1); err != nil || info.UID != "" || len(info.Groups) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestAPartitionLosesTheGroupsOfEarlierSettings(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.check(r.s.MakePartition(t.Context(), r.with(2, qlog.Group{Name: "other"}, qlog.Group{Name: "work"}), 0))
	r.check(r.c.HSet(t.Context(), r.s.keys.rows(r.ref, "work"), "1", "x").Err())
	version := r.c.HGet(t.Context(), r.s.keys.meta(r.ref), "gv").Val()
	later := r.with(3, qlog.Group{Name: "other"})
	r.check(r.s.MakePartition(t.Context(), later, 0))
	if n := r.c.Exists(t.Context(), r.s.groupKeys(r.group("work"))...).Val(); n != 0 {
		t.Errorf("%d keys of the group are left", n)
	}
	if now := r.c.HGet(t.Context(), r.s.keys.meta(r.ref), "gv").Val(); now <= version {
		t.Errorf("the version of the groups was %s and is %s", version, now)
	}
	// A call with earlier settings that arrives late changes nothing.
	paused := r.with(2, qlog.Group{Name: "work"})
	paused.ProducePaused = true
	if err := r.s.MakePartition(t.Context(), paused, 0); !errors.Is(err, qlog.ErrConflict) {
		t.Error(err)
	}
	r.put(draft("a"))
	if info, err := r.s.Partition(t.Context(), "jobs", 0); err != nil || !slices.Equal(info.Groups, []string{"other"}) || len(info.Lost) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

// A group that came after the caller had looked which ones to remove stays known.
func TestAGroupThatNobodyNamesStays(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.check(r.s.MakeGroup(t.Context(), r.group("late"), qlog.Start{}))
	keys := []string{r.s.keys.main(r.ref), r.s.keys.meta(r.ref), r.s.keys.state(r.ref, "new")}
	_, err := r.s.write(t.Context(), partitionScript, keys, r.topic.UID, 2, "{}", "0", 1, "new", "-")
	r.check(err)
	if _, names, err := r.s.groups(t.Context(), r.ref); err != nil || len(names) != 3 || names[0] != "new" {
		t.Errorf("%q, %v", names, err)
	}
}

// A partition that is left of an earlier topic of the name does not count, even with a later
// version.
func TestSettingsAreRestoredFromTheLatestTopic(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	for i, uid := range []string{"BBBBBBBBBBBBB", "CCCCCCCCCCCCC"} {
		left := r.with(9)
		left.UID, left.CreatedAt = uid, left.CreatedAt.Add(-1e9)
		r.check(r.s.MakePartition(t.Context(), left, 1+i))
	}
	r.lose(r.s.keys.topic("jobs"))
	if got, err := r.s.RestoreTopic(t.Context(), "jobs"); err != nil || got.UID != r.topic.UID {
		t.Errorf("%+v, %v", got, err)
	}
}
