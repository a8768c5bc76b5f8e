package cni

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/proto/deletequeue"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// envArgs are the known keys of CNI_ARGS. types.LoadArgs matches the names of the fields.
//
//nolint:revive // underscores
type envArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE          types.UnmarshallableString
	K8S_POD_NAME               types.UnmarshallableString
	K8S_POD_UID                types.UnmarshallableString
	K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString
	IP                         types.UnmarshallableString
	MAC                        types.UnmarshallableString
}

// The syntax of Kubernetes' names (RFC 1123).
var (
	dnsLabel = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	})
	dnsSubdomain = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	})
)

const maxSubdomain = 253

// parseArgs parses CNI_ARGS. Without keys K8S_* the container is not of Kubernetes.
func parseArgs(text string) (*envArgs, error) {
	var args envArgs
	if err := types.LoadArgs(text, &args); err != nil {
		return nil, errorf(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: %s",
			withoutValues(strings.TrimPrefix(err.Error(), "ARGS: "), text))
	}
	namespace := string(args.K8S_POD_NAMESPACE)
	name := string(args.K8S_POD_NAME)
	uid := string(args.K8S_POD_UID)
	switch {
	case (namespace == "") != (name == ""):
		return nil, errorf(types.ErrInvalidEnvironmentVariables,
			"CNI_ARGS: K8S_POD_NAMESPACE and K8S_POD_NAME are required together")
	case namespace != "" && !dnsLabel().MatchString(namespace):
		return nil, errorf(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: invalid K8S_POD_NAMESPACE %.80q", namespace)
	case name != "" && (len(name) > maxSubdomain || !dnsSubdomain().MatchString(name)):
		return nil, errorf(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: invalid K8S_POD_NAME %.80q", name)
	case uid != "" && (len(uid) > maxSubdomain || !dnsSubdomain().MatchString(uid)):
		return nil, errorf(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: invalid K8S_POD_UID %.80q", uid)
	}
	return &args, nil
}

// withoutValues removes the values of args from an error that quotes them: values of unknown keys may be secret.
func withoutValues(message, args string) string {
	for pair := range strings.SplitSeq(args, ";") {
		key, _, _ := strings.Cut(pair, "=")
		message = strings.ReplaceAll(message, strconv.Quote(pair), strconv.Quote(key))
	}
	return message
}

func (a *envArgs) pod() *weftv1.Pod {
	return &weftv1.Pod{Namespace: string(a.K8S_POD_NAMESPACE), Name: string(a.K8S_POD_NAME), Uid: string(a.K8S_POD_UID)}
}

func errorf(code uint, format string, args ...any) *types.Error {
	return types.NewError(code, fmt.Sprintf(format, args...), "")
}

// maxID limits the container id and the network's name, which are parts of keys.
const maxID = 256

// attachmentKey identifies an attachment.
type attachmentKey struct {
	role
	name        string // of the network configuration
	containerID string
	ifName      string
}

func (k attachmentKey) network() string { return k.role.network(k.name) }

func (k attachmentKey) message() *weftv1.Attachment {
	return &weftv1.Attachment{Network: k.network(), ContainerId: k.containerID, IfName: k.ifName}
}

// queued returns the key of a queued DEL.
func (k attachmentKey) queued() deletequeue.Key {
	return deletequeue.Key{Network: k.network(), ContainerID: k.containerID, IfName: k.ifName}
}

// describe returns the attachment's name in errors.
func (k attachmentKey) describe(p *weftv1.Pod) string {
	if p.GetName() == "" {
		return fmt.Sprintf("container %.12s %s", k.containerID, k.ifName)
	}
	return fmt.Sprintf("pod %s/%s %s", p.GetNamespace(), p.GetName(), k.ifName)
}

// validate rejects keys that no release of the agent accepts.
func (k attachmentKey) validate() error {
	switch {
	case len(k.containerID) > maxID:
		return errorf(types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID has more than %d characters", maxID)
	case len(k.network()) > maxID:
		return errorf(types.ErrInvalidNetworkConfig, "network configuration: name has more than %d characters",
			maxID-len(k.network())+len(k.name))
	case strings.ContainsFunc(k.ifName, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalidIfName(k.ifName)
	}
	return nil
}

// validateIfName rejects names that cannot be a pod's link.
func (k attachmentKey) validateIfName() error {
	if slices.Contains(reservedNames, k.ifName) || strings.Contains(k.ifName, "%") {
		return invalidIfName(k.ifName)
	}
	return nil
}

// reservedNames cannot be names of a pod's link: each namespace has a link lo, and the others are directories of
// /proc/sys/net/ipv4/conf. The kernel replaces %d by a number.
var reservedNames = []string{"lo", "all", "default"}

func invalidIfName(name string) error {
	return errorf(types.ErrInvalidEnvironmentVariables, "CNI_IFNAME %q is not a valid interface name", name)
}

// netns is the network namespace of the sandbox.
type netns struct {
	path       string
	ownAllowed bool // it may be the runtime's own
}

func (n netns) validatePath() error {
	if !filepath.IsAbs(n.path) || strings.ContainsRune(n.path, '\n') {
		return errorf(types.ErrInvalidEnvironmentVariables, "CNI_NETNS %.200q is not an absolute path", n.path)
	}
	return nil
}

// validateFile rejects the plugin's own network namespace, which is the runtime's, and files that are not network
// namespaces. It opens the path with O_PATH, because an open of a FIFO blocks. The agent reports a path that does not
// exist.
func (n netns) validateFile() error {
	if n.ownAllowed {
		return nil
	}
	fd, err := unix.Open(n.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var system unix.Statfs_t
	var there, own unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &system), unix.Fstat(fd, &there),
		unix.Stat("/proc/thread-self/ns/net", &own)); err != nil {
		return errorf(types.ErrInvalidNetNS, "CNI_NETNS %s: %v", n.path, err)
	}
	switch {
	case system.Type != unix.NSFS_MAGIC:
		return errorf(types.ErrInvalidNetNS, "CNI_NETNS %s is not a network namespace", n.path)
	case there.Ino == own.Ino && there.Dev == own.Dev:
		return errorf(types.ErrInvalidNetNS, "CNI_NETNS %s is the network namespace of the runtime itself", n.path)
	}
	return nil
}
