package ipnet

import (
	"cmp"

	"github.com/weftnet/weft/pod"
)

// option is one that a pod asks for, with the most that the node allows.
type option struct {
	name        string
	asked, most int
}

// allowed refuses the first of the options of which more is asked for than the node allows.
func allowed(ev *pod.AddPod, w wish, options ...option) error {
	for _, o := range options {
		if o.asked > o.most {
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: annotation %s: interface %s: %s %d is more than this node allows, which is %d",
				ev, pod.AnnotationOptions, w.name, o.name, o.asked, o.most)
		}
	}
	return nil
}

// chooseQueues decides how many queues the pod's end of a tap or veth has. Those of a tap are pairs.
func (n *Network) chooseQueues(ev *pod.AddPod, w *wish) error {
	rx, tx, most := w.rxQueues, w.txQueues, n.config.MaxPodQueues
	if err := allowed(ev, *w, option{"rxQueues", rx, most}, option{"txQueues", tx, most}); err != nil {
		return err
	}
	if w.kind == pod.TypeTap {
		rx, tx = cmp.Or(rx, tx), cmp.Or(tx, rx)
	}
	w.rxQueues, w.txQueues = several(cmp.Or(rx, n.config.PodQueues)), several(cmp.Or(tx, n.config.PodQueues))
	return nil
}

// several is a number of queues as it is recorded: one is what every link has.
func several(queues int) int {
	if queues == 1 {
		return 0
	}
	return queues
}
