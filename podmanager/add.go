package podmanager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/proto/deletequeue"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Add connects a sandbox, or returns the same reply again for a complete attachment. A request that is rejected before
// the queue becomes an event too and is in the event log.
func (m *Manager) Add(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	key, err := newKeyOf(req.GetAttachment())
	if err != nil {
		m.config.Log.Warn("pod refused", "container", req.GetAttachment().GetContainerId(), "err", err)
		m.refused(req, err)
		return &weftv1.AddReply{Error: replyError(err, nil)}, nil
	}
	asked := &pod.AddPod{Key: key, ID: idOf(req.GetPod()), Mode: req.GetMode()}
	c := newCall(ctx, asked)
	defer c.cancel(nil)
	m.cancelOlder(asked, errReplaced)
	defer m.underWay(key, c)()
	asked.Cancelled = c.err
	asked.Began = time.Now()
	asked.Refused = m.prepareUntil(ctx, c, req, asked)
	ev, rec, err := m.connect(ctx, c, asked)
	if err == nil {
		err = withCode(m.assign(ctx, ev), pod.CodeTryAgain, "%s", ev)
	}
	if err != nil {
		m.config.Log.Warn("pod not connected", "pod", ev.ID.String(), "container", ev.Key.ContainerID,
			"queued", rec != nil && !rec.Started.IsZero(), "err", err)
		m.failed(ev, err, rec)
		m.config.Cluster.Forget(ev.ID)
		return &weftv1.AddReply{Error: replyError(err, rec)}, nil
	}
	m.config.Log.Info("pod connected", "pod", ev.ID.String(), "container", ev.Key.ContainerID,
		"netns", ev.Netns.Path, "annotations", ev.AnnotationsFrom, "repeated", ev.Repeated, "took", rec.Took)
	return replyOf(ev.Attachment), nil
}

// refills bounds the number of Refill calls of one ADD, which may need addresses of several networks.
const refills = 20

// connect handles the event, and repeats it after a successful Refill. An attempt that lacks addresses makes no record:
// the event loop goes on with other events while the ADD waits. The record of a failed ADD describes its last attempt,
// or has the reason why the wait failed.
func (m *Manager) connect(ctx context.Context, c *call, asked *pod.AddPod) (*pod.AddPod, *eventloop.Record, error) {
	for n := 0; ; n++ {
		attempt := *asked
		if n < refills {
			attempt.Awaits = m.config.Refiller.Refillable
		}
		rec, err := m.config.Loop.Do(ctx, &attempt)
		if err == nil || rec != nil || !attempt.Defers(err) {
			return &attempt, rec, err
		}
		asked.Began = time.Time{} // what follows begins when it is queued
		if refused := m.await(ctx, c, asked, err); refused != nil {
			attempt.Preparation = pod.Preparation{Refused: refused}
			rec, err := m.config.Loop.Do(ctx, &attempt)
			return &attempt, rec, err
		}
	}
}

// prepareUntil prepares the event of a call until the call is cancelled.
func (m *Manager) prepareUntil(ctx context.Context, c *call, req *weftv1.AddRequest, ev *pod.AddPod) error {
	ctx, end := c.bound(ctx)
	defer end()
	err := m.prepare(ctx, req, ev)
	if cause := c.err(); err != nil && cause != nil {
		return pod.Errorf(pod.CodeTryAgain, "%s: cancelled while it was prepared: %w", ev, cause)
	}
	return err
}

// prepare collects and checks all inputs of the event before it is queued.
func (m *Manager) prepare(ctx context.Context, req *weftv1.AddRequest, ev *pod.AddPod) (err error) {
	if req.GetHasAnnotations() { // also for the record of a pod that is refused below
		ev.Annotations = req.GetAnnotations()
	}
	ev.Connected = m.isConnected(ev.Key)
	if err := m.admitUnless(ev.Connected, req.GetCaller()); err != nil {
		return err
	}
	if err := modeIsServed(ev); err != nil {
		return err
	}
	if ev.Requested, err = requested(req); err != nil {
		return err
	}
	if ev.Netns, err = m.inspect(ctx, ev, req.GetNetns()); err != nil {
		return err
	}
	if ev.Connected {
		return m.void(ctx, ev.Key)
	}
	if ev.Annotations, ev.AnnotationsFrom, err = m.annotations(ctx, ev.ID, req); err != nil {
		return err
	}
	ev.FixedInterfaces = m.areFixed(ev)
	if ev.Selected, err = m.selected(ctx, ev); err != nil {
		return err
	}
	if err := m.claimed(ctx, ev); err != nil {
		return err
	}
	if err := m.ipamClaims(ctx, ev); err != nil {
		return err
	}
	if err := m.grants(ctx, ev); err != nil {
		return err
	}
	m.config.Cluster.Learn(ctx, ev.ID)
	if err := m.refuseForeignLinks(ctx, ev); err != nil {
		return err
	}
	if err := m.void(ctx, ev.Key); err != nil {
		return err
	}
	return m.dropOlder(ctx, ev)
}

