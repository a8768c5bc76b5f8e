package agent

import (
	"fmt"
	"strings"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/k8s/announcement"
)

// How many rejections are shown at a time.
const (
	shownRejections = 8 // in a condition's message; of one node in a round of the log
	shownOfNode     = 2 // of one node in a condition's message
)

// showRejections tells which parts of other nodes' announcements are not used: by a condition and a metric at once, and by the
// log, once each, when some time has passed. An announcement may arrive before the Node or the IPBlock that grants it, and
// is accepted then.
func (a *Agent) showRejections(rejected []announcement.Rejection, now *followed) {
	a.rejections.Store(int64(len(rejected)))
	a.health.Set(health.Announcements, len(rejected) == 0, summary(rejected))
	if !now.ticked {
		return
	}
	logged := make(map[announcement.Rejection]bool)
	lines := make(map[string]int) // by node: the rejections of one node do not crowd out those of the others
	for _, r := range rejected {
		if !now.rejected[r] {
			if lines[r.Node] == shownRejections {
				continue // a later round logs it
			}
			lines[r.Node]++
			a.log.Warn("part of a node's announcement rejected", "node", r.Node, "network", r.Network, "part", r.What, "reason", r.Reason)
		}
		logged[r] = true
	}
	now.rejected = logged
}

// summary is some of the rejections in one line; "" if there is none.
func summary(rejected []announcement.Rejection) string {
	var lines []string
	of := make(map[string]int)
	for _, r := range rejected {
		if of[r.Node]++; of[r.Node] <= shownOfNode && len(lines) < shownRejections {
			lines = append(lines, r.String())
		}
	}
	if more := len(rejected) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}
