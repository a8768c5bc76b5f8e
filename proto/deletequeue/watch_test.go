package deletequeue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func wantNotice(t *testing.T, notices <-chan struct{}) {
	t.Helper()
	select {
	case _, open := <-notices:
		if !open {
			t.Fatal("the channel is closed")
		}
	case <-time.After(time.Minute):
		t.Fatal("no notice within a minute")
	}
}

func TestWatchNotifiesOfExistingAndNewEntries(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("there"))
	ctx, cancel := context.WithCancel(t.Context())
	notices := q.Watch(ctx)
	wantNotice(t, notices)

	var seen []string
	must(t, drain(t, q, recordTo(&seen), counts{1, 0}))
	add(t, q, entryOf("new"))
	wantNotice(t, notices)

	cancel()
	eventually(t, func() bool { _, open := <-notices; return !open })
}

func TestEntryOfAFailedAttemptIsNotFresh(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"))
	path := q.dir.path(keyOf("a").fileName())
	if !isFresh(path) {
		t.Error("a new entry is not fresh")
	}
	var seen []string
	must(t, drain(t, q, recordTo(&seen, "a"), counts{0, 1}))
	if isFresh(path) {
		t.Error("an entry that a drain wrote back is fresh")
	}
}

func TestWatchPollsWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		q := open(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		notices := make(chan struct{}, 1)
		ended := make(chan struct{})
		go func() { defer close(ended); q.watch(ctx, nil, notices) }()
		synctest.Wait()
		began := time.Now()
		add(t, q, entryOf("a"))
		<-notices
		if took := time.Since(began); took != pollInterval {
			t.Errorf("notified after %s, want %s", took, pollInterval)
		}
		cancel()
		<-ended
	})
}
