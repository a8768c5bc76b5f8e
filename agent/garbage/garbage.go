// Package garbage collects attachments without a sandbox that got no DEL.
package garbage

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
	"github.com/weftnet/weft/pod"
)

// PollPeriod is the time between two polls of the sandboxes. A poll costs one system call for each.
const PollPeriod = 20 * time.Second

// Times for which all sources must say that a deleted pod has no sandbox, before its attachment is deleted although the
// network namespace is there. A DEL may still come: kubelet reports a pod as deleted before the runtime has stopped its
// sandbox.
const (
	runtimeGrace = time.Minute      // a sandbox that the runtime does not have gets no DEL
	kubeletGrace = 10 * time.Minute // kubelet may have given the pod up while its sandbox stops
)

// Collector collects attachments without a sandbox that got no DEL, because their runtime was killed. A wrong
// decision takes the network from a running pod, and an agent that cannot see the directory of the namespaces finds
// none of them. So an attachment without a network namespace is collected only if the namespace is missing in two
// polls, and
//
//   - the API server says that the pod is deleted, or the container runtime does not have the sandbox, or
//   - the directory of the namespace shows other namespaces, and at least half of the attachments still have theirs.
//     For a single missing namespace the directory is enough.
//
// All other attachments are kept, and the condition "sandboxes" says so. A DEL or GC of the runtime still removes them.
//
// An attachment with an existing network namespace is collected only if the API server says that the pod is deleted,
// and for some time the container runtime does not have the sandbox or, if there is no container runtime to ask,
// kubelet does not list the pod.
type Collector struct {
	Delete    func(ctx context.Context, at *pod.Attachment, reason string) error
	IsDeleted func(ctx context.Context, id pod.ID) (bool, error) // asks the API server; nil: there is no cluster
	// asks kubelet whether it has a pod; nil: it cannot be asked
	IsListed func(ctx context.Context, id pod.ID) (bool, error)
	// asks the container runtime for its sandboxes; nil, as its map: there is no runtime
	Sandboxes func(ctx context.Context) (map[string]bool, error)
	now       func() time.Time
	health    *health.Conditions
	log       *slog.Logger

	mu      sync.Mutex
	missing map[pod.Key]bool // namespaces, in the last poll
	// of attachments with a namespace: since when all sources say that the sandbox is gone
	since map[pod.Key]time.Time
}

// New returns a collector that deletes attachments by remove. Without a container runtime it has no sandboxes to
// compare with.
func New(
	h *health.Conditions, log *slog.Logger, remove func(ctx context.Context, at *pod.Attachment, reason string) error,
) *Collector {
	h.Advise(health.Sandboxes)
	return &Collector{
		Delete: remove, now: time.Now, health: h, log: log,
		Sandboxes: func(context.Context) (map[string]bool, error) { return nil, nil },
	}
}

// Finding is an attachment that may have lost its sandbox.
type Finding struct {
	At        *pod.Attachment
	isMissing bool   // the network namespace
	Reason    string // why the sandbox may be gone
	Lacks     string // evidence without which the attachment is kept; "": it may be deleted
}

// Poll looks for the sandboxes of all attachments, and collects those that it may.
func (v *Collector) Poll(ctx context.Context, all []pod.Attachment) {
	var kept []Finding
	found := v.Look(ctx, all)
	v.remember(found)
	for _, f := range found {
		if f.Lacks != "" {
			if f.isMissing && f.Lacks != lacksPoll {
				kept = append(kept, f)
			}
			continue
		}
		if err := v.Delete(ctx, f.At, f.Reason); err != nil {
			v.log.Warn("attachment of a vanished sandbox not deleted", "pod", f.At.Pod.String(),
				"container", f.At.Key.ContainerID, "err", err)
		}
	}
	v.report(kept, len(all))
}

