package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/proto/deletequeue"
)

// vanishedPoll is the time between two polls of the sandboxes. A poll costs one system call for each.
const vanishedPoll = 20 * time.Second

// Times for which all sources must say that a deleted pod has no sandbox, before its attachment is deleted although the network namespace
// is there. A DEL may still come: kubelet reports a pod as deleted before the runtime has stopped its sandbox.
const (
	runtimeGrace = time.Minute      // a sandbox that the runtime does not have gets no DEL
	kubeletGrace = 10 * time.Minute // kubelet may have given the pod up while its sandbox stops
)

// vanished collects attachments whose sandboxes are gone although no DEL came: their runtime was killed. A wrong decision takes the network
// from a running pod, and an agent that cannot see the directory of the namespaces finds none of them. So an attachment without a network
// namespace is collected only if the namespace is missing in two polls, and
//
//   - the API server says that the pod is deleted, or the container runtime does not have the sandbox, or
//   - the directory of the namespace shows other namespaces, and at least half of the attachments still have theirs. For a
//     single missing namespace the directory is enough.
//
// All others are kept, and the condition "sandboxes" says so. A DEL or GC of the runtime still removes them.
//
// An attachment whose network namespace is there is collected only if the API server says that the pod is deleted, and for some time the
// container runtime does not have the sandbox or, if there is no container runtime to ask, kubelet does not list the pod.
type vanished struct {
	delete    func(ctx context.Context, at *pod.Attachment, reason string) error
	isDeleted func(ctx context.Context, id pod.ID) (bool, error) // asks the API server; nil: there is no cluster
	isListed  func(ctx context.Context, id pod.ID) (bool, error) // asks kubelet whether it has a pod; nil: it cannot be asked
	sandboxes func(ctx context.Context) (map[string]bool, error) // asks the container runtime for its sandboxes; nil, as its map: there is none
	now       func() time.Time
	health    *health.Conditions
	log       *slog.Logger

	mu      sync.Mutex
	missing map[pod.Key]bool      // namespaces, in the last poll
	since   map[pod.Key]time.Time // of attachments with a namespace: since when all sources say that the sandbox is gone
}

func newVanished(h *health.Conditions, log *slog.Logger, remove func(ctx context.Context, at *pod.Attachment, reason string) error) *vanished {
	h.Advise(health.Sandboxes)
	return &vanished{
		delete: remove, now: time.Now, health: h, log: log,
		sandboxes: func(context.Context) (map[string]bool, error) { return nil, nil },
	}
}

// finding is an attachment whose sandbox may be gone.
type finding struct {
	at        *pod.Attachment
	isMissing bool   // the network namespace
	reason    string // why the sandbox may be gone
	lacks     string // evidence without which the attachment is kept; "": it may be deleted
}

// poll looks for the sandboxes of all attachments, and collects those that it may.
func (v *vanished) poll(ctx context.Context, all []pod.Attachment) {
	var kept []finding
	found := v.look(ctx, all)
	v.remember(found)
	for _, f := range found {
		if f.lacks != "" {
			if f.isMissing && f.lacks != lacksPoll {
				kept = append(kept, f)
			}
			continue
		}
		if err := v.delete(ctx, f.at, f.reason); err != nil {
			v.log.Warn("attachment of a sandbox that is gone not deleted", "pod", f.at.Pod.String(), "container", f.at.Key.ContainerID, "err", err)
		}
	}
	v.report(kept, len(all))
}

// remember makes this poll the last one.
func (v *vanished) remember(found []finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.missing = make(map[pod.Key]bool, len(found))
	for _, f := range found {
		if f.isMissing {
			v.missing[f.at.Key] = true
		}
	}
}

// Evidence that may lack.
const (
	lacksPoll    = "the network namespace must be missing in two polls"
	lacksSight   = "the agent may not see the directory of the namespaces"
	lacksRuntime = "the container runtime still has the sandbox"
	lacksKubelet = "kubelet still lists the pod"
	lacksSource  = "neither the container runtime nor kubelet can be asked for the sandbox"
)

