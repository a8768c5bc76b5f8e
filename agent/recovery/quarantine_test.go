package recovery

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/pod"
)

var quiet = slog.New(slog.DiscardHandler)

// A full disk must not lose a quarantine: the next agent would connect the pod again.
func TestAQuarantineThatCouldNotBeSavedIsSavedWithTheNextChange(t *testing.T) {
	full := true
	saver := &eventlooptest.Saver{}
	saver.Before(func(context.Context, []eventloop.Saved) error {
		if full {
			return errors.New("no space left on device")
		}
		return nil
	})
	q := NewQuarantine(saver, health.New("", quiet), quiet)
	a := pod.Key{Network: "weft", ContainerID: "a", IfName: "eth0"}
	b := pod.Key{Network: "weft", ContainerID: "b", IfName: "eth0"}
	q.put(t.Context(), Suspicion{Key: a, State: stateQuarantined}, Suspicion{Key: b, State: stateQuarantined})
	if _, there := q.find(a); !there || q.IsDurable() || len(saver.Bucket(statefile.BucketQuarantine)) != 0 {
		t.Errorf("on a full disk: there %v, durable %v, saved %v", there, q.IsDurable(),
			saver.Bucket(statefile.BucketQuarantine))
	}
	q.clear(t.Context(), b)
	full = false
	q.put(t.Context())
	saved := saver.Bucket(statefile.BucketQuarantine)
	if !q.IsDurable() || len(saved) != 1 || saved[a.String()] == nil {
		t.Errorf("with space: durable %v, saved %v", q.IsDurable(), saved)
	}
}

func TestWhatIsKnownOfAnAttachmentThatIsGoneIsNotRestored(t *testing.T) {
	q := NewQuarantine(&eventlooptest.Saver{}, health.New("", quiet), quiet)
	q.Restore([]Suspicion{
		{Key: containerKey("gone"), State: stateQuarantined}, {Key: containerKey("there"), State: stateQuarantined},
	}, []*pod.Attachment{{Key: containerKey("there")}, {Key: containerKey("other")}})
	if keys := q.Keys(); !slices.Equal(keys, []pod.Key{containerKey("there")}) {
		t.Errorf("restored %v", keys)
	}
}

// An attachment that is released has one try: its next crash is the last one that quarantines it.
func TestAReleasedAttachmentIsASuspectWithOneTry(t *testing.T) {
	q := NewQuarantine(&eventlooptest.Saver{}, health.New("", quiet), quiet)
	q.put(t.Context(), Suspicion{
		Key:     containerKey("a"),
		Pod:     pod.ID{Namespace: "lab", Name: "a"},
		State:   stateQuarantined,
		Crashes: fatalReplays,
	})
	r := &Replayer{Config: Config{Quarantine: q}}
	if n, err := r.Release(t.Context(), "lab/a"); n != 1 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	if s, _ := q.find(containerKey("a")); s.State != stateSuspect || s.Crashes != fatalReplays-1 {
		t.Errorf("it is %+v", s)
	}
}
