package k8s

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/pod"
)

// Definition gives the NetworkAttachmentDefinition that a pod selects: from the watch, from an earlier run while the API
// server has not shown all, or, where neither knows it, by one question to the API server. Its errors are of code 102, or
// 11: the runtime asks again with the next sandbox.
func (c *Cluster) Definition(ctx context.Context, s pod.Selection) (Definition, error) {
	if d, known := c.definitions.one(s.Definition()); known {
		return Definition{Config: d.Spec.Config}, nil
	}
	if c.config.Known != nil && !c.definitions.synced() {
		if d, known := c.config.Known.Definitions[s.Definition()]; known {
			return d, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Question)
	defer cancel()
	d, err := c.config.Client.Definitions(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Definition{}, pod.Errorf(pod.CodeUnknownNetwork, "there is no NetworkAttachmentDefinition %s", s.Definition())
	case err != nil:
		return Definition{}, pod.Errorf(pod.CodeTryAgain, "NetworkAttachmentDefinition %s: no answer of the API server within %v, and no watch has shown it: %w",
			s.Definition(), c.config.Question, oneLine{err})
	}
	return Definition{Config: d.Spec.Config}, nil
}