// void removes a queued DEL, because the same attachment is added again.
func (m *Manager) void(ctx context.Context, key pod.Key) error {
	return m.config.Queue.Remove(ctx, deletequeue.Key(key))
}

// dropOlder deletes attachments of the pod's older sandboxes if their network namespaces are gone: a pod has one
// sandbox at a time, and the new one may get the devices of the old one.
func (m *Manager) dropOlder(ctx context.Context, ev *pod.AddPod) error {
	for _, older := range m.Attachments() {
		if ev.ID.IsZero() || older.Pod.Namespace != ev.ID.Namespace || older.Pod.Name != ev.ID.Name ||
			older.Key.ContainerID == ev.Key.ContainerID || !m.config.Node.IsGone(older.Netns) {
			continue
		}
		gone := &pod.DeletePod{
			Key:    older.Key,
			ID:     older.Pod,
			Reason: "the pod has a newer sandbox, and the network namespace is gone",
		}
		if _, err := m.config.Loop.Do(ctx, gone); err != nil {
			return fmt.Errorf("delete its older attachment: %w", err)
		}
	}
	return nil
}

// modes are the supported modes. A plugin of a later release may know more.
var modes = []string{pod.ModePrimary, pod.ModeChained, pod.ModeDelegate, pod.ModeIPAM}

func modeIsServed(ev *pod.AddPod) error {
	if ev.Mode == "" || slices.Contains(modes, ev.Mode) {
		return nil
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: unknown mode %q: use one of %s, or a newer agent",
		ev, ev.Mode, strings.Join(modes, ", "))
}

func (m *Manager) inspect(ctx context.Context, ev *pod.AddPod, path string) (pod.Netns, error) {
	clean, err := cleanNetns(path)
	if err != nil {
		return pod.Netns{}, pod.Errorf(pod.CodeInvalidEnvironment, "%s: CNI_NETNS %.200q %w", ev, path, err)
	}
	netns, err := m.config.Node.Inspect(ctx, clean)
	return netns, withCode(err, pod.CodeInvalidNetns, "%s: network namespace", ev)
}

// maxPath is the length at which the kernel refuses a path (PATH_MAX).
const maxPath = 4096

// cleanNetns returns the path of a network namespace as objects have it: without empty elements and single dots. It
// rejects "..", which may lead elsewhere behind a link.
func cleanNetns(path string) (string, error) {
	switch {
	case !filepath.IsAbs(path):
		return "", errors.New("is not an absolute path")
	case len(path) >= maxPath:
		return "", fmt.Errorf("has %d bytes, at most %d are possible", len(path), maxPath-1)
	case strings.ContainsFunc(path, unicode.IsControl):
		return "", errors.New("has control characters")
	case slices.Contains(strings.Split(path, "/"), ".."):
		return "", errors.New(`has the element ".."`)
	}
	return filepath.Clean(path), nil
}

// withCode adds a code and a prefix to an error without a code.
func withCode(err error, code uint, format string, subject any) error {
	if _, coded := errors.AsType[*pod.Error](err); err == nil || coded {
		return err
	}
	return pod.Errorf(code, format+": %w", subject, err)
}

// maxAnnotations bounds the annotations of a request in bytes, names and values together. The API server permits 256
// KiB for a pod, and kubelet adds a few. With Multus they may come from a NetworkAttachmentDefinition instead, which
// has room for more.
const maxAnnotations = (256 + 16) << 10

// annotations returns the annotations of the request, or else those that the cluster has.
func (m *Manager) annotations(
	ctx context.Context, id pod.ID, req *weftv1.AddRequest,
) (map[string]string, string, error) {
	switch size := sizeOf(req.GetAnnotations()); {
	case size > maxAnnotations:
		return nil, "runtime", pod.Errorf(pod.CodeInvalidConfig,
			"pod %s: the runtime passes annotations of %d bytes, at most %d are possible; shorten them", id, size,
			maxAnnotations)
	case req.GetHasAnnotations():
		return req.GetAnnotations(), "runtime", nil
	case id.IsZero():
		return nil, "none", nil
	}
	annotations, from, err := m.config.Cluster.Annotations(ctx, id)
	return annotations, from, withCode(err, pod.CodeTryAgain, "pod %s: get its annotations", id)
}

// areFixed reports whether the runtime passes other requests for interfaces than the API server has shown. Then the API
// server does not say what the pod requests, and a difference later is no edit.
func (m *Manager) areFixed(ev *pod.AddPod) bool {
	shown, isShown := m.config.Watch.Shown(ev.ID)
	return isShown && (&pod.Attachment{Annotations: ev.Annotations}).IsEdited(shown)
}

