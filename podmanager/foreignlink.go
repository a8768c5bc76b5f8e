package podmanager

import (
	"context"
	"strings"

	"github.com/weftnet/weft/pod"
)

// refuseForeignLinks refuses interface names that are taken by somebody else, as the specification asks.
func (m *Manager) refuseForeignLinks(ctx context.Context, ev *pod.AddPod) error {
	if m.config.LinkExists == nil {
		return nil
	}
	for _, name := range linksOf(ev) {
		alias, exists, err := m.config.LinkExists(ctx, ev.Netns, name)
		switch {
		case err != nil:
			return pod.Errorf(pod.CodeInvalidNetns, "%s: look for interface %s in the sandbox: %w", ev, name, err)
		case !exists || isOurs(alias, ev.Key):
		case name != ev.Key.IfName && strings.HasPrefix(alias, aliasPrefix): // another attachment of the sandbox may have made it
		case name == ev.Key.IfName && ev.Mode == pod.ModeDelegate && strings.HasPrefix(alias, aliasPrefix):
			return pod.Errorf(pod.CodeInvalidEnvironment,
				"%s: interface %s exists already in the sandbox and is of another attachment of Weft's: where Multus calls Weft, kubernetes.multus is to be true in the agent's configuration, so that the agent leaves annotation %s to it",
				ev, name, pod.AnnotationNetworks)
		case name == ev.Key.IfName:
			return pod.Errorf(pod.CodeInvalidEnvironment,
				"%s: interface %s exists already in the sandbox and is not Weft's: delete it or choose another CNI_IFNAME", ev, name)
		default:
			return pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: interface %s exists already in the sandbox and is not Weft's: choose another name in annotation %s",
				ev, name, askedBy(ev, name))
		}
	}
	return nil
}

// askedBy is the annotation that asks for an extra interface.
func askedBy(ev *pod.AddPod, name string) string {
	for _, r := range ev.Selected {
		if r.Name == name {
			return r.By()
		}
	}
	return pod.AnnotationCustom
}

// linksOf names the links that are to be made. Annotations that cannot be read are refused by who makes the links.
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

// aliasPrefix begins the alias of every link of Weft; the key follows, or, where the
// kernel has no room for that (255 bytes), a hash of it.
const (
	aliasPrefix = "weft:"
	maxAlias    = 255
)

// isOurs knows a link of the attachment; those of extra interfaces may say after the key which one they are.
func isOurs(alias string, key pod.Key) bool {
	whole := aliasPrefix + key.String()
	return alias == whole || strings.HasPrefix(alias, whole+"/") || len(whole) > maxAlias && strings.HasPrefix(alias, aliasPrefix)
}
