package podmanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Add wires a sandbox, or repeats the reply that a complete attachment had.
func (m *Manager) Add(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	ev, err := m.addEvent(ctx, req)
	if err != nil {
		m.config.Log.Warn("pod refused", "container", req.GetAttachment().GetContainerId(), "err", err)
		return &weftv1.AddReply{Error: replyError(err, nil)}, nil
	}
	defer m.underWay(ev.Key)()
	rec, err := m.config.Loop.Do(ctx, ev)
	if err != nil {
		m.config.Log.Warn("pod not connected", "pod", ev.ID.String(), "container", ev.Key.ContainerID, "err", err)
		return &weftv1.AddReply{Error: replyError(err, rec)}, nil
	}
	m.config.Log.Info("pod connected", "pod", ev.ID.String(), "container", ev.Key.ContainerID,
		"netns", ev.Netns.Path, "repeated", ev.Repeated, "took", rec.Took)
	return replyOf(ev.Attachment), nil
}

// addEvent asks everything that is to be known before the event is queued.
func (m *Manager) addEvent(ctx context.Context, req *weftv1.AddRequest) (*pod.AddPod, error) {
	if err := m.admitNew(req.GetCaller()); err != nil {
		return nil, err
	}
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return nil, err
	}
	ev := &pod.AddPod{Key: key, ID: idOf(req.GetPod())}
	if err := modeIsServed(req.GetMode()); err != nil {
		return nil, fmt.Errorf("%s: %w", ev, err)
	}
	if ev.Requested, err = requested(req); err != nil {
		return nil, err
	}
	if ev.Netns, err = m.inspect(ctx, ev, req.GetNetns()); err != nil {
		return nil, err
	}
	if err := m.refuseForeignLink(ctx, ev); err != nil {
		return nil, err
	}
	if ev.Annotations, ev.AnnotationsFrom, err = m.annotations(ctx, ev.ID, req); err != nil {
		return nil, err
	}
	if err := m.config.Void(ctx, key); err != nil {
		return nil, fmt.Errorf("%s: %w", ev, err)
	}
	return ev, nil
}

func modeIsServed(mode string) error {
	switch mode {
	case "", "primary", "delegate":
		return nil
	}
	return pod.Errorf(pod.CodeInvalidConfig, "mode %q is not served by this agent: use primary or delegate", mode)
}

// requested reads what the runtime asks for the main interface.
func requested(req *weftv1.AddRequest) (pod.Requested, error) {
	r := pod.Requested{MAC: req.GetMac(), DeviceID: req.GetDeviceId()}
	families := make(map[bool]bool)
	for _, text := range req.GetIps() {
		addr, err := parseAddress(text)
		if err != nil {
			return r, pod.Errorf(pod.CodeInvalidConfig, "requested address %q: %w", text, err)
		}
		if families[addr.Is4()] {
			return r, pod.Errorf(pod.CodeInvalidConfig, "requested address %q: one of this family is requested already", text)
		}
		families[addr.Is4()] = true
		r.Addresses = append(r.Addresses, addr)
	}
	if r.MAC == "" {
		return r, nil
	}
	mac, err := net.ParseMAC(r.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return r, pod.Errorf(pod.CodeInvalidConfig, "requested MAC %q: not a unicast Ethernet address", r.MAC)
	}
	r.MAC = mac.String()
	return r, nil
}

// parseAddress takes an address with or without a prefix length: the interface has the whole length in any case.
func parseAddress(text string) (netip.Addr, error) {
	if strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		return prefix.Addr().Unmap(), err
	}
	addr, err := netip.ParseAddr(text)
	if err == nil && addr.Zone() != "" {
		err = errors.New("it has a zone")
	}
	return addr.Unmap(), err
}

func (m *Manager) inspect(ctx context.Context, ev *pod.AddPod, path string) (pod.Netns, error) {
	if !filepath.IsAbs(path) {
		return pod.Netns{}, pod.Errorf(pod.CodeInvalidEnvironment, "%s: CNI_NETNS %q is not an absolute path", ev, path)
	}
	netns, err := m.config.Inspect(ctx, path)
	if err == nil {
		return netns, nil
	}
	if _, ok := errors.AsType[*pod.Error](err); ok {
		return netns, err
	}
	return netns, pod.Errorf(pod.CodeInvalidNetns, "%s: network namespace: %w", ev, err)
}

// refuseForeignLink refuses an interface name that is taken by somebody else, as the specification asks.
func (m *Manager) refuseForeignLink(ctx context.Context, ev *pod.AddPod) error {
	if m.config.LinkExists == nil {
		return nil
	}
	alias, exists, err := m.config.LinkExists(ctx, ev.Netns, ev.Key.IfName)
	if err != nil {
		return pod.Errorf(pod.CodeInvalidNetns, "%s: look for interface %s in the sandbox: %w", ev, ev.Key.IfName, err)
	}
	if !exists || isOurs(alias, ev.Key) {
		return nil
	}
	return pod.Errorf(pod.CodeInvalidEnvironment,
		"%s: interface %s exists already in the sandbox and is not Weft's: delete it or choose another CNI_IFNAME",
		ev, ev.Key.IfName)
}

// aliasPrefix begins the alias of every link of Weft; the key follows, or, where the
// kernel has no room for that (255 bytes), a hash of it.
const (
	aliasPrefix = "weft:"
	maxAlias    = 255
)

func isOurs(alias string, key pod.Key) bool {
	whole := aliasPrefix + key.String()
	return alias == whole || len(whole) > maxAlias && strings.HasPrefix(alias, aliasPrefix)
}

// annotations takes those of the runtime if it gave any, else asks.
func (m *Manager) annotations(ctx context.Context, id pod.ID, req *weftv1.AddRequest) (map[string]string, string, error) {
	switch {
	case req.GetHasAnnotations():
		return req.GetAnnotations(), "runtime", nil
	case id.IsZero() || m.config.Annotations == nil:
		return nil, "none", nil
	}
	annotations, from, err := m.config.Annotations(ctx, id)
	if err == nil {
		return annotations, from, nil
	}
	if _, ok := errors.AsType[*pod.Error](err); ok {
		return nil, "", err
	}
	return nil, "", pod.Errorf(pod.CodeTryAgain, "pod %s: ask for its annotations: %w", id, err)
}

// underWay marks an ADD of key until the returned function is called.
func (m *Manager) underWay(key pod.Key) (ended func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adds[key]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.adds[key]--; m.adds[key] == 0 {
			delete(m.adds, key)
		}
	}
}