// remember makes this poll the last one.
func (v *Collector) remember(found []Finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.missing = make(map[pod.Key]bool, len(found))
	for _, f := range found {
		if f.isMissing {
			v.missing[f.At.Key] = true
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

// Look finds the attachments that may have lost their sandboxes.
func (v *Collector) Look(ctx context.Context, all []pod.Attachment) (found []Finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	q := &questions{ctx: ctx, Collector: v, all: all, apiServer: v.IsDeleted}
	missing := make(map[pod.Key]bool)
	for i := range all {
		if IsGone(all[i].Netns) {
			missing[all[i].Key] = true
		}
	}
	most := len(missing) > 1 && 2*len(missing) > len(all)
	since := make(map[pod.Key]time.Time)
	for i := range all {
		switch at := &all[i]; {
		case missing[at.Key]:
			found = append(found, Finding{
				At:        at,
				isMissing: true,
				Reason:    "network namespace is gone",
				Lacks:     v.doubt(q, at, most),
			})
		case v.missing != nil &&
			q.isDeleted(at.Pod): // the first poll is part of the start of the agent, and could not collect it
			found = append(found, Finding{At: at, Reason: "pod is deleted", Lacks: v.wait(q, at, since)})
		}
	}
	v.since = since
	return found
}

// doubt returns the evidence that lacks for a missing network namespace; most says that more than half of all are
// missing.
func (v *Collector) doubt(q *questions, at *pod.Attachment, most bool) (lacks string) {
	if !v.missing[at.Key] { // it may be back at the next poll
		return lacksPoll
	}
	if (most || !isDirectoryVisible(at.Netns.Path)) && !q.isDeleted(at.Pod) && !q.isUnknownToRuntime(at) {
		return lacksSight
	}
	return ""
}

// wait returns the evidence that lacks of the end of the sandbox of a deleted pod. The time of those with evidence goes
// into since.
func (v *Collector) wait(q *questions, at *pod.Attachment, since map[pod.Key]time.Time) (lacks string) {
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
		return fmt.Sprintf("%s of %s without a sandbox, in which a DEL may come", (grace - passed).Round(time.Second),
			grace)
	}
	return ""
}

// report sets the condition, and logs it when it begins.
func (v *Collector) report(kept []Finding, all int) {
	if len(kept) == 0 {
		v.health.Set(health.Sandboxes, true, "")
		return
	}
	at := kept[0].At
	message := fmt.Sprintf("%d of %d attachments have lost their network namespaces (%s at %s); they are kept, because the agent may not see the "+
		"directory of the namespaces; a DEL or GC of the runtime, or weftctl gc --force, removes them", len(kept), all,
		at.Name(), at.Netns.Path)
	if v.health.Holds(health.Sandboxes) {
		v.log.Warn("attachments without network namespaces are kept", "reason", message)
	}
	v.health.Set(health.Sandboxes, false, message)
}

// questions are the requests of one look. A source that does not answer is not asked again in this look: each question
// may take seconds.
type questions struct {
	ctx context.Context
	*Collector
	all []pod.Attachment

	apiServer func(ctx context.Context, id pod.ID) (bool, error)
	kubelet   error // why it is not asked again

	asked   bool
	runtime map[string]bool // sandboxes; nil: the runtime is not known to run this agent's pods
	failed  error           // the runtime's
}

// isDeleted reports whether the API server says that a pod is deleted.
func (q *questions) isDeleted(id pod.ID) bool {
	if q.apiServer == nil || id.IsZero() {
		return false
	}
	deleted, err := q.apiServer(q.ctx, id)
	if err != nil {
		q.log.Warn("pod not read from the API server", "pod", id.String(), "err", err)
		q.apiServer = nil
	}
	return deleted
}

// askRuntime asks the container runtime. A runtime without the sandbox of any attachment may not be the runtime of the
// pods.
func (q *questions) askRuntime() {
	if q.asked {
		return
	}
	q.asked = true
	sandboxes, err := q.Sandboxes(q.ctx)
	if err != nil {
		q.log.Warn("sandboxes not read from the container runtime", "err", err)
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
	case q.IsListed == nil:
		return lacksSource, 0
	case q.kubelet != nil:
		return q.kubelet.Error(), 0
	}
	listed, err := q.IsListed(q.ctx, at.Pod)
	switch {
	case err != nil:
		q.log.Warn("pods not read from kubelet", "pod", at.Pod.String(), "err", err)
		q.kubelet = err
		return err.Error(), 0
	case listed:
		return lacksKubelet, 0
	}
	return "", kubeletGrace
}

// IsGone reports whether a path no longer leads to the network namespace that it led to. A path that cannot be
// inspected, because too many files are open for example, is not gone.
func IsGone(n pod.Netns) bool {
	inode, device, err := linux.InspectNamespace(n.Path)
	if err != nil {
		return errors.Is(err, linux.ErrGone) || errors.Is(err, linux.ErrHost)
	}
	return inode != n.Inode || device != n.Device
}

// isDirectoryVisible reports whether the agent sees namespaces where the path of a missing one leads: a namespace that
// is missing there is gone. Without a mount of /run/netns, or without propagation of mounts, the directory shows none.
// The directories of processes in /proc end with their processes.
func isDirectoryVisible(path string) bool {
	return strings.HasPrefix(path, "/proc/") || linux.HasNamespaces(filepath.Dir(path))
}

// runtimeSockets are where container runtimes have their CRI sockets.
var runtimeSockets = []string{
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock",
}

// runtimeTimeout is for one question to a container runtime, which takes milliseconds.
const runtimeTimeout = 5 * time.Second

// ContainerRuntime is the node's container runtime, asked by CRI. It is asked for its sandboxes only.
type ContainerRuntime struct {
	Socket string // a path, or as in the configuration
}

// Sandboxes returns the IDs of all sandboxes, running or not; nil: the agent has no socket of a container runtime.
func (r ContainerRuntime) Sandboxes(ctx context.Context) (map[string]bool, error) {
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

// find returns the path of the socket; "": there is no socket.
func (r ContainerRuntime) find() string {
	switch r.Socket {
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
	return r.Socket
}
