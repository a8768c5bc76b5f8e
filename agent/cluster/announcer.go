package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/k8s/announcement"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/nodeview"
)

// Announcer writes this node's announcement to the other nodes.
type Announcer struct {
	AnnouncerConfig

	latest chan announcement.Announcement // that is not written yet
}

// AnnouncerConfig has the dependencies of an announcer.
type AnnouncerConfig struct {
	Node    string
	Client  *client.Client
	Cluster *nodeview.Cluster
	State   *statefile.File
	Health  *health.Conditions
	Log     *slog.Logger
}

// announcedKey is the key of the UID of the announced Node in the bucket "cluster" of the state file.
const announcedKey = "announced"

// NewAnnouncer returns an announcer. It does not write before Run.
func NewAnnouncer(c AnnouncerConfig) *Announcer {
	return &Announcer{AnnouncerConfig: c, latest: make(chan announcement.Announcement, 1)}
}

// Expect makes pods wait until the node is announced, unless an earlier run announced it: other nodes could not route
// replies to the pods.
func (a *Announcer) Expect(uid string) {
	var told string
	if _, err := a.State.Get(statefile.BucketCluster, announcedKey, &told); err != nil {
		a.Log.Error("state of the announcement not read", "err", err)
	}
	if told != uid {
		a.Health.Require(health.Announced, "the other nodes are not told of this one yet")
	}
}

// announced ends the wait of pods, also for the next agent.
func (a *Announcer) announced(ctx context.Context, uid string) {
	if err := a.State.Save(ctx, []eventloop.Saved{
		{Bucket: statefile.BucketCluster, Key: announcedKey, Value: uid},
	}); err != nil {
		a.Log.Error("announcement not recorded, the next agent announces again", "err", err)
	}
	a.Health.Set(health.Announced, true, "")
}

// announceWait is how long pods wait until the node is announced to the other nodes.
const announceWait = 15 * time.Second

// Await limits how long pods wait after the agent can write the announcement: pods of one node reach each other without
// it.
func (a *Announcer) Await(ctx context.Context) error {
	if err := a.Health.Await(ctx, health.Started); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, announceWait)
	defer cancel()
	if a.Health.Requires(health.Announced) && a.Health.Await(bound, health.Announced) != nil && ctx.Err() == nil {
		a.Log.Error("node is not announced yet, serving pods without it: pods of other nodes may not reach them",
			"waited", announceWait)
		a.Health.Set(health.Announced, true, "")
	}
	return ctx.Err()
}

// announceAgain is the period in which the written announcement is checked.
const announceAgain = 5 * time.Minute

// Run writes the node's announcement, and retries.
func (a *Announcer) Run(ctx context.Context) error {
	writer := announcement.Writer{Client: a.Client, Node: a.Node, Log: a.Log.With("component", "k8s")}
	pause := retry.Pauses(100*time.Millisecond, 30*time.Second)
	var said, written announcement.Announcement
	var told string // UID of the announced Node
	timer := time.NewTimer(0)
	<-timer.C
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case said = <-a.latest:
		case <-timer.C:
			written = announcement.Announcement{} // it may have been changed in the API server
		}
		if reflect.DeepEqual(said, written) && a.Cluster.NodeID() != 0 {
			continue // most changes concern other nodes and need no request
		}
		timer.Stop()
		question, cancel := context.WithTimeout(ctx, oneQuestion)
		err := writer.Announce(question, said)
		cancel()
		if err != nil {
			next := pause.NextBackOff()
			a.Log.Warn("announcement not written, retrying", "err", err, "in", fmt.Sprint(next.Round(time.Millisecond)))
			timer.Reset(next)
			continue
		}
		pause.Reset()
		if told != said.UID {
			a.announced(ctx, said.UID)
			told = said.UID
		}
		written = said
		timer.Reset(announceAgain)
	}
}
