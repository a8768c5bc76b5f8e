package memif

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Variables of a container, and files next to the socket.
const (
	SocketVariable  = "MEMIF_SOCKET"
	SecretVariable  = "MEMIF_SECRET"
	SecretFile      = "secret"
	DescriptionFile = "interfaces.json"
)

// descriptionVersion is the supported version of interfaces.json.
const descriptionVersion = 1

// Environment describes the memifs of a container.
type Environment struct {
	Socket     string
	Secret     Secret
	Interfaces []Description
}

// Description is one memif of a container, as interfaces.json has it. The program chooses numbers that are 0.
type Description struct {
	Name    string
	ID      uint32
	Network string
	// Role is the program's role: "client" or "server".
	Role string
	// Socket is the socket of a direct memif, which connects the program with a program in another pod: the path that
	// the client connects to, or "@" and the name of the abstract socket that the server listens on. "":
	// Environment.Socket.
	Socket string
	Mode   Mode
	MAC    net.HardwareAddr
	// MTU is the longest IP packet, in bytes, without an Ethernet header.
	MTU       int
	Addresses []netip.Prefix
	// Gateways are the gateways of Addresses, in the same order. GatewayMAC is their MAC if it is known without ARP.
	Gateways   []netip.Addr
	GatewayMAC net.HardwareAddr
	// Routes are the destinations behind this interface, beyond its own link.
	Routes               []Route
	RingSize, BufferSize int
	RxQueues, TxQueues   int
}

// Route is a route to a destination.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway"` // invalid for an on-link route
}

// ReadEnvironment reads MEMIF_SOCKET and the secret, from MEMIF_SECRET or else from the file secret beside the socket,
// and interfaces.json beside the socket.
func ReadEnvironment() (*Environment, error) {
	e := &Environment{Socket: os.Getenv(SocketVariable)}
	if e.Socket == "" {
		return nil, errors.New(SocketVariable + " is not set: this container has no memif")
	}
	directory := filepath.Dir(e.Socket)
	var err error
	if e.Secret, err = readSecret(filepath.Join(directory, SecretFile)); err != nil {
		return nil, err
	}
	path := filepath.Join(directory, DescriptionFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read memifs of this container: %w", err)
	}
	if e.Interfaces, err = ParseDescriptions(data); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for i := range e.Interfaces {
		e.Interfaces[i].Socket = e.Interfaces[i].socketIn(directory)
	}
	return e, nil
}

// Select returns the interfaces that a list of names, separated by commas, has, in the order of Interfaces; all of them
// for "". It rejects a name that no interface has.
func (e *Environment) Select(names string) ([]Description, error) {
	if names == "" {
		return slices.Clone(e.Interfaces), nil
	}
	var selected []Description
	wanted := strings.Split(names, ",")
	for _, d := range e.Interfaces {
		if i := slices.Index(wanted, d.Name); i >= 0 {
			selected = append(selected, d)
			wanted = slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("%s has no interface %q", DescriptionFile, wanted[0])
	}
	return selected, nil
}

func readSecret(path string) (Secret, error) {
	if s, ok := os.LookupEnv(SecretVariable); ok {
		return Secret(s), nil
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return Secret(strings.TrimRight(string(data), "\n")), nil
}

// ParseDescriptions reads the content of interfaces.json. It ignores unknown fields.
func ParseDescriptions(data []byte) ([]Description, error) {
	var file struct {
		Version    int           `json:"version"`
		Interfaces []description `json:"interfaces"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if file.Version != descriptionVersion {
		return nil, fmt.Errorf("version %d, expected %d", file.Version, descriptionVersion)
	}
	all := make([]Description, 0, len(file.Interfaces))
	for i := range file.Interfaces {
		d, err := file.Interfaces[i].parse()
		if err != nil {
			return nil, fmt.Errorf("interface %q: %w", file.Interfaces[i].Name, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// socketIn returns the socket of an interface from the description in a directory.
func (d Description) socketIn(directory string) string {
	if d.Socket == "" || isAbstract(d.Socket) {
		return d.Socket
	}
	return filepath.Join(directory, filepath.Base(d.Socket))
}

// description is a Description in JSON.
type description struct {
	Name       string         `json:"name"`
	ID         uint32         `json:"id"`
	Network    string         `json:"network"`
	Role       string         `json:"role"`
	Socket     string         `json:"socket"`
	Mode       string         `json:"mode"`
	MAC        string         `json:"mac"`
	MTU        int            `json:"mtu"`
	Addresses  []netip.Prefix `json:"addresses"`
	Gateways   []netip.Addr   `json:"gateways"`
	GatewayMAC string         `json:"gatewayMAC"`
	Routes     []Route        `json:"routes"`
	RingSize   int            `json:"ringSize"`
	BufferSize int            `json:"bufferSize"`
	RxQueues   int            `json:"rxQueues"`
	TxQueues   int            `json:"txQueues"`
}

func (d *description) parse() (Description, error) {
	parsed := Description{
		Name: d.Name, ID: d.ID, Network: d.Network, Role: d.Role, Socket: d.Socket, MTU: d.MTU,
		Addresses: d.Addresses, Gateways: d.Gateways, Routes: d.Routes,
		RingSize: d.RingSize, BufferSize: d.BufferSize, RxQueues: d.RxQueues, TxQueues: d.TxQueues,
	}
	var err error
	if d.MAC != "" {
		if parsed.MAC, err = net.ParseMAC(d.MAC); err != nil {
			return Description{}, fmt.Errorf("read MAC: %w", err)
		}
	}
	if d.GatewayMAC != "" {
		if parsed.GatewayMAC, err = net.ParseMAC(d.GatewayMAC); err != nil {
			return Description{}, fmt.Errorf("read MAC of the gateway: %w", err)
		}
	}
	if parsed.Mode, err = parseMode(d.Mode); err != nil {
		return Description{}, err
	}
	if d.Role != "client" && d.Role != "server" {
		return Description{}, fmt.Errorf("role %q is neither client nor server", d.Role)
	}
	return parsed, nil
}

func parseMode(s string) (Mode, error) {
	for _, m := range []Mode{Ethernet, IP, Punt} {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("mode %q is unknown", s)
}

// Client returns the configuration for one of the environment's interfaces, in its role.
func (e *Environment) Client(d Description) ClientConfig {
	return ClientConfig{
		Socket:   cmp.Or(d.Socket, e.Socket),
		Listen:   d.Role == "server",
		Secret:   e.Secret,
		ID:       d.ID,
		Mode:     d.Mode,
		Name:     d.Name,
		RingSize: d.RingSize, BufferSize: d.BufferSize, RxQueues: d.RxQueues, TxQueues: d.TxQueues, MTU: d.MTU,
	}
}

// FromEnv connects each interface of the environment, and waits until all are connected. It returns them in the order
// of the environment. After an error, including the end of ctx, no client is left. Use ReadEnvironment and Dial for the
// interfaces' addresses or for events.
func FromEnv(ctx context.Context) ([]*Client, error) {
	e, err := ReadEnvironment()
	if err != nil {
		return nil, err
	}
	all := make([]*Client, len(e.Interfaces))
	errs := make([]error, len(e.Interfaces))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var dialing sync.WaitGroup
	for i, d := range e.Interfaces {
		dialing.Go(func() {
			if all[i], errs[i] = Dial(ctx, e.Client(d), ClientEvents{}); errs[i] != nil {
				cancel()
			}
		})
	}
	dialing.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, closeClients(all))
	}
	return all, nil
}

func closeClients(all []*Client) error {
	var errs []error
	for _, c := range all {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