func sizeOf(annotations map[string]string) (bytes int) {
	for name, value := range annotations {
		bytes += len(name) + len(value)
	}
	return bytes
}

// selected returns the interfaces that a pod selects. In other modes than primary the calling plugin does that.
func (m *Manager) selected(ctx context.Context, ev *pod.AddPod) ([]pod.InterfaceRequest, error) {
	if ev.ID.IsZero() || ev.Mode != "" && ev.Mode != pod.ModePrimary {
		return nil, nil
	}
	return m.config.Cluster.Selected(ctx, ev)
}

// Address adds the awaited addresses to an attachment. If it has them, Address returns the same reply again. A failure
// leaves the attachment unchanged.
func (m *Manager) Address(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return &weftv1.AddReply{Error: replyError(err, nil)}, nil
	}
	ev := &pod.AddressPod{Key: key, ID: m.idOf(key, req.GetPod())}
	ev.Began = time.Now()
	ev.Refused = m.prepareAddress(req, ev)
	c := newCall(ctx, &pod.AddPod{Key: ev.Key, ID: ev.ID})
	defer c.cancel(nil)
	defer m.underWay(ev.Key, c)()
	rec, err := m.config.Loop.Do(ctx, ev)
	if err != nil {
		m.config.Log.Warn("pod got no addresses", "pod", ev.ID.String(), "container", ev.Key.ContainerID, "err", err)
		m.failed(&pod.AddPod{Key: ev.Key, ID: ev.ID}, err, rec)
		return &weftv1.AddReply{Error: replyError(err, rec)}, nil
	}
	m.config.Log.Info("pod got its addresses", "pod", ev.ID.String(), "container", ev.Key.ContainerID, "took", rec.Took)
	return replyOf(ev.Attachment), nil
}

// prepareAddress completes the event. It works also while new pods are paused, because the ADD began before.
func (m *Manager) prepareAddress(req *weftv1.AddRequest, ev *pod.AddressPod) error {
	if err := m.admit(req.GetCaller()); err != nil {
		return err
	}
	if err := delegate(&ev.Requested, req); err != nil {
		return err
	}
	if len(ev.Requested.Delegated) == 0 {
		return pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin returned no address", ev)
	}
	return nil
}

// Find returns the reply of Add for a complete attachment that has its addresses. It rejects requests that Add would
// reject, so that the caller does not prepare an ADD in vain.
func (m *Manager) Find(ctx context.Context, req *weftv1.FindRequest) (*weftv1.FindReply, error) {
	found, err := m.findReply(ctx, req)
	if err != nil {
		return &weftv1.FindReply{Error: replyError(err, nil)}, nil
	}
	return &weftv1.FindReply{Found: found}, nil
}

func (m *Manager) findReply(ctx context.Context, req *weftv1.FindRequest) (*weftv1.AddReply, error) {
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return nil, err
	}
	if err := m.admitUnless(m.isConnected(key), req.GetCaller()); err != nil {
		return nil, err
	}
	r := m.find(key)
	if r == nil || r.complete && r.attachment.AwaitsAddresses {
		return nil, nil
	}
	ev := &pod.AddPod{Key: key, ID: r.attachment.Pod}
	if ev.Netns, err = m.inspect(ctx, ev, req.GetNetns()); err != nil {
		return nil, err
	}
	if err := repeat(ev, r); err != nil {
		return nil, err
	}
	return replyOf(ev.Attachment), nil
}

// refuseForeignLinks rejects the names of existing foreign interfaces, as the CNI specification requires.
func (m *Manager) refuseForeignLinks(ctx context.Context, ev *pod.AddPod) error {
	for _, name := range linksOf(ev) {
		if err := m.refuseForeignLink(ctx, ev, name); err != nil {
			return err
		}
	}
	return nil
}

// refuseForeignLink rejects the name of an existing foreign interface.
func (m *Manager) refuseForeignLink(ctx context.Context, ev *pod.AddPod, name string) error {
	alias, exists, err := m.config.Node.LinkAlias(ctx, ev.Netns, name)
	switch {
	case err != nil:
		return pod.Errorf(pod.CodeInvalidNetns, "%s: look for interface %s in the sandbox: %w", ev, name, err)
	case !exists || isOurs(alias, ev.Key):
		return nil
	case name != ev.Key.IfName &&
		strings.HasPrefix(alias, aliasPrefix): // another attachment of the sandbox may have made it
		return nil
	case name == ev.Key.IfName && ev.Mode == pod.ModeDelegate && strings.HasPrefix(alias, aliasPrefix):
		return pod.Errorf(pod.CodeInvalidEnvironment,
			"%s: interface %s exists already in the sandbox and belongs to another Weft attachment: if Multus calls Weft, set kubernetes.multus to true in the agent's configuration, so that the agent leaves annotation %s to Multus",
			ev, name, pod.AnnotationNetworks)
	case name == ev.Key.IfName:
		return pod.Errorf(pod.CodeInvalidEnvironment,
			"%s: interface %s exists already in the sandbox and is not Weft's: delete it or choose another CNI_IFNAME",
			ev, name)
	}
	return pod.Errorf(pod.CodeInvalidAnnotation,
		"%s: interface %s exists already in the sandbox and is not Weft's: choose another name in annotation %s",
		ev, name, askedBy(ev, name))
}

