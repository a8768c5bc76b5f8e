package podmanager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// inputs complete the request of an event before it is queued: they ask the other components, and check the answers.
type inputs struct {
	node    Node
	cluster Cluster
	watch   Watch
	devices Devices
}

func newInputs(c Config) *inputs {
	return &inputs{node: c.Node, cluster: c.Cluster, watch: c.Watch, devices: c.Devices}
}

func (in *inputs) inspect(ctx context.Context, request *pod.Request, path string) (pod.Netns, error) {
	clean, err := cleanNetns(path)
	if err != nil {
		return pod.Netns{}, pod.Errorf(pod.CodeInvalidEnvironment, "%s: CNI_NETNS %.200q %w", request, path, err)
	}
	netns, err := in.node.Inspect(ctx, clean)
	return netns, withCode(err, pod.CodeInvalidNetns, "%s: network namespace", request)
}

// maxPath is the length at which the kernel refuses a path (PATH_MAX).
const maxPath = 4096

// cleanNetns returns the path of a network namespace as objects have it: without empty elements and single dots. It
// rejects "..", which may lead elsewhere behind a link.
func cleanNetns(path string) (string, error) {
	switch {
	case !filepath.IsAbs(path):
		return "", errors.New("is not an absolute path")
	case len(path) >= maxPath:
		return "", fmt.Errorf("has %d bytes, at most %d are possible", len(path), maxPath-1)
	case strings.ContainsFunc(path, unicode.IsControl):
		return "", errors.New("has control characters")
	case slices.Contains(strings.Split(path, "/"), ".."):
		return "", errors.New(`has the element ".."`)
	}
	return filepath.Clean(path), nil
}

// withCode adds a code and a prefix to an error without a code.
func withCode(err error, code uint, format string, subject any) error {
	if _, coded := errors.AsType[*pod.Error](err); err == nil || coded {
		return err
	}
	return pod.Errorf(code, format+": %w", subject, err)
}

// maxAnnotations bounds the annotations of a request in bytes, names and values together. The API server permits 256
// KiB for a pod, and kubelet adds a few. With Multus they may come from a NetworkAttachmentDefinition instead, which
// has room for more.
const maxAnnotations = (256 + 16) << 10

// fromRuntime is the source of annotations that the request has.
const fromRuntime = "runtime"

// annotations returns the annotations of the request, or else those that the cluster has.
func (in *inputs) annotations(
	ctx context.Context, id pod.ID, req *weftv1.AddRequest,
) (map[string]string, string, error) {
	switch size := sizeOf(req.GetAnnotations()); {
	case size > maxAnnotations:
		return nil, fromRuntime, pod.Errorf(pod.CodeInvalidConfig,
			"pod %s: the runtime passes annotations of %d bytes, at most %d are possible; shorten them", id, size,
			maxAnnotations)
	case req.GetHasAnnotations():
		return req.GetAnnotations(), fromRuntime, nil
	case id.IsZero():
		return nil, "none", nil
	}
	annotations, from, err := in.cluster.Annotations(ctx, id)
	return annotations, from, withCode(err, pod.CodeTryAgain, "pod %s: get its annotations", id)
}

// areFixed reports whether the runtime passes other requests for interfaces than the API server has shown. Then
// the API server does not show the requests of the pod, and a difference later is no edit.
func (in *inputs) areFixed(request *pod.Request) bool {
	shown, isShown := in.watch.Shown(request.ID)
	return isShown && (&pod.Attachment{Annotations: request.Annotations}).IsEdited(shown)
}

func sizeOf(annotations map[string]string) (bytes int) {
	for name, value := range annotations {
		bytes += len(name) + len(value)
	}
	return bytes
}

// selected returns the interfaces that a pod selects. In other modes than primary the calling plugin does that.
func (in *inputs) selected(ctx context.Context, request *pod.Request) ([]pod.InterfaceRequest, error) {
	if request.ID.IsZero() || request.Mode != "" && request.Mode != pod.ModePrimary {
		return nil, nil
	}
	return in.cluster.Selected(ctx, request)
}

// complete adds the claim and the limits that the pod's selection has for an interface that Multus adds. The
// annotations of the request may come from a NetworkAttachmentDefinition (see maxAnnotations), so without a selection
// the cluster's decide.
func (in *inputs) complete(ctx context.Context, request *pod.Request) error {
	if request.ID.IsZero() || request.Mode != pod.ModeDelegate {
		return nil
	}
	annotations := request.Annotations
	if _, selects := annotations[pod.AnnotationNetworks]; !selects && request.AnnotationsFrom == fromRuntime {
		var err error
		if annotations, _, err = in.cluster.Annotations(ctx, request.ID); err != nil {
			return withCode(err, pod.CodeTryAgain, "pod %s: get its annotations", request.ID)
		}
	}
	element, err := pod.ElementOf(annotations, request.Key)
	if err != nil {
		return request.Failed(err)
	}
	request.Requested.Complete(element)
	return nil
}

// refuseForeignLinks rejects the names of existing foreign interfaces, as the CNI specification requires.
func (in *inputs) refuseForeignLinks(ctx context.Context, request *pod.Request) error {
	for _, name := range linksOf(request) {
		if err := in.refuseForeignLink(ctx, request, name); err != nil {
			return err
		}
	}
	return nil
}

