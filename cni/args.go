package cni

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
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

// validateEnvironment checks values that skel does not check.
func (c *call) validateEnvironment() error {
	if err := c.validateKey(); err != nil {
		return err
	}
	switch {
	case slices.Contains(reservedNames, c.IfName) || strings.Contains(c.IfName, "%"):
		return invalidIfName(c.IfName)
	case !filepath.IsAbs(c.Netns) || strings.ContainsRune(c.Netns, '\n'):
		return errorf(types.ErrInvalidEnvironmentVariables, "CNI_NETNS %.200q is not an absolute path", c.Netns)
	}
	return nil
}

// reservedNames cannot be names of a pod's link: each namespace has a link lo, and the others are directories of
// /proc/sys/net/ipv4/conf. The kernel replaces %d by a number.
var reservedNames = []string{"lo", "all", "default"}

func invalidIfName(name string) error {
	return errorf(types.ErrInvalidEnvironmentVariables, "CNI_IFNAME %q is not a valid interface name", name)
}

// validateKey rejects keys that no release of the agent accepts.
func (c *call) validateKey() error {
	switch {
	case len(c.ContainerID) > maxID:
		return errorf(types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID has more than %d characters", maxID)
	case len(c.network()) > maxID:
		return errorf(types.ErrInvalidNetworkConfig, "network configuration: name has more than %d characters",
			maxID-len(c.network())+len(c.conf.Name))
	case strings.ContainsFunc(c.IfName, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalidIfName(c.IfName)
	}
	return nil
}

// validateNetns rejects the plugin's own network namespace, which is the runtime's, and files that are not network
// namespaces. It opens the path with O_PATH, because an open of a FIFO blocks. The agent reports a path that does not
// exist.
func (c *call) validateNetns() error {
	if c.ownNetnsAllowed() {
		return nil
	}
	fd, err := unix.Open(c.Netns, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var system unix.Statfs_t
	var there, own unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &system), unix.Fstat(fd, &there),
		unix.Stat("/proc/thread-self/ns/net", &own)); err != nil {
		return errorf(types.ErrInvalidNetNS, "CNI_NETNS %s: %v", c.Netns, err)
	}
	switch {
	case system.Type != unix.NSFS_MAGIC:
		return errorf(types.ErrInvalidNetNS, "CNI_NETNS %s is not a network namespace", c.Netns)
	case there.Ino == own.Ino && there.Dev == own.Dev:
		return errorf(types.ErrInvalidNetNS, "CNI_NETNS %s is the network namespace of the runtime itself", c.Netns)
	}
	return nil
}

// cniArgs are the keys of the configuration's args that Weft reads.
type cniArgs struct {
	CNI struct {
		IPs []string `json:"ips"`
		MAC string   `json:"mac"`
	} `json:"cni"`
}

// requestedAddresses returns the requested IP addresses and MAC. runtimeConfig takes precedence over args, and args
// over CNI_ARGS.
func (c *call) requestedAddresses(env *envArgs) (ips []string, mac string, err error) {
	var args cniArgs
	if json.Unmarshal(c.conf.Args, &args) != nil {
		args = cniArgs{} // invalid args are ignored
	}
	// weft-ipam gets the capabilities of its caller
	if err := c.conf.RuntimeConfig.validateCapabilities(); err != nil && !c.role.ipam {
		return nil, "", err
	}
	ips = firstList(c.conf.RuntimeConfig.IPs, args.CNI.IPs, splitList(string(env.IP)))
	for _, ip := range ips {
		if !isAddress(ip) {
			return nil, "", errorf(types.ErrInvalidNetworkConfig,
				"%s: requested address %.60q is invalid: use an IPv4 or IPv6 address, with or without a prefix length",
				c.name(env.pod()), ip)
		}
	}
	mac = cmp.Or(c.conf.RuntimeConfig.MAC, args.CNI.MAC, string(env.MAC))
	if _, err := netaddr.ParseMAC(mac); mac != "" && err != nil {
		return nil, "", errorf(types.ErrInvalidNetworkConfig,
			"%s: requested MAC %.60q is invalid: use six octets as 02:00:00:00:00:01", c.name(env.pod()), mac)
	}
	return ips, mac, nil
}

func isAddress(text string) bool {
	_, addr := netip.ParseAddr(text)
	_, prefix := netip.ParsePrefix(text)
	return addr == nil || prefix == nil
}

func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func firstList(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return l
		}
	}
	return nil
}
