package policies

import (
	"maps"
	"slices"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// attachments are the attachments of this node by their pods.
type attachments map[policy.ID]map[pod.Key]*pod.Attachment

// add adds an attachment or replaces it. It returns the copy that it keeps.
func (l attachments) add(id policy.ID, a *pod.Attachment) *pod.Attachment {
	if l[id] == nil {
		l[id] = make(map[pod.Key]*pod.Attachment)
	}
	own := *a
	own.Interfaces = slices.Clone(a.Interfaces)
	l[id][a.Key] = &own
	return &own
}

// remove removes an attachment. It reports whether its pod has none any more.
func (l attachments) remove(id policy.ID, key pod.Key) bool {
	delete(l[id], key)
	if len(l[id]) > 0 {
		return false
	}
	delete(l, id)
	return true
}

// newestOf lists the attachments of the newest pod of a name, by age. The sandbox of its predecessor may still be
// there.
func (l attachments) newestOf(id policy.ID) []*pod.Attachment {
	all := slices.Collect(maps.Values(l[id]))
	slices.SortFunc(all, func(a, b *pod.Attachment) int { return a.Created.Compare(b.Created) })
	if len(all) == 0 {
		return nil
	}
	uid := all[len(all)-1].Pod.UID
	return slices.DeleteFunc(all, func(a *pod.Attachment) bool { return a.Pod.UID != uid })
}