// refuseForeignLink rejects the name of an existing foreign interface.
func (in *inputs) refuseForeignLink(ctx context.Context, request *pod.Request, name string) error {
	alias, exists, err := in.node.LinkAlias(ctx, request.Netns, name)
	switch {
	case err != nil:
		return pod.Errorf(pod.CodeInvalidNetns, "%s: look for interface %s in the sandbox: %w", request, name, err)
	case !exists || isOurs(alias, request.Key):
		return nil
	case name != request.Key.IfName &&
		strings.HasPrefix(alias, aliasPrefix): // another attachment of the sandbox may have made it
		return nil
	case name == request.Key.IfName && request.Mode == pod.ModeDelegate && strings.HasPrefix(alias, aliasPrefix):
		return pod.Errorf(pod.CodeInvalidEnvironment,
			"%s: interface %s exists already in the sandbox and belongs to another Weft attachment: if Multus calls Weft, set kubernetes.multus to true in the agent's configuration, so that the agent leaves annotation %s to Multus",
			request, name, pod.AnnotationNetworks)
	case name == request.Key.IfName:
		return pod.Errorf(pod.CodeInvalidEnvironment,
			"%s: interface %s exists already in the sandbox and is not Weft's: delete it or choose another CNI_IFNAME",
			request, name)
	}
	return pod.Errorf(pod.CodeInvalidAnnotation,
		"%s: interface %s exists already in the sandbox and is not Weft's: choose another name in annotation %s",
		request, name, askedBy(request, name))
}

// refuseLinksInTheWay rejects the name of a new interface that a foreign link of the pod has.
func (in *inputs) refuseLinksInTheWay(ctx context.Context, request *pod.Request, changes pod.Changes) error {
	for _, r := range changes.Made {
		if r.Type == pod.TypeMemif {
			continue
		}
		if err := in.refuseForeignLink(ctx, request, r.Name); err != nil {
			return err
		}
	}
	return nil
}

// askedBy returns the annotation that requests an extra interface.
func askedBy(request *pod.Request, name string) string {
	for _, r := range request.Selected {
		if r.Name == name {
			return r.Annotation()
		}
	}
	return pod.AnnotationCustom
}

// linksOf returns the names of the links to create. It ignores invalid annotations: the handlers that create links
// report them.
func linksOf(request *pod.Request) []string {
	var names []string
	if request.HasMain() && request.Requested.Type != pod.TypeMemif {
		names = append(names, request.Key.IfName)
	}
	if request.Mode == pod.ModeIPAM {
		return names
	}
	extra, err := request.Extra()
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

// aliasPrefix begins the alias of each Weft link. The key follows, or a hash if the key exceeds the kernel's 255 bytes.
const (
	aliasPrefix = "weft:"
	maxAlias    = 255
)

// isOurs reports whether alias marks a link of the attachment. Extra interfaces may have a suffix after the key.
func isOurs(alias string, key pod.Key) bool {
	whole := aliasPrefix + key.String()
	return alias == whole || strings.HasPrefix(alias, whole+"/") ||
		len(whole) > maxAlias && strings.HasPrefix(alias, aliasPrefix)
}

// claimed adds the memifs of the pod's claims, which are prepared before the sandbox exists.
func (in *inputs) claimed(ctx context.Context, request *pod.Request) error {
	request.Claimed = nil
	request.Grants = nil
	if request.ID.IsZero() || request.Mode == pod.ModeIPAM {
		return nil
	}
	grants, err := in.devices.Claimed(ctx, request.ID)
	if err != nil {
		return withCode(err, pod.CodeTryAgain, "%s: get the devices of its claims", request)
	}
	return addClaimed(request, in.withGroups(request.ID, grants))
}

// withGroups completes grants by the groups of the pod's containers, if the cluster knows them.
func (in *inputs) withGroups(id pod.ID, grants []pod.Grant) []pod.Grant {
	for i := range grants {
		if grants[i].GID == pod.UnknownGroup {
			grants[i].GID = in.cluster.Group(id, grants[i].Container)
		}
	}
	return grants
}

// addClaimed adds devices of claims to the interfaces of an ADD. Those for delegates become interfaces only if the ADD
// names them.
func addClaimed(request *pod.Request, grants []pod.Grant) error {
	for _, g := range grants {
		r, err := g.Allocation.Claim.Parameters.Request()
		if err != nil {
			return pod.Errorf(pod.CodeInvalidConfig, "%s: claim %s: %w", request, g.Allocation.Claim, err)
		}
		request.Grants = append(request.Grants, g)
		if g.Allocation.Claim.Parameters.Delegate {
			continue
		}
		r.Claim = g.Allocation.Claim.String()
		r.Allocation = g.Allocation.ID
		request.Claimed = append(request.Claimed, r)
	}
	return nil
}

// grants adds the devices of the pod's containers if it requests a memif that no claim has. It ignores invalid
// annotations: the handlers that create interfaces report them.
func (in *inputs) grants(ctx context.Context, request *pod.Request) error {
	if request.ID.IsZero() || request.Mode == pod.ModeIPAM {
		return nil
	}
	extra, err := request.Extra()
	needsDevice := func(r pod.InterfaceRequest) bool { return r.Type == pod.TypeMemif && r.Claim == "" }
	if err != nil || request.Requested.Type != pod.TypeMemif && !slices.ContainsFunc(extra, needsDevice) {
		return nil //nolint:nilerr // see above
	}
	grants, err := in.devices.Devices(ctx, request.ID)
	request.Grants = append(request.Grants, in.withGroups(request.ID, grants)...)
	return withCode(err, pod.CodeTryAgain, "%s: get its devices from kubelet", request)
}