// look finds the attachments whose sandboxes may be gone.
func (v *vanished) look(ctx context.Context, all []pod.Attachment) (found []finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	q := &questions{ctx: ctx, vanished: v, all: all, apiServer: v.isDeleted}
	missing := make(map[pod.Key]bool)
	for i := range all {
		if isGone(all[i].Netns) {
			missing[all[i].Key] = true
		}
	}
	most := len(missing) > 1 && 2*len(missing) > len(all)
	since := make(map[pod.Key]time.Time)
	for i := range all {
		switch at := &all[i]; {
		case missing[at.Key]:
			found = append(found, finding{at: at, isMissing: true, reason: "network namespace is gone", lacks: v.doubt(q, at, most)})
		case v.missing != nil && q.isDeleted(at.Pod): // the first poll is part of the start of the agent, and could not collect it
			found = append(found, finding{at: at, reason: "pod is deleted", lacks: v.wait(q, at, since)})
		}
	}
	v.since = since
	return found
}

// doubt returns the evidence that lacks for a missing network namespace; most says that more than half of all are missing.
func (v *vanished) doubt(q *questions, at *pod.Attachment, most bool) (lacks string) {
	if !v.missing[at.Key] { // it may be back at the next poll
		return lacksPoll
	}
	if (most || !isDirectoryVisible(at.Netns.Path)) && !q.isDeleted(at.Pod) && !q.isUnknownToRuntime(at) {
		return lacksSight
	}
	return ""
}

// wait returns the evidence that lacks of the end of the sandbox of a deleted pod. The time of those with evidence goes into since.
func (v *vanished) wait(q *questions, at *pod.Attachment, since map[pod.Key]time.Time) (lacks string) {
	lacks, grace := q.secondSource(at)
	if lacks != "" {
		return lacks
	}
	began, known := v.since[at.Key]
	if !known {
		began = v.now()
	}
	since[at.Key] = began
	if passed := v.now().Sub(began); passed < grace {
		return fmt.Sprintf("%s of %s without a sandbox, in which a DEL may come", (grace - passed).Round(time.Second), grace)
	}
	return ""
}

// report sets the condition, and logs it when it begins.
func (v *vanished) report(kept []finding, all int) {
	if len(kept) == 0 {
		v.health.Set(health.Sandboxes, true, "")
		return
	}
	at := kept[0].at
	message := fmt.Sprintf("%d of %d attachments have lost their network namespaces (%s at %s); they are kept, because the agent may not see the "+
		"directory of the namespaces; a DEL or GC of the runtime, or weftctl gc --force, removes them", len(kept), all, at.Name(), at.Netns.Path)
	if v.health.Holds(health.Sandboxes) {
		v.log.Warn("attachments without network namespaces are kept", "reason", message)
	}
	v.health.Set(health.Sandboxes, false, message)
}

// questions are those of one look. A source that does not answer is not asked again in this look: each question may take seconds.
type questions struct {
	ctx context.Context
	*vanished
	all []pod.Attachment

	apiServer func(ctx context.Context, id pod.ID) (bool, error)
	kubelet   error // why it is not asked again

	asked   bool
	runtime map[string]bool // sandboxes; nil: the runtime is not known to have those of this agent
	failed  error           // the runtime's
}

// isDeleted reports whether the API server says that a pod is deleted.
func (q *questions) isDeleted(id pod.ID) bool {
	if q.apiServer == nil || id.IsZero() {
		return false
	}
	deleted, err := q.apiServer(q.ctx, id)
	if err != nil {
		q.log.Warn("API server not asked whether pods are deleted", "pod", id.String(), "err", err)
		q.apiServer = nil
	}
	return deleted
}

// askRuntime asks the container runtime. One that has the sandbox of no attachment may be another one than that of the pods.
func (q *questions) askRuntime() {
	if q.asked {
		return
	}
	q.asked = true
	sandboxes, err := q.sandboxes(q.ctx)
	if err != nil {
		q.log.Warn("container runtime not asked for sandboxes", "err", err)
		q.failed = err
		return
	}
	for i := range q.all {
		if sandboxes[q.all[i].Key.ContainerID] {
			q.runtime = sandboxes
			return
		}
	}
}

// isUnknownToRuntime reports whether the container runtime says that it does not have a sandbox.
func (q *questions) isUnknownToRuntime(at *pod.Attachment) bool {
	q.askRuntime()
	return q.runtime != nil && !q.runtime[at.Key.ContainerID]
}

// secondSource asks the container runtime, else kubelet, for the sandbox of a deleted pod.
func (q *questions) secondSource(at *pod.Attachment) (lacks string, grace time.Duration) {
	q.askRuntime()
	switch {
	case q.failed != nil:
		return q.failed.Error(), 0
	case q.runtime[at.Key.ContainerID]:
		return lacksRuntime, 0
	case q.runtime != nil:
		return "", runtimeGrace
	case q.isListed == nil:
		return lacksSource, 0
	case q.kubelet != nil:
		return q.kubelet.Error(), 0
	}
	listed, err := q.isListed(q.ctx, at.Pod)
	switch {
	case err != nil:
		q.log.Warn("kubelet not asked for pods", "pod", at.Pod.String(), "err", err)
		q.kubelet = err
		return err.Error(), 0
	case listed:
		return lacksKubelet, 0
	}
	return "", kubeletGrace
}

