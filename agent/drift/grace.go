package drift

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// podGrace is the time in which a program in a pod may finish its changes of a link before the agent repairs the link.
// A program that takes a link over deletes addresses and sets the link down before it renames the link or gives it to a
// bridge.
const podGrace = 3 * time.Second

// unfinished returns found without the objects on links that a program in a pod may still be changing. They are checked
// again at the end of podGrace. opt is the scope of the check: a link in it that is as desired has no changes any
// more.
func (d *Monitor) unfinished(
	opt kvscheduler.ResyncOpt, found []kvscheduler.OpRecord, now time.Time,
) []kvscheduler.OpRecord {
	changed := d.changedInPods(found)
	for _, link := range opt.Refs {
		if !changed[link] {
			delete(d.since, link)
		}
	}
	early := make(map[kvscheduler.Ref]bool)
	for link := range changed {
		first, known := d.since[link]
		if !known {
			first = now
			d.since[link] = now
			time.AfterFunc(podGrace, func() { d.disturb(link) })
		}
		if early[link] = now.Sub(first) < podGrace; !early[link] {
			delete(d.since, link)
		}
	}
	view := d.Scheduler.View()
	maps.DeleteFunc(d.since, func(link kvscheduler.Ref, _ time.Time) bool {
		_, desired := view.Desired(link)
		return !desired
	})
	late := d.dependents(found, early)
	return slices.DeleteFunc(found, func(op kvscheduler.OpRecord) bool { return late[op.Ref] })
}

// dependents returns the objects on links, and the objects that would be repaired because of them.
func (d *Monitor) dependents(found []kvscheduler.OpRecord, links map[kvscheduler.Ref]bool) map[string]bool {
	all := make(map[string]bool)
	for _, op := range found {
		if link, isPods := d.linkInPod(op); isPods && links[link] {
			all[op.Ref] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, op := range found {
			cause, isDependent := strings.CutPrefix(op.Why, "dep:")
			if isDependent && all[cause] && !all[op.Ref] {
				all[op.Ref] = true
				grown = true
			}
		}
	}
	return all
}

// changedInPods returns the links in pods that exist but on which something differs.
func (d *Monitor) changedInPods(found []kvscheduler.OpRecord) map[kvscheduler.Ref]bool {
	made := make(map[string]bool)
	changed := make(map[kvscheduler.Ref]bool)
	for _, op := range found {
		made[op.Ref] = made[op.Ref] || op.Verb != kvscheduler.Update.String()
	}
	for _, op := range found {
		if link, isPods := d.linkInPod(op); isPods && !made[link.String()] {
			changed[link] = true
		}
	}
	return changed
}

// linkInPod returns the object of the link in a pod that an operation is about.
func (d *Monitor) linkInPod(op kvscheduler.OpRecord) (link kvscheduler.Ref, isPods bool) {
	ref, err := kvscheduler.ParseRef(op.Ref)
	if err != nil {
		return link, false
	}
	on := op.Ref
	namespace := ""
	switch v, _ := d.Scheduler.View().Desired(ref); v := v.(type) {
	case wire.TapPeer:
		namespace = v.Namespace
	case wire.Veth:
		namespace = v.Namespace
	case wire.LinuxAddress:
		on = v.On
		namespace = v.Namespace
	case wire.LinuxRoute:
		on = v.On
		namespace = v.Namespace
	case wire.LinuxNeighbour:
		on = v.On
		namespace = v.Namespace
	case wire.Hardening:
		on = v.On
		namespace = v.Namespace
	case wire.Sysctl:
		on = v.On
		namespace = v.Namespace
	case wire.Announcement:
		on = v.On
		namespace = v.Namespace
	}
	link, err = kvscheduler.ParseRef(on)
	return link, err == nil && namespace != ""
}
