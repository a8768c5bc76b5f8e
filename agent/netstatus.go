package agent

import (
	"github.com/weftnet/weft/k8s"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// assembleNetworkStatus prepares to tell pods what they got, unless that is Multus' business, or nobody wants it.
func (a *Agent) assembleNetworkStatus() (err error) {
	if a.config.Kubernetes.Multus || !a.config.Kubernetes.NetworkStatus {
		return nil
	}
	if a.annotator, err = a.cluster.NewAnnotator(k8s.AnnotationNetworkStatus, a.networkStatus); err != nil {
		return err
	}
	a.observers = append(a.observers, func(o podmanager.Outcome) {
		switch o.Happening {
		case podmanager.Added:
			a.annotator.Tell(o.Pod)
		case podmanager.Removed:
			if text, ours := k8s.PodStatus([]pod.Attachment{*o.Attachment}); ours {
				a.annotator.Withdraw(o.Pod, text)
			}
		}
	})
	return nil
}

// networkStatus is the annotation of a pod; false: it is not ours.
func (a *Agent) networkStatus(id pod.ID) (text string, ours bool) {
	return k8s.PodStatus(a.pods.OfPod(id))
}