// isGone reports whether a path no longer leads to the network namespace that it led to. A path that cannot be inspected, because too
// many files are open for example, is not gone.
func isGone(n pod.Netns) bool {
	inode, device, err := linux.Inspect(n.Path)
	if err != nil {
		return errors.Is(err, linux.ErrGone) || errors.Is(err, linux.ErrHost)
	}
	return inode != n.Inode || device != n.Device
}

// isDirectoryVisible reports whether the agent sees namespaces where the path of a missing one leads: a namespace that is missing there
// is gone. Without a mount of /run/netns, or without propagation of mounts, the directory shows none. The directories of processes in
// /proc end with their processes.
func isDirectoryVisible(path string) bool {
	return strings.HasPrefix(path, "/proc/") || linux.HasNamespaces(filepath.Dir(path))
}

// runtimeSockets are where container runtimes have their CRI sockets.
var runtimeSockets = []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"}

// runtimeTimeout is for one question to a container runtime, which takes milliseconds.
const runtimeTimeout = 5 * time.Second

// containerRuntime is the node's container runtime, asked by CRI. It is asked for nothing but its sandboxes.
type containerRuntime struct {
	socket string // a path, or as in the configuration
}

// sandboxes returns the IDs of all sandboxes, running or not; nil: the agent has no socket of a container runtime.
func (r containerRuntime) sandboxes(ctx context.Context) (map[string]bool, error) {
	socket := r.find()
	if socket == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("container runtime at %s: %w", socket, err)
	}
	defer conn.Close()
	reply, err := cri.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("container runtime at %s: list sandboxes: %w", socket, err)
	}
	all := make(map[string]bool, len(reply.GetItems()))
	for _, s := range reply.GetItems() {
		all[s.GetId()] = true
	}
	return all, nil
}

// find returns the path of the socket; "": there is none.
func (r containerRuntime) find() string {
	switch r.socket {
	case config.NoRuntime, "":
		return ""
	case config.Auto:
		for _, path := range runtimeSockets {
			if info, err := os.Stat(path); err == nil && info.Mode().Type() == os.ModeSocket {
				return path
			}
		}
		return ""
	}
	return r.socket
}

// upkeep works off deletions that were queued while the agent was away, and collects sandboxes that vanished without a DEL.
func (a *Agent) upkeep(ctx context.Context) error {
	queued := a.queue.Watch(ctx)
	polls := time.NewTicker(min(a.config.Audit, vanishedPoll))
	defer polls.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-queued:
			a.drain(ctx)
		case <-polls.C:
			a.vanished.poll(ctx, a.pods.Attachments())
		}
	}
}

// drain works off the delete queue. The plugin writes to it under a shared lock, so each entry is whole.
func (a *Agent) drain(ctx context.Context) {
	unlock, err := a.queue.Lock(ctx)
	if err != nil {
		a.log.Warn("delete queue not drained", "err", err)
		return
	}
	defer unlock()
	a.drainLocked(ctx)
}

func (a *Agent) drainLocked(ctx context.Context) {
	done, failed, err := a.queue.Drain(ctx, func(e deletequeue.Entry) error {
		_, err := a.loop.Do(ctx, &pod.DeletePod{
			Key:    pod.Key{Network: e.Network, ContainerID: e.ContainerID, IfName: e.IfName},
			Reason: "queued DEL",
		})
		if errors.Is(err, eventloop.ErrStopped) || errors.Is(err, eventloop.ErrNotReady) || ctx.Err() != nil {
			return fmt.Errorf("%w: %w", deletequeue.ErrNotNow, err)
		}
		return err
	})
	switch {
	case err != nil:
		a.log.Error("delete queue not drained", "err", err)
	case done+failed > 0:
		a.log.Info("delete queue drained", "done", done, "failed", failed)
	}
}

// deleteVanished deletes an attachment whose sandbox is gone.
func (a *Agent) deleteVanished(ctx context.Context, at *pod.Attachment, reason string) error {
	_, err := a.loop.Do(ctx, &pod.DeletePod{Key: at.Key, ID: at.Pod, Reason: reason})
	return err
}
