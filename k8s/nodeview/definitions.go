package nodeview

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// definitions finds NetworkAttachmentDefinitions.
type definitions struct {
	config  *Config
	watched *informer.Informer[*npwg.NetworkAttachmentDefinition]
}

// Definition returns the NetworkAttachmentDefinition that a pod selects: from the watch, until that is complete from an
// earlier run, else by one request to the API server. Its errors have code 7 (unreadable), 102, or 11: the runtime
// retries with the next sandbox.
func (ds *definitions) Definition(ctx context.Context, s pod.Selection) (Definition, error) {
	if d, known := ds.watched.One(s.Definition()); known {
		return converted(d).readable(s)
	}
	if ds.config.Known != nil && !ds.watched.Synced() {
		if d, known := ds.config.Known.Definitions[s.Definition()]; known {
			return d.readable(s)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ds.config.Question)
	defer cancel()
	d, err := ds.config.Client.Definitions(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Definition{}, pod.Errorf(pod.CodeUnknownNetwork, "there is no NetworkAttachmentDefinition %s",
			s.Definition())
	case err != nil:
		return Definition{}, pod.Errorf(pod.CodeTryAgain,
			"NetworkAttachmentDefinition %s: no answer of the API server within %v, and no watch has shown it: %w",
			s.Definition(), ds.config.Question, client.OneLine(err))
	}
	return converted(d).readable(s)
}

func (ds *definitions) addTo(v *View) {
	for _, d := range ds.watched.All() {
		if v.Definitions == nil {
			v.Definitions = make(map[string]Definition)
		}
		v.Definitions[d.Namespace+"/"+d.Name] = converted(d)
	}
}

// converted returns what is read of a NetworkAttachmentDefinition.
func converted(d *npwg.NetworkAttachmentDefinition) Definition {
	return Definition{Config: d.Spec.Config, Unreadable: d.Unreadable}
}

// readable returns a definition, or an error with code 7 if its object could not be decoded.
func (d Definition) readable(s pod.Selection) (Definition, error) {
	if d.Unreadable != "" {
		return Definition{}, pod.Errorf(pod.CodeInvalidConfig, "NetworkAttachmentDefinition %s: %.300q", s.Definition(),
			d.Unreadable)
	}
	return d, nil
}

// lightenDefinition keeps of a NetworkAttachmentDefinition what is read. Tenants write any number of them, with up to
// 1.5 MiB each, and each agent has all of the cluster.
func lightenDefinition(d *npwg.NetworkAttachmentDefinition) *npwg.NetworkAttachmentDefinition {
	light := &npwg.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       d.Namespace,
			Name:            d.Name,
			UID:             d.UID,
			ResourceVersion: d.ResourceVersion,
		},
		Spec: d.Spec, Unreadable: d.Unreadable,
	}
	if size := len(d.Spec.Config); size > pod.MaxDefinition {
		light.Spec.Config = ""
		light.Unreadable = fmt.Sprintf("config: %d bytes, at most %d are read", size, pod.MaxDefinition)
	}
	if len(light.Unreadable) > maxReason {
		light.Unreadable = strings.ToValidUTF8(light.Unreadable[:maxReason], "")
	}
	return light
}

// maxReason is the maximum length in bytes of the reason why a definition is unreadable, which may quote the
// definition.
const maxReason = 300
