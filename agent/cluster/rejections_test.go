package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/k8s/announcement"
)

func TestRejectionsAreLoggedOnceAndShownAtOnce(t *testing.T) {
	var log bytes.Buffer
	a := NewFollower(FollowerConfig{
		Log:    slog.New(slog.NewTextHandler(&log, nil)),
		Health: health.New("", slog.New(slog.DiscardHandler)),
	})
	a.Health.Advise(health.Announcements)
	var rejected []announcement.Rejection
	for i := range 10 {
		rejected = append(rejected, announcement.Rejection{
			Node:    "n2",
			Network: "default",
			What:    fmt.Sprintf("8.8.8.%d/32", i),
			Reason:  "no",
		})
	}
	rejected = append(rejected, announcement.Rejection{Node: "n3", Reason: "there is no Node of this name"})
	var now followed
	lines := func() int { return strings.Count(log.String(), "\n") }
	a.showRejections(rejected, &now)
	if lines() > 0 || a.Health.Holds(health.Announcements) || a.rejections.Load() != 11 {
		t.Errorf("at first: log %q, %d rejections", log.String(), a.rejections.Load())
	}
	now.ticked = true
	for i, want := range []int{shownRejections + 1, 11, 11} { // n3 is not behind n2
		if a.showRejections(rejected, &now); lines() != want {
			t.Errorf("look %d: %d lines, want %d: %s", i, lines(), want, log.String())
		}
	}
	want := "node n2: 8.8.8.0/32 of network default: no; node n2: 8.8.8.1/32 of network default: no; node n3: there is no Node of this name; and 8 more"
	if got := summary(rejected); got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	a.showRejections(nil, &now)
	if !a.Health.Holds(health.Announcements) || a.rejections.Load() != 0 {
		t.Error("the condition stays although nothing is rejected")
	}
	a.showRejections(rejected[:1], &now)
	if lines() != 12 {
		t.Errorf("a rejection that comes again is not logged: %s", log.String())
	}
}
