package podmanager

import (
	"errors"
	"strings"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// protocols that are served: this one, the one before, and the next, whose plugin is to work with this agent too.
const (
	oldestProtocol = max(weftv1.Protocol-1, 1)
	newestProtocol = weftv1.Protocol + 1
)

// admit refuses a caller that speaks another contract, and all callers while the agent is not ready.
func (m *Manager) admit(caller *weftv1.Caller) error {
	if p := caller.GetProtocol(); p < oldestProtocol || p > newestProtocol {
		return pod.Errorf(pod.CodeVersionMismatch,
			"plugin %s speaks protocol %d, this agent speaks %d: install the plugin of the agent's release",
			orUnknown(caller.GetVersion()), p, weftv1.Protocol)
	}
	if err := m.config.Ready(); err != nil {
		return &notReadyError{err}
	}
	return nil
}

// admitNew refuses new pods also while an operator holds them up.
func (m *Manager) admitNew(caller *weftv1.Caller) error {
	if err := m.admit(caller); err != nil {
		return err
	}
	if reason, paused := m.config.Paused(); paused {
		return pod.Errorf(pod.CodeTryAgain, "new pods are paused: %s", reason)
	}
	return nil
}

func orUnknown(version string) string {
	if version == "" {
		return "of unknown version"
	}
	return version
}

// keyOf reads the key of a request. Its parts become parts of names, so what could
// not have passed the plugin is refused here too.
func keyOf(a *weftv1.Attachment) (pod.Key, error) {
	key := pod.Key{Network: a.GetNetwork(), ContainerID: a.GetContainerId(), IfName: a.GetIfName()}
	if err := key.Validate(); err != nil {
		return pod.Key{}, err
	}
	if len(key.IfName) > 15 || len(key.Network) > 256 || len(key.ContainerID) > 256 ||
		strings.ContainsFunc(key.Network+key.ContainerID+key.IfName, illegal) {
		return pod.Key{}, pod.Errorf(pod.CodeInvalidEnvironment, "attachment %.300q %w", key.String(), errIllegalName)
	}
	return key, nil
}

// errIllegalName says that no attachment has the key: an ADD of it has always been refused.
var errIllegalName = errors.New("has a part that is no legal name")

// newKeyOf reads the key of an ADD. The names that it refuses beside those of keyOf may be those of older attachments.
func newKeyOf(a *weftv1.Attachment) (pod.Key, error) {
	key, err := keyOf(a)
	if err == nil && (pod.IsReservedLinkName(key.IfName) || strings.Contains(key.IfName, "%")) {
		return pod.Key{}, pod.Errorf(pod.CodeInvalidEnvironment, "CNI_IFNAME %q cannot be the name of a pod's interface", key.IfName)
	}
	return key, err
}

func illegal(r rune) bool { return r <= ' ' || r == '/' || r == ':' || r > '~' }

func idOf(p *weftv1.Pod) pod.ID {
	return pod.ID{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()}
}
