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
		t.Fatal("no notice within 10 s")
	}
}

func TestWatchTellsOfWhatIsThereAndWhatComes(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("there"))
	ctx, cancel := context.WithCancel(t.Context())
	notices := q.Watch(ctx)
	wantNotice(t, notices)

	var seen []string
	must(t, drain(t, q, does(&seen), counts{1, 0}))
	add(t, q, entryOf("new"))
	wantNotice(t, notices)

	cancel()
	eventually(t, func() bool { _, open := <-notices; return !open })
}

func TestAFailedEntryIsNoNews(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"))
	path := q.dir + "/" + keyOf("a").fileName()
	if !isFresh(path) {
		t.Error("an entry that nobody tried is no news")
	}
	var seen []string
	must(t, drain(t, q, does(&seen, "a"), counts{0, 1}))
	if isFresh(path) {
		t.Error("an entry that a drain wrote back is news")
	}
}

func TestWithoutNotificationWatchPolls(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		q := open(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		notices, ended := make(chan struct{}, 1), make(chan struct{})
		go func() { defer close(ended); q.watch(ctx, nil, notices) }()
		synctest.Wait()
		began := time.Now()
		add(t, q, entryOf("a"))
		<-notices
		if took := time.Since(began); took != pollEvery {
			t.Errorf("told after %s, want %s", took, pollEvery)
		}
		cancel()
		<-ended
	})
}