// askedBy returns the annotation that requests an extra interface.
func askedBy(ev *pod.AddPod, name string) string {
	for _, r := range ev.Selected {
		if r.Name == name {
			return r.Annotation()
		}
	}
	return pod.AnnotationCustom
}

// linksOf returns the names of the links to create. It ignores invalid annotations: the handlers that create links
// report them.
func linksOf(ev *pod.AddPod) []string {
	var names []string
	if ev.HasMain() && ev.Requested.Type != pod.TypeMemif {
		names = append(names, ev.Key.IfName)
	}
	if ev.Mode == pod.ModeIPAM {
		return names
	}
	extra, err := ev.Extra()
	if err != nil {
		return names
	}
	for _, c := range extra {
		if c.Type != pod.TypeMemif {
			names = append(names, c.Name)
		}
	}
	return names
}

// aliasPrefix begins the alias of each Weft link. The key follows, or a hash if the key exceeds the kernel's 255 bytes.
const (
	aliasPrefix = "weft:"
	maxAlias    = 255
)

// isOurs reports whether alias marks a link of the attachment. Extra interfaces may have a suffix after the key.
func isOurs(alias string, key pod.Key) bool {
	whole := aliasPrefix + key.String()
	return alias == whole || strings.HasPrefix(alias, whole+"/") ||
		len(whole) > maxAlias && strings.HasPrefix(alias, aliasPrefix)
}

// claimed adds the memifs of the pod's claims, which are prepared before the sandbox exists.
func (m *Manager) claimed(ctx context.Context, ev *pod.AddPod) error {
	ev.Claimed = nil
	ev.Grants = nil
	if ev.ID.IsZero() || ev.Mode == pod.ModeIPAM {
		return nil
	}
	grants, err := m.config.Devices.Claimed(ctx, ev.ID)
	if err != nil {
		return withCode(err, pod.CodeTryAgain, "%s: get the devices of its claims", ev)
	}
	return addClaimed(ev, m.withGroups(ev.ID, grants))
}

// withGroups completes grants by the groups of the pod's containers, if the cluster knows them.
func (m *Manager) withGroups(id pod.ID, grants []pod.Grant) []pod.Grant {
	for i := range grants {
		if grants[i].GID == pod.UnknownGroup {
			grants[i].GID = m.config.Cluster.Group(id, grants[i].Container)
		}
	}
	return grants
}

// addClaimed adds devices of claims to the interfaces of an ADD. Those for delegates become interfaces only if the ADD
// names them.
func addClaimed(ev *pod.AddPod, grants []pod.Grant) error {
	for _, g := range grants {
		r, err := g.Allocation.Claim.Parameters.Request()
		if err != nil {
			return pod.Errorf(pod.CodeInvalidConfig, "%s: claim %s: %w", ev, g.Allocation.Claim, err)
		}
		ev.Grants = append(ev.Grants, g)
		if g.Allocation.Claim.Parameters.Delegate {
			continue
		}
		r.Claim = g.Allocation.Claim.String()
		r.Allocation = g.Allocation.ID
		ev.Claimed = append(ev.Claimed, r)
	}
	return nil
}

// grants adds the devices of the pod's containers if it requests a memif that no claim has. It ignores invalid
// annotations: the handlers that create interfaces report them.
func (m *Manager) grants(ctx context.Context, ev *pod.AddPod) error {
	if ev.ID.IsZero() || ev.Mode == pod.ModeIPAM {
		return nil
	}
	extra, err := ev.Extra()
	needsDevice := func(r pod.InterfaceRequest) bool { return r.Type == pod.TypeMemif && r.Claim == "" }
	if err != nil || ev.Requested.Type != pod.TypeMemif && !slices.ContainsFunc(extra, needsDevice) {
		return nil //nolint:nilerr // see above
	}
	grants, err := m.config.Devices.Devices(ctx, ev.ID)
	ev.Grants = append(ev.Grants, m.withGroups(ev.ID, grants)...)
	return withCode(err, pod.CodeTryAgain, "%s: get its devices from kubelet", ev)
}
